// Sums and maxima over ranks on the CPU, always in the order of the ranks, so that an element has
// the same bits whoever computes it, in whatever pieces, and in every run.
#pragma once
#include <ATen/core/Tensor.h>

#include <span>

#include "comm/communicator.h"

namespace neox {

// Each to[j][i] becomes from[0][i] + from[1][i] + ... (or the maximum; a NaN wins) for i < numel.
// 16-bit floats are summed in fp32 and rounded once; booleans are or-ed. A `from` may be a `to`.
// Throws for types that cannot be reduced.
void reduce_ranks(Communicator::Op op, at::ScalarType type, std::span<const void* const> from,
                  std::span<void* const> to, int64_t numel);

}  // namespace neox
