// Attention whose probabilities are dropped out, or whose scores are added to with a gradient.
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/dropout.h"

namespace neox {

struct ProbabilityDropout {
  double p = 0;           // 0: none
  DropoutSite site = {};  // of all heads' probabilities [B, H, T, T]
};

// dropout(softmax(scale q k^T + mask)) v: q, k, v [B, H, T, D]; mask [B or 1, H or 1, T, T] of
// their type, -inf where a key lies ahead, which may need a gradient; undefined: nothing but those.
// Differentiable. Probabilities are computed again in backward, a block of rows at a time, so that
// no pass holds those of all heads; the mask of dropout is the same, whatever the blocks.
at::Tensor dropped_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& mask, double scale,
                             const ProbabilityDropout& dropout);

}  // namespace neox
