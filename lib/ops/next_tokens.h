// The end of a step of greedy generation: each row's likeliest next token is put where the next
// step's embedding reads it, and the row moves on by a position.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "ops/element.h"

namespace neox {

// The first of the greatest numbers; -1 where that is not finite, or one is NaN.
int64_t likeliest(std::span<const float> scores);

struct NextTokens {
  at::Tensor tokens;        // [B, 1] int64, contiguous, which the likeliest replace
  at::Tensor lengths = {};  // [B] int64, contiguous, to which `more` is added; or undefined
  at::Tensor more = {};     // [B] int64, contiguous; with lengths
};

// By logits [B, V], of which the first `vocab` count, or all where it is 0, as likeliest() has it
// for floats; only a GPU takes all numbers below 2^-126 in size for 0. One kernel there.
void next_tokens(const at::Tensor& logits, int64_t vocab, const NextTokens& next);

// What the kernel takes.
struct TokenRows {
  Element type;
  int64_t B, columns, vocab;  // 1 <= vocab <= columns
  const void* logits;         // [B, columns]
  int64_t *tokens, *lengths;  // lengths: null where none are moved on
  const int64_t* more;
};

// The CUDA half.
void next_tokens_cuda(const TokenRows& rows);

}  // namespace neox
