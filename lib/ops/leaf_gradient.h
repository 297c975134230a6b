// Gradients that an operation adds to a parameter's buffer itself, instead of returning a tensor of
// their own for autograd to add there.
#pragma once
#include <ATen/core/Tensor.h>

namespace neox {

// The gradient that is kept for a leaf, where there is one (and it is of that type); else
// undefined. Who has added to it returns an undefined gradient, with which autograd calls the
// leaf's hooks all the same.
at::Tensor kept_gradient(const at::Tensor& leaf);
at::Tensor kept_gradient(const at::Tensor& leaf, at::ScalarType type);

}  // namespace neox
