#include "model/preference.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>

namespace neox {

using at::Tensor;

Tensor row_losses(const Tensor& losses, const Tensor& weights) {
  return (losses.view(weights.sizes()).to(at::kDouble) * weights).sum(1);
}

Tensor counted_pairs(const Tensor& weights) {
  return (weights != 0).view({weights.size(0) / 2, -1}).any(1).to(at::kDouble);
}

PreferenceLoss dpo_loss(const Tensor& rows, const Tensor& reference, const Tensor& pairs,
                        double beta) {
  Tensor rewards = ((reference - rows) * beta).view({-1, 2});  // [pairs, {chosen, rejected}]
  Tensor chosen = rewards.select(1, 0), rejected = rewards.select(1, 1), margin = chosen - rejected;
  Tensor push = at::sigmoid(-margin) * pairs * beta;
  auto sum = [&](const Tensor& x) { return (x * pairs).sum(); };
  return {-sum(at::log_sigmoid(margin)), at::stack({push, -push}, 1).flatten(),
          at::stack({sum(chosen), sum(rejected), sum((margin > 0).to(at::kDouble))})};
}

}  // namespace neox
