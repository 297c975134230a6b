// Activation recomputation (Chen et al., "Training deep nets with sublinear memory cost"): keep the
// input of a part of the model, compute the part again for its backward.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>

namespace neox {

// part(x), without its activations. part must be a pure function of x and of parameters, which get
// their gradients.
at::Tensor recomputed(const at::Tensor& x,
                      const std::function<at::Tensor(const at::Tensor&)>& part);

}  // namespace neox
