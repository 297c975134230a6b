// Global batches in micro-batches of the ranks, and how well they suit them.
#pragma once
#include <string>

#include "config/config.h"

namespace neox {

// The same micro-batches for a step of `global` samples: as many as it takes.
BatchPlan of_size(const BatchPlan& plan, int64_t global, int64_t data_ranks);

// "batch of 64 samples = 4 x 4 ranks x 4 micro-batches".
std::string to_string(const BatchPlan& plan, int64_t data_ranks);

// That the batch leaves data ranks without work, or fills up more than a tenth of what they compute
// with samples of weight 0, and what would mend it; "" where it does neither. `size` is what says
// how many samples the batch has.
std::string badly_used_ranks(const BatchPlan& plan, int64_t data_ranks,
                             const char* size = "train_batch_size");

}  // namespace neox
