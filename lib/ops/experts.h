// The MLPs of a mixture of experts, without biases: rows are sorted by their expert, and each
// expert multiplies its own, however many they are (Gale et al., "MegaBlocks", arXiv 2211.15841).
#pragma once
#include <ATen/core/Tensor.h>

#include "config/model_config.h"

namespace neox {

// Where each of M rows goes.
struct Routes {
  at::Tensor experts;  // [M, k] int64
  at::Tensor weights;  // [M, k] float (double for double), of the results in a row's sum
};

// sum over k of weights[:, k] out[experts[:, k]] activation(in[experts[:, k]] x): x [M, H],
// in [E, I, H] (gated: [E, 2 I, H]), out [E, H, I]; differentiable in all but the choice of
// experts. Each row is computed as alone. On a GPU the host waits for the numbers of rows.
at::Tensor expert_mlps(const at::Tensor& x, const Routes& routes, const at::Tensor& in,
                       const at::Tensor& out, Activation activation, bool is_gated);

}  // namespace neox
