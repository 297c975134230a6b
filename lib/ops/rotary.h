// Rotary position embedding (Su et al., "RoFormer") in GPT-NeoX's half-split form, on the first
// `rotary` of D dimensions.
#pragma once
#include <ATen/core/Tensor.h>

namespace neox {

struct RotaryTable {
  at::Tensor cos, sin;  // [positions, rotary / 2], float
};

// Position t turns pair i by t x base^(-2i / rotary), in float, as the reference computes it. A
// factor above 1 divides the frequencies of waves longer than original / low by it, leaves those of
// waves shorter than original / high, and goes over from one to the other between (Llama 3.1;
// transformers 5, rope_type llama3).
struct RotaryAngles {
  int64_t rotary = 0;
  double base = 10000;
  double factor = 1, low = 1, high = 4;
  int64_t original = 8192;  // positions
};

RotaryTable rotary_table(int64_t positions, const RotaryAngles& angles, at::Device device);

// The rows of the table for positions [B, T], for rotate_rows_: [B * T, rotary / 2].
RotaryTable rows_at(const RotaryTable& table, const at::Tensor& positions);

// Fused queries, keys and values are [B, T, group, {q ..., k, v}, D], or flat behind T.
struct HeadGroups {
  int64_t groups, queries = 1;
};

// Rotates queries and keys of qkv in place by their positions first_position + t; differentiable.
// qkv must be the fresh result of an operation that does not need it for its gradient. A table of
// width 0 leaves it as it is.
at::Tensor rotate_positions_(at::Tensor qkv, HeadGroups heads, const RotaryTable& table,
                             int64_t first_position);

// The same by a table that has a row for each token: [T, rotary / 2] for all samples, or
// [B * T, rotary / 2].
at::Tensor rotate_rows_(at::Tensor qkv, HeadGroups heads, const RotaryTable& rows);

}  // namespace neox
