#include "ops/leaf_gradient.h"

namespace neox {

at::Tensor kept_gradient(const at::Tensor& leaf, at::ScalarType type) {
  if (!leaf.is_leaf() || !leaf.requires_grad()) return {};
  at::Tensor grad = leaf.grad();
  return grad.defined() && grad.scalar_type() == type ? grad : at::Tensor();
}

}  // namespace neox
