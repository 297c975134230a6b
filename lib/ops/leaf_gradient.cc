#include "ops/leaf_gradient.h"

namespace neox {

at::Tensor kept_gradient(const at::Tensor& leaf) {
  return leaf.is_leaf() && leaf.requires_grad() ? leaf.grad() : at::Tensor();
}

at::Tensor kept_gradient(const at::Tensor& leaf, at::ScalarType type) {
  at::Tensor grad = kept_gradient(leaf);
  return grad.defined() && grad.scalar_type() == type ? grad : at::Tensor();
}

}  // namespace neox
