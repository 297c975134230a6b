// Attention in which each query sees the keys up to its own position: softmax(scale q k^T) v.
// On the CPU in float, in bf16, and in types of which products are computed in float, block by
// block, forward and backward, without what lies ahead; elsewhere by ATen's fused kernels, which
// are also its reference.
#pragma once
#include <ATen/core/Tensor.h>

namespace neox {

// q, k, v [B, H, T, D], of one type: [B, H, T, D], whose heads lie beside each other in memory.
// Scores of a few hundred queries of a head exist at one time.
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            double scale);

}  // namespace neox
