// Causal attention of bf16 by the kernels of bf16_kernels.h: scores exist block by block, in float
// (Dao et al., FlashAttention-2, arXiv 2307.08691); probabilities and the gradients of scores are
// rounded to bf16 for the products.
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/score_rule.h"

namespace neox {

// q, k, v [B, H, T, D], as causal_attention() has them; bf16_multiplies(q).
at::Tensor bf16_causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const ScoreRule& rule);

// Room for a tensor of the shape of `like`, [B, H, T, D], that lies in memory as [B, T, H, D].
at::Tensor heads_inside(const at::Tensor& like);

}  // namespace neox
