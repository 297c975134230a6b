// Rotary position embedding (Su et al., "RoFormer") in GPT-NeoX's half-split form, on the first
// `rotary` of D dimensions.
#pragma once
#include <ATen/core/Tensor.h>

#include "config/config.h"
#include "ops/element.h"

namespace neox {

struct RotaryTable {
  at::Tensor cos, sin;  // [positions, rotary / 2], float
};

// Position t turns pair i by t x base^(-2i / rotary), in float, as the reference computes it, which
// is transformers 5 for scaled frequencies. With L the original positions,
// - kLlama3 divides the frequencies of waves longer than L / low_freq_factor by the factor, leaves
//   those of waves shorter than L / high_freq_factor, and goes over from one to the other between;
// - kLinear divides all (position interpolation, arXiv 2306.15595);
// - kYarn divides those of pairs beyond the one that turns beta_slow times in L, leaves those of
//   pairs before the one that turns beta_fast times, and goes over between (arXiv 2309.00071).
// cos and sin are multiplied by attention_factor.
struct RotaryAngles {
  int64_t rotary = 0;
  double base = 10000;
  RotaryScaling scaling = {};
};

RotaryTable rotary_table(int64_t positions, const RotaryAngles& angles, at::Device device);

// The rows of the table for positions [B, T], for rotated_heads_: [B * T, rotary / 2].
RotaryTable rows_at(const RotaryTable& table, const at::Tensor& positions);

// Fused queries, keys and values are [B, T, group, {q ..., k, v}, D], or flat behind T.
struct HeadGroups {
  int64_t groups, queries = 1;
};

// The heads of [B, T, groups, {q ..., k, v}, D]: q [B, H, T, D]; k, v [B, groups, T, D]. In memory
// T stands before the heads, as attention kernels like it.
struct Heads {
  at::Tensor q, k, v;
};

// qkv, of which queries and keys are rotated in place by the table's row for each token: [T,
// rotary / 2] for all samples, or [B * T, rotary / 2]. A table of width 0 rotates nothing. Keys and
// values, and queries where a group has one, stay where they are in qkv, which must be contiguous
// and the fresh result of an operation that does not need it for its gradient. bias: what has been
// added to qkv, as far as gradients go without it (x + bias.detach()); its own is summed along with
// that of qkv, in a fixed order. Differentiable.
Heads rotated_heads_(const at::Tensor& qkv, HeadGroups heads, const RotaryTable& rows,
                     const at::Tensor& bias = {});

// The table's rows for positions first .. first + T - 1; throws where it has none.
RotaryTable rows_from(const RotaryTable& table, int64_t first, int64_t T);

// What the kernels take. A row of qkv is a token: groups x (queries + 2) x D elements.
struct HeadRows {
  Element type;
  int64_t B, T, groups, queries, D, half, table_rows, parts;
  const float *cos, *sin;  // [table_rows, half]
  void* qkv;               // rotated in place, or the gradient that is formed
  const void* from[3];     // gradients of q, k, v; null: zeros
  int64_t stride[3][3];    // of their samples, heads and tokens; elements of a head are adjacent
  void* partial;           // [parts, columns of qkv], float or double: sums over the rows; or null
};

// The CUDA halves.
void rotate_heads_cuda(const HeadRows& rows);
void head_gradients_cuda(const HeadRows& rows);
int64_t head_parts_cuda(int64_t rows, int64_t columns);

}  // namespace neox
