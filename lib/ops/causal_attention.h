// Attention in which each query sees the keys up to its own position: softmax(scale q k^T) v.
// On the CPU in float, in bf16, and in types of which products are computed in float, block by
// block, forward and backward, without what lies ahead or before a window; elsewhere by ATen's
// fused kernels, which are also its reference.
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/score_rule.h"

namespace neox {

// Whether attention of such tensors is computed block by block.
bool attends_in_blocks(const at::Device& device, at::ScalarType type);

// q, k, v [B, H, T, D], of one type: [B, H, T, D], whose heads lie beside each other in memory.
// Scores of a few hundred queries of a head exist at one time. Distances count in blocks only.
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const ScoreRule& rule);

}  // namespace neox
