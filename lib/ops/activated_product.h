// The second half of an MLP on a CPU: activation and product in one, which keeps only the
// activation's input. What the product multiplies, the widest tensor of a layer, is computed again
// in the backward pass, at the cost of a pass over it.
#pragma once
#include <ATen/core/Tensor.h>

#include "config/config.h"

namespace neox {

// product(activated(x, bias, activation), w), or of gated(); differentiable.
at::Tensor activated_product(const at::Tensor& x, const at::Tensor& bias, Activation activation,
                             bool is_gated, const at::Tensor& w);

}  // namespace neox
