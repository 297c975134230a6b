// The softmax of attention by AVX-512, compiled with instructions for bf16 and without them.
#pragma once
#include "ops/bf16_pack.h"
#include "ops/bf16_softmax.h"

namespace neox {
namespace {  // of each file that includes it

using namespace pairs;

__mmask16 lanes_from(int64_t n) { return static_cast<__mmask16>(~lanes_of(n)); }

void clear(uint32_t* pairs, int64_t n) { std::fill_n(pairs, n, 0U); }

// 2^x to 2 units in the last place: the integer part by the exponent, and for the rest, in
// [-1/2, 1/2], the polynomial of least relative error (1.1e-7). 0 below kLeastPower; NaN of NaN.
[[gnu::always_inline]] inline __m512 exp2_of(__m512 x) {
  __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 f = _mm512_sub_ps(x, n), p = _mm512_set1_ps(1.32647273e-3F);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.67151299e-3F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.55073358e-2F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.40222424e-1F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.93147004e-1F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0F));
  __mmask16 counts = _mm512_cmp_ps_mask(x, _mm512_set1_ps(kLeastPower), _CMP_NLT_UQ);
  return _mm512_maskz_scalef_ps(counts, p, n);
}

// bf16 of both, in pairs: the first in the lower halves.
[[gnu::always_inline]] inline __m512i paired(__m512 first, __m512 second) {
#ifdef __AVX512BF16__
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
  return _mm512_permutexvar_epi16(order, both);
#else
  __m512i low = _mm512_srli_epi32(rounded(first), 16);
  return _mm512_mask_mov_epi16(low, 0xaaaaaaaa, rounded(second));
#endif
}

// Sixteen queries.
void softmax_column(const KeyScores& s, const SoftmaxState& state, int64_t column,
                    uint32_t* pairs) {
  const float* x = s.data + column;
  const __m512 scale = _mm512_set1_ps(s.scale), none = _mm512_set1_ps(kNoScore);
  int64_t query = s.first_query + column;  // sees the keys up to itself
  auto seen = [&](int64_t key) { return lanes_from(s.first_key + key - query); };
  __m512 top = none;
  for (int64_t k = 0; k < s.keys; ++k)
    top = _mm512_mask_max_ps(top, seen(k), top, _mm512_loadu_ps(x + k * s.columns));
  __m512 before = _mm512_loadu_ps(state.top + column);
  top = _mm512_max_ps(before, _mm512_mul_ps(top, scale));
  __m512 rescale = exp2_of(_mm512_sub_ps(before, top));
  __m512 sum = _mm512_mul_ps(_mm512_loadu_ps(state.sum + column), rescale);
  auto value = [&](int64_t k) {
    __m512 e = exp2_of(_mm512_fmsub_ps(_mm512_loadu_ps(x + k * s.columns), scale, top));
    return _mm512_maskz_mov_ps(seen(k), e);
  };
  for (int64_t k = 0; k < s.keys; k += 2) {
    __m512 first = value(k), second = k + 1 < s.keys ? value(k + 1) : _mm512_setzero_ps();
    sum = _mm512_add_ps(sum, _mm512_add_ps(first, second));
    _mm512_storeu_si512(pairs + k / 2 * s.columns + column, paired(first, second));
  }
  _mm512_storeu_ps(state.top + column, top);
  _mm512_storeu_ps(state.sum + column, sum);
  _mm512_storeu_ps(state.rescale + column, rescale);
}

struct Gradient {
  __m512 p, ds;
};

// Sixteen keys of a query.
[[gnu::always_inline]] inline Gradient gradient(const QueryScores& s, int64_t query, int64_t key) {
  const float* x = s.scores + query * s.keys + key;
  __m512 log_sum = _mm512_set1_ps(s.log_sum[query]), dot = _mm512_set1_ps(s.dot[query]);
  __m512 p = exp2_of(_mm512_fmsub_ps(_mm512_loadu_ps(x), _mm512_set1_ps(s.score_scale), log_sum));
  p = _mm512_maskz_mov_ps(lanes_of(s.first_query + query - s.first_key - key + 1), p);
  __m512 dp = _mm512_loadu_ps(s.gradients + query * s.keys + key);
  return {p, _mm512_mul_ps(_mm512_mul_ps(p, _mm512_set1_ps(s.scale)), _mm512_sub_ps(dp, dot))};
}

void store_half(uint16_t* to, __mmask16 mask, __m512 x) {
  _mm256_mask_storeu_epi16(to, mask, to_halves(x));
}

