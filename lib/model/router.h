// Which experts a token goes through, and how much each counts: GPT-NeoX's routers
// (megatron/model/router.py, 2026-05).
#pragma once
#include <ATen/core/Tensor.h>

#include "config/model_config.h"

namespace neox {

// logits [M, experts], float or double: [M, top_k] int64. With kSinkhorn, in training, the experts
// of a token are those that have most of it where each expert has as much of all M tokens as any
// other.
at::Tensor choose_experts(const at::Tensor& logits, const MoeConfig& moe, bool training);

// [M, top_k], differentiable: of the softmax over all experts, where `normalized` divided by their
// sum; of one by kSinkhorn the sigmoid.
at::Tensor expert_weights(const at::Tensor& logits, const at::Tensor& chosen, const MoeConfig& moe);

// Whether an expert counts as much as the sigmoid of its logit.
bool counts_by_sigmoid(const MoeConfig& moe);

// Sinkhorn's iteration on exp(logits) [M, experts]: at most three, and none after one that changes
// the experts' factors by less than 1e-4 on average. The sums over tokens are 1 / experts then.
at::Tensor sinkhorn(const at::Tensor& logits);

}  // namespace neox
