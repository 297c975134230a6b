// Activation recomputation (Chen et al., "Training deep nets with sublinear memory cost"): keep the
// input of a part of the model, compute the part again for its backward.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>

namespace neox {

// part(x, shared), without its activations. part must be a pure function of x, of shared, which may
// be undefined, and of parameters; all get their gradients.
at::Tensor recomputed(const at::Tensor& x, const at::Tensor& shared,
                      const std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>& part);

}  // namespace neox
