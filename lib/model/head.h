// The LM head and the cross entropy over a vocabulary that is split over tp, in one function that
// holds the logits of a few hundred tokens at a time.
#pragma once
#include <ATen/core/Tensor.h>

#include "comm/communicator.h"

namespace neox {

struct HeadTargets {
  Tensor targets;  // [N] int64: global token ids
  Tensor weights;  // [N] float: 0 does not count
  Tensor seed;     // 0-dim double: what the gradients are multiplied by
};

// Both functions are collective over tp.
//
// The tokens' losses [N], equal on all tp ranks, without gradients; weights and seed do not count.
at::Tensor token_losses(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                        Communicator& tp);

// The weighted SUM of the tokens' losses, 0-dim double, equal on all tp ranks. x [N, hidden] behind
// TensorParallel::enter(), weight [V / tp, hidden]. Gradients are formed in the forward pass,
// multiplied by `seed`: call backward with 1. That of a weight whose gradient is kept
// (kept_gradient()) is added there at once, so a pass with gradients must have its backward pass.
// The softmax runs over the padded vocabulary, in float at least.
Tensor head_loss(const Tensor& x, const Tensor& weight, const HeadTargets& targets,
                 Communicator& tp);

}  // namespace neox
