// The softmax of attention between products of bf16_kernels.h: from scores in float to
// probabilities in bf16 as the next product reads them. Scores count in units of log 2, so that
// exponentials are powers of 2.
#pragma once
#include <cstdint>

namespace neox {

// Scores [keys, columns] of a block: those of key k and query q count where k <= q.
struct KeyScores {
  const float* data = nullptr;    // rows `columns` apart
  int64_t keys = 0, columns = 0;  // columns: queries, a multiple of 16
  int64_t first_key = 0, first_query = 0;
  float scale = 1;  // of the scores, with 1 / ln 2
};
// Of the queries, over the blocks so far.
struct SoftmaxState {
  float *top = nullptr, *sum = nullptr;  // [columns]: greatest score, sum of 2^(score - top)
  float* rescale = nullptr;  // [columns]: by what sums of the blocks before are to be multiplied
};
constexpr float kNoScore = -1e30F;  // top before the first block
// 2^x is 0 below it: nothing beside what the sums are rounded to, while numbers below 2^-126, which
// products of it would have, take processors a hundred times as long.
constexpr float kLeastPower = -64;

// Scores and gradients of the probabilities [queries, keys] of a block.
struct QueryScores {
  const float *scores = nullptr, *gradients = nullptr;  // rows `keys` apart
  int64_t queries = 0, keys = 0;                        // keys: a multiple of 16
  int64_t first_query = 0, first_key = 0;
  float scale = 1, score_scale = 1;  // of the scores, and with 1 / ln 2
  const float* log_sum = nullptr;    // [queries]: log 2 of the sums
  const float* dot = nullptr;        // [queries]: of the output and its gradient
};
struct ScoreGradients {
  uint32_t *probabilities = nullptr, *pairs = nullptr;  // [pairs_of(queries)][keys]
  uint16_t* rows = nullptr;                             // [queries][keys]
};

// Floats [D, n], rows `stride`, a multiple of 16, apart and on 64 bytes.
struct FloatColumns {
  float* data = nullptr;
  int64_t stride = 0, D = 0, n = 0;
};

struct Bf16Softmax {
  // pairs [pairs_of(keys)][columns] = 2^(score - top), 0 where it does not count; updates the
  // state.
  void (*keys)(const KeyScores& s, const SoftmaxState& state, uint32_t* pairs);
  // probabilities = 2^(score - log_sum), gradients of the scores before their scaling =
  // scale p (dp - dot), the latter in both orders; 0 where key > query.
  void (*backward_queries)(const QueryScores& s, const ScoreGradients& to);

  // Sum over x[i] y[i] of bf16 [n].
  float (*dot)(const uint16_t* x, const uint16_t* y, int64_t n);
  // Rows of floats [n, D] to bf16 rows.
  void (*store_rows)(const float* x, int64_t n, int64_t D, uint16_t* to, int64_t stride);
  // Columns times factors [n]: in place, or, where there are any, to bf16 rows [n, D].
  void (*scale_columns)(const FloatColumns& x, const float* factors);
  void (*store_columns)(const FloatColumns& x, const float* factors, uint16_t* to, int64_t stride);
};

// By AVX2; by AVX-512; by that with AVX512-BF16.
extern const Bf16Softmax kAvx2Softmax, kAvx512fSoftmax, kAvx512Softmax;

}  // namespace neox
