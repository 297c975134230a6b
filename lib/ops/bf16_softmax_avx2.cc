// Compiled for AVX2 and FMA, whose kernels pad no depth.
#include <algorithm>

#include "ops/bf16_softmax.h"
#include "ops/bf16_vectors_avx2.h"

namespace neox {
namespace avx2 {
namespace {

// Lanes from n on: all ones.
[[gnu::always_inline]] inline __m256 lanes_from(int64_t n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  auto before = static_cast<int>(std::clamp<int64_t>(n, 0, kLanes)) - 1;
  return _mm256_castsi256_ps(_mm256_cmpgt_epi32(lane, _mm256_set1_epi32(before)));
}

// 2^x within 1.2e-7 of itself, of x up to 0; 0 below kLeastPower; NaN of NaN. The integer part by
// the exponent, and for the rest, in [-1/2, 1/2], the polynomial of least relative error (1.1e-7).
[[gnu::always_inline]] inline __m256 exp2_of(__m256 x) {
  const __m256 least = _mm256_set1_ps(kLeastPower), shift = _mm256_set1_ps(12582912);  // 1.5 * 2^23
  __m256 given = _mm256_max_ps(least, x), shifted = _mm256_add_ps(given, shift);
  __m256 f = _mm256_sub_ps(given, _mm256_sub_ps(shifted, shift));
  __m256 p = _mm256_set1_ps(1.32647273e-3F);
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(9.67151299e-3F));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(5.55073358e-2F));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(2.40222424e-1F));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(6.93147004e-1F));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.0F));
  __m256i power = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  __m256 y = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), power));
  return _mm256_and_ps(y, _mm256_cmp_ps(x, least, _CMP_NLT_UQ));
}

// bf16 of both finite numbers, in pairs: the first in the lower halves.
[[gnu::always_inline]] inline void store_pairs(uint32_t* to, __m256 first, __m256 second) {
  __m256i low = _mm256_srli_epi32(rounded_finite(first), 16);
  __m256i pairs = _mm256_blend_epi16(low, rounded_finite(second), 0xaa);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), pairs);
}

// The scores of eight queries, of which the first sees the keys up to `query`, counted in this
// block.
struct Column {
  const float* x;
  int64_t stride, keys, query;
  __m256 scale;
  // Keys below this one are seen by all.
  int64_t all() const { return std::clamp<int64_t>(query + 1, 0, keys); }
  __m256 score(int64_t k) const { return _mm256_loadu_ps(x + k * stride); }
  __m256 seen(int64_t k) const { return lanes_from(k - query); }
};

[[gnu::always_inline]] inline __m256 largest(const Column& c) {
  const __m256 none = _mm256_set1_ps(kNoScore);
  __m256 top[4] = {none, none, none, none};
  int64_t k = 0, all = c.all();
  for (; k + 4 <= all; k += 4)
    for (int i = 0; i < 4; ++i) top[i] = _mm256_max_ps(top[i], c.score(k + i));
  for (; k < all; ++k) top[0] = _mm256_max_ps(top[0], c.score(k));
  for (; k < c.keys && k < c.query + kLanes; ++k)
    top[0] = _mm256_max_ps(top[0], _mm256_blendv_ps(none, c.score(k), c.seen(k)));
  return _mm256_max_ps(_mm256_max_ps(top[0], top[1]), _mm256_max_ps(top[2], top[3]));
}

// 2^(score - top) of all keys to pairs, of which the rows are `stride` apart; their sum.
[[gnu::always_inline]] inline __m256 exponentials(const Column& c, __m256 top, uint32_t* pairs) {
  __m256 sum = _mm256_setzero_ps();
  auto value = [&](int64_t k) { return exp2_of(_mm256_fmsub_ps(c.score(k), c.scale, top)); };
  auto store = [&](int64_t k, __m256 first, __m256 second) {
    sum = _mm256_add_ps(sum, _mm256_add_ps(first, second));
    store_pairs(pairs + k / 2 * c.stride, first, second);
  };
  int64_t k = 0, all = c.all() / 2 * 2, some = std::clamp(c.query + kLanes, all, c.keys);
  for (; k < all; k += 2) store(k, value(k), value(k + 1));
  auto seen = [&](int64_t key) {
    return key < some ? _mm256_and_ps(c.seen(key), value(key)) : _mm256_setzero_ps();
  };
  for (; k < some; k += 2) store(k, seen(k), seen(k + 1));
  for (; k < c.keys; k += 2) store(k, _mm256_setzero_ps(), _mm256_setzero_ps());
  return sum;
}

void softmax_column(const KeyScores& s, const SoftmaxState& state, int64_t column,
                    uint32_t* pairs) {
  Column c{s.data + column, s.columns, s.keys, s.first_query + column - s.first_key,
           _mm256_set1_ps(s.scale)};
  __m256 before = _mm256_loadu_ps(state.top + column);
  __m256 top = _mm256_max_ps(before, _mm256_mul_ps(largest(c), c.scale));
  __m256 rescale = exp2_of(_mm256_sub_ps(before, top));
  __m256 sum = _mm256_mul_ps(_mm256_loadu_ps(state.sum + column), rescale);
  sum = _mm256_add_ps(sum, exponentials(c, top, pairs + column));
  _mm256_storeu_ps(state.top + column, top);
  _mm256_storeu_ps(state.sum + column, sum);
  _mm256_storeu_ps(state.rescale + column, rescale);
}

