// Rotary position embedding (Su et al., "RoFormer") in GPT-NeoX's half-split form, on the first
// `rotary` of D dimensions.
#pragma once
#include <ATen/core/Tensor.h>

namespace neox {

struct RotaryTable {
  at::Tensor cos, sin;  // [positions, rotary / 2], float
};

// Angles in float, as the reference computes them: position x base^(-2i / rotary).
RotaryTable rotary_table(int64_t positions, int64_t rotary, double base, at::Device device);

// The rows of the table for positions [B, T], for rotate_rows_: [B * T, rotary / 2].
RotaryTable rows_at(const RotaryTable& table, const at::Tensor& positions);

// Rotates queries and keys of qkv [B, T, H * 3 * D], read as [B, T, H, {q,k,v}, D], in place by
// their positions first_position + t; differentiable. qkv must be the fresh result of an operation
// that does not need it for its gradient. A table of width 0 leaves it as it is.
at::Tensor rotate_positions_(at::Tensor qkv, int64_t heads, const RotaryTable& table,
                             int64_t first_position);

// The same by a table that has a row for each token: [T, rotary / 2] for all samples, or
// [B * T, rotary / 2].
at::Tensor rotate_rows_(at::Tensor qkv, int64_t heads, const RotaryTable& rows);

}  // namespace neox
