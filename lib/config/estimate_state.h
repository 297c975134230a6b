// Of an Estimate, what parameters, gradients and the optimizer's state take.
#pragma once
#include "config/estimate.h"

namespace neox {

inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// Data-parallel ranks that share the optimizer's state.
int64_t shards(const Estimate& e, const Config& config);

// Elements of the optimizer's state for each parameter. Norms and biases of layers, less than a
// hundredth of them, count as matrices.
double state_of_each(const Estimate& e, const Config& config);

// rank_parameters, rank_chunk, and all bytes but those of activations and logits.
void count_state(Estimate& e, const Config& config);

}  // namespace neox
