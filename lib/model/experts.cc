// Layers whose MLP is a mixture of experts. Each rank of tp has a part of every expert, as of an
// MLP: all of them take the same time, whatever the router chooses.
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "model/gpt_neox.h"
#include "model/router.h"
#include "ops/experts.h"
#include "ops/product.h"

namespace neox {
namespace {

// The most rows that an expert has, of an even share; and 1.
Tensor load_of(const Tensor& chosen, int64_t experts) {
  Tensor counts = (chosen.view({-1, 1}) == at::arange(experts, chosen.options())).sum(0),
         most = counts.max().to(at::kDouble);
  Tensor load = most * (static_cast<double>(experts) / static_cast<double>(chosen.numel()));
  return at::stack({load, at::ones_like(load)});
}

}  // namespace

Tensor GptNeoX::take_expert_load() {
  Tensor load = std::exchange(expert_load_, {});
  return load.defined() ? load : at::zeros({2}, at::dtype(at::kDouble).device(options_.device));
}

Tensor GptNeoX::experts(const Tensor& x, int64_t l, const Pass& pass) {
  std::string p = prefix(l) + "mlp.";
  const MoeConfig& moe = *config_.moe;
  Tensor rows = x.reshape({-1, config_.hidden}),
         logits = product(rows, param(p + "router.weight")).to(at::toOpMathType(x.scalar_type()));
  Tensor chosen = choose_experts(logits.detach(), moe, pass.training);
  mesh_.tp().broadcast(chosen, 0);  // ranks whose last bits differ must not choose differently
  if (pass.training) {
    Tensor load = load_of(chosen, moe.experts);
    expert_load_ = expert_load_.defined() ? expert_load_ + load : load;
  }
  Routes routes{chosen, expert_weights(logits, chosen, moe)};
  return expert_mlps(rows, routes, param(p + "experts.dense_h_to_4h.weight"),
                     param(p + "experts.dense_4h_to_h.weight"), config_.activation, config_.gated)
      .view(x.sizes());
}

}  // namespace neox
