// What is done in the backward pass when it comes to a place in the model.
#pragma once
#include <functional>
#include <vector>

#include "ops/norm.h"

namespace neox {

// The same terms. Once their gradients are there, `work` is called with them, before those of what
// made the terms are computed.
ResidualSum with_work_in_backward(const ResidualSum& sum,
                                  std::function<void(const std::vector<at::Tensor>&)> work);

}  // namespace neox