void softmax_keys(const KeyScores& s, const SoftmaxState& state, uint32_t* pairs) {
  for (int64_t column = 0; column < s.columns; column += kLanes)
    softmax_column(s, state, column, pairs);
}

struct Gradient {
  __m256 p, ds;
};

// Eight keys of a query.
[[gnu::always_inline]] inline Gradient gradient(const QueryScores& s, int64_t query, int64_t key) {
  __m256 score = _mm256_loadu_ps(s.scores + query * s.keys + key);
  __m256 p = exp2_of(
      _mm256_fmsub_ps(score, _mm256_set1_ps(s.score_scale), _mm256_set1_ps(s.log_sum[query])));
  p = _mm256_andnot_ps(lanes_from(s.first_query + query - s.first_key - key + 1), p);
  __m256 dp = _mm256_loadu_ps(s.gradients + query * s.keys + key);
  return {p, _mm256_mul_ps(_mm256_mul_ps(p, _mm256_set1_ps(s.scale)),
                           _mm256_sub_ps(dp, _mm256_set1_ps(s.dot[query])))};
}

void softmax_backward_queries(const QueryScores& s, const ScoreGradients& to) {
  for (int64_t query = 0; query < s.queries; query += 2) {
    bool both = query + 1 < s.queries;
    uint16_t* rows = to.rows + query * s.keys;
    for (int64_t key = 0; key < s.keys; key += kLanes) {
      Gradient first = gradient(s, query, key), second = {};
      store_halves(rows + key, first.ds);
      if (both) {
        second = gradient(s, query + 1, key);
        store_halves(rows + s.keys + key, second.ds);
      }
      int64_t at = query / 2 * s.keys + key;
      store_pairs(to.probabilities + at, first.p, second.p);
      store_pairs(to.pairs + at, first.ds, second.ds);
    }
  }
}

[[gnu::always_inline]] inline __m256 load_floats(const uint16_t* from) {
  __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(first_of(_mm256_cvtepu16_epi32(x)));
}

float dot_bf16(const uint16_t* x, const uint16_t* y, int64_t n) {
  __m256 sums = _mm256_setzero_ps();
  auto add = [&](const uint16_t* a, const uint16_t* b) {
    sums = _mm256_fmadd_ps(load_floats(a), load_floats(b), sums);
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) add(x + i, y + i);
  if (i < n) {
    uint16_t a[kLanes] = {}, b[kLanes] = {};
    std::copy(x + i, x + n, a);
    std::copy(y + i, y + n, b);
    add(a, b);
  }
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

// n <= 8 floats to bf16.
[[gnu::always_inline]] inline void store_some(uint16_t* to, __m256 x, int64_t n) {
  if (n == kLanes) return store_halves(to, x);
  uint16_t halves[kLanes];
  store_halves(halves, x);
  std::copy_n(halves, n, to);
}

void store_rows(const float* x, int64_t n, int64_t D, uint16_t* to, int64_t stride) {
  for (int64_t row = 0; row < n; ++row, x += D, to += stride) {
    int64_t d = 0;
    for (; d + kLanes <= D; d += kLanes) store_halves(to + d, _mm256_loadu_ps(x + d));
    if (d == D) continue;
    float rest[kLanes] = {};
    std::copy(x + d, x + D, rest);
    store_some(to + d, _mm256_loadu_ps(rest), D - d);
  }
}

void scale_columns(const FloatColumns& x, const float* factors) {
  for (int64_t i = 0; i < x.n; i += kLanes) {
    __m256 factor = _mm256_loadu_ps(factors + i);
    __m256 changed = _mm256_cmp_ps(factor, _mm256_set1_ps(1), _CMP_NEQ_UQ);
    if (_mm256_testz_ps(changed, changed)) continue;
    float* at = x.data + i;
    for (int64_t d = 0; d < x.D; ++d, at += x.stride)
      _mm256_store_ps(at, _mm256_mul_ps(_mm256_load_ps(at), factor));
  }
}

void store_columns(const FloatColumns& x, const float* factors, uint16_t* to, int64_t stride) {
  for (int64_t i = 0; i < x.n; i += kLanes) {
    __m256 factor = factors ? _mm256_loadu_ps(factors + i) : _mm256_set1_ps(1);
    int64_t n = std::min(kLanes, x.n - i);
    for (int64_t d = 0; d < x.D; d += kLanes) {
      __m256i r[kLanes];
      for (int64_t k = 0; k < kLanes; ++k)
        r[k] = d + k < x.D ? _mm256_castps_si256(_mm256_mul_ps(
                                 _mm256_load_ps(x.data + (d + k) * x.stride + i), factor))
                           : _mm256_setzero_si256();
      transpose(r);
      for (int64_t k = 0; k < n; ++k)
        store_some(to + (i + k) * stride + d, _mm256_castsi256_ps(r[k]), std::min(kLanes, x.D - d));
    }
  }
}

}  // namespace
}  // namespace avx2

const Bf16Softmax kAvx2Softmax = {.keys = avx2::softmax_keys,
                                  .backward_queries = avx2::softmax_backward_queries,
                                  .dot = avx2::dot_bf16,
                                  .store_rows = avx2::store_rows,
                                  .scale_columns = avx2::scale_columns,
                                  .store_columns = avx2::store_columns};

}  // namespace neox
