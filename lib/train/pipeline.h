// Runs the micro-batches of a step through this rank's pipeline stage, exchanging hidden states and
// their gradients with its neighbours. One stage is plain gradient accumulation by the same loop.
#pragma once
#include <functional>

#include "model/gpt_neox.h"

namespace neox {

using BatchSource = std::function<Batch(int64_t microbatch)>;

struct LossSum {
  Tensor loss, weight;  // 0-dim double, of this rank's samples; 0 but on the last stage
};

// Forward and backward of all micro-batches; gradients are in the buffers, their sync started. seed
// (0-dim double) multiplies them. Collective over the mesh's pp and tp axes, and over data where a
// buffer syncs.
LossSum train_microbatches(GptNeoX& model, int64_t microbatches, const BatchSource& batches,
                           const Tensor& seed);

// Forward alone, without dropout.
LossSum evaluate_microbatches(GptNeoX& model, int64_t microbatches, const BatchSource& batches);

}  // namespace neox
