// Layers whose MLP is a mixture of experts. Each rank of tp has a part of every expert, as of an
// MLP: all of them take the same time, whatever the router chooses.
#include <ATen/OpMathType.h>
#include <ATen/core/grad_mode.h>

#include "model/gpt_neox.h"
#include "model/router.h"
#include "ops/experts.h"
#include "ops/product.h"

namespace neox {

Tensor GptNeoX::experts(const Tensor& x, int64_t l, const Pass& pass) {
  std::string p = prefix(l) + "mlp.";
  const MoeConfig& moe = *config_.moe;
  Tensor rows = x.reshape({-1, config_.hidden}),
         logits = product(rows, param(p + "router.weight")).to(at::toOpMathType(x.scalar_type()));
  Tensor chosen = choose_experts(logits.detach(), moe, pass.training);
  mesh_.tp().broadcast(chosen, 0);  // ranks whose last bits differ must not choose differently
  Routes routes{chosen, expert_weights(logits, chosen, moe)};
  return expert_mlps(rows, routes, param(p + "experts.dense_h_to_4h.weight"),
                     param(p + "experts.dense_4h_to_h.weight"), config_.activation, config_.gated)
      .view(x.sizes());
}

}  // namespace neox
