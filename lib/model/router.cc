#include "model/router.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>

namespace neox {

using at::Tensor;

// The host does not wait for whether it has converged: from then on the factors stay.
Tensor sinkhorn(const Tensor& logits) {
  constexpr double kTolerance = 1e-4, kSmall = 1e-8;
  auto M = static_cast<double>(logits.size(0)), E = static_cast<double>(logits.size(1));
  Tensor cost = logits.exp(), tokens = at::ones({logits.size(0)}, logits.options()),
         experts = 1 / (E * cost.sum(0)), going;
  for (int i = 0; i < 3; ++i) {
    Tensor next_tokens = 1 / (M * ((experts * cost).sum(1) + kSmall)),
           next_experts = 1 / (E * ((next_tokens.unsqueeze(1) * cost).sum(0) + kSmall));
    Tensor moved = (experts - next_experts).abs().mean() >= kTolerance;
    if (going.defined()) {
      next_tokens = at::where(going, next_tokens, tokens);
      next_experts = at::where(going, next_experts, experts);
      moved = moved.logical_and(going);
    }
    tokens = next_tokens, experts = next_experts, going = moved;
  }
  return experts * cost * tokens.unsqueeze(1);
}

Tensor choose_experts(const Tensor& logits, const MoeConfig& moe, bool training) {
  at::NoGradGuard no_grad;
  bool shared = moe.router == Router::kSinkhorn && training;
  return std::get<1>(at::topk(shared ? sinkhorn(logits) : logits, moe.top_k, 1));
}

bool counts_by_sigmoid(const MoeConfig& moe) {
  return moe.router == Router::kSinkhorn && moe.top_k == 1;
}

Tensor expert_weights(const Tensor& logits, const Tensor& chosen, const MoeConfig& moe) {
  Tensor weights =
      (counts_by_sigmoid(moe) ? logits.sigmoid() : logits.softmax(1)).gather(1, chosen);
  return moe.normalized ? weights / weights.sum(1, true) : weights;
}

}  // namespace neox
