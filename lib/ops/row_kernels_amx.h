// What the tiles of AMX do in decoding.
#pragma once
#include "ops/row_kernels.h"

namespace neox {

// Whether this processor has them, for bf16, and this process may use them.
bool has_bf16_tiles();

// As RowKernels::multiply; of weights in float as kAvx512RowKernels. Packed or not, sums have the
// same bits.
void multiply_by_tiles(const WeightMatrix& w, int64_t from, int64_t to, const FloatRows& x,
                       const FloatRows& y);
// The same of packed weights: whole groups of them, and up to 16 rows of activations. With more the
// memory is not what is waited for.
void multiply_packed_by_tiles(const WeightMatrix& w, int64_t from, int64_t to, const FloatRows& x,
                              const FloatRows& y);
void pack_for_tiles(const PackedGroup& group);

}  // namespace neox