void softmax_keys(const KeyScores& s, const SoftmaxState& state, uint32_t* pairs) {
  for (int64_t column = 0; column < s.columns; column += kLanes)
    softmax_column(s, state, column, pairs);
  int64_t written = (s.keys + 1) / 2;
  clear(pairs + written * s.columns, (pairs_of(s.keys) - written) * s.columns);
}

void softmax_backward_queries(const QueryScores& s, const ScoreGradients& to) {
  for (int64_t query = 0; query < s.queries; query += 2) {
    bool both = query + 1 < s.queries;
    for (int64_t key = 0; key < s.keys; key += kLanes) {
      Gradient first = gradient(s, query, key), second = {};
      store_half(to.rows + query * s.keys + key, 0xffff, first.ds);
      if (both) {
        second = gradient(s, query + 1, key);
        store_half(to.rows + (query + 1) * s.keys + key, 0xffff, second.ds);
      }
      int64_t at = query / 2 * s.keys + key;
      _mm512_storeu_si512(to.probabilities + at, paired(first.p, second.p));
      _mm512_storeu_si512(to.pairs + at, paired(first.ds, second.ds));
    }
  }
  int64_t written = (s.queries + 1) / 2, left = (pairs_of(s.queries) - written) * s.keys;
  clear(to.probabilities + written * s.keys, left);
  clear(to.pairs + written * s.keys, left);
}

float dot_bf16(const uint16_t* x, const uint16_t* y, int64_t n) {
  __m512 sum = _mm512_setzero_ps();
  for (int64_t i = 0; i < n; i += 2 * kLanes) {
    __m512i a = _mm512_maskz_loadu_epi16(halves_of(n, i), x + i),
            b = _mm512_maskz_loadu_epi16(halves_of(n, i), y + i);
#ifdef __AVX512BF16__
    sum = _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
#else
    sum = _mm512_fmadd_ps(as_floats(first_of(a)), as_floats(first_of(b)), sum);
    sum = _mm512_fmadd_ps(as_floats(second_of(a)), as_floats(second_of(b)), sum);
#endif
  }
  return _mm512_reduce_add_ps(sum);
}

void store_rows(const float* x, int64_t n, int64_t D, uint16_t* to, int64_t stride) {
  for (int64_t row = 0; row < n; ++row, x += D, to += stride)
    for (int64_t d = 0; d < D; d += kLanes)
      store_half(to + d, lanes_of(D, d), _mm512_maskz_loadu_ps(lanes_of(D, d), x + d));
}

void scale_columns(const FloatColumns& x, const float* factors) {
  for (int64_t i = 0; i < x.n; i += kLanes) {
    __m512 factor = _mm512_loadu_ps(factors + i);
    if (_mm512_mask_cmp_ps_mask(lanes_of(x.n, i), factor, _mm512_set1_ps(1), _CMP_NEQ_UQ) == 0)
      continue;
    float* at = x.data + i;
    for (int64_t d = 0; d < x.D; ++d, at += x.stride)
      _mm512_store_ps(at, _mm512_mul_ps(_mm512_load_ps(at), factor));
  }
}

void store_columns(const FloatColumns& x, const float* factors, uint16_t* to, int64_t stride) {
  for (int64_t i = 0; i < x.n; i += kLanes) {
    __m512 factor = factors ? _mm512_loadu_ps(factors + i) : _mm512_set1_ps(1);
    int64_t n = std::min(kLanes, x.n - i);
    for (int64_t d = 0; d < x.D; d += kLanes) {
      __m512i r[kLanes];
#pragma GCC unroll 16
      for (int64_t k = 0; k < kLanes; ++k) {
        const float* from = x.data + (d + k) * x.stride + i;
        r[k] = d + k < x.D ? _mm512_castps_si512(_mm512_mul_ps(_mm512_load_ps(from), factor))
                           : _mm512_setzero_si512();
      }
      transpose(r);
      __mmask16 mask = lanes_of(x.D, d);
      for (int64_t k = 0; k < n; ++k)
        store_half(to + (i + k) * stride + d, mask, _mm512_castsi512_ps(r[k]));
    }
  }
}

constexpr Bf16Softmax kSoftmax = {.keys = softmax_keys,
                                  .backward_queries = softmax_backward_queries,
                                  .dot = dot_bf16,
                                  .store_rows = store_rows,
                                  .scale_columns = scale_columns,
                                  .store_columns = store_columns};

}  // namespace
}  // namespace neox
