// Compiled for AVX-512 with dot products of bf16: pairs of weights are multiplied and summed in one
// instruction, where widening them takes five. Activations are rounded to bf16 for it.
#include <cstdlib>

#include "ops/row_kernels_avx512.h"

#include "ops/row_kernels_body.h"

namespace neox {
namespace {

constexpr int64_t kPairs = 2 * kLanes;  // columns of one vector

// To the nearest bf16, ties to even; numbers below 1.2e-38 become 0.
inline __m512i rounded(Floats low, Floats high) {
  return reinterpret_cast<__m512i>(
      _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(high), reinterpret_cast<__m512>(low)));
}

void store_rounded(const float* x, int64_t n, WeightType type, void* to) {
  int64_t i = 0;
  if (type == WeightType::kBfloat16)
    for (; i + kPairs <= n; i += kPairs)
      _mm512_storeu_si512(static_cast<uint16_t*>(to) + i,
                          rounded(load(x + i), load(x + i + kLanes)));
  int64_t bytes = type == WeightType::kFloat ? 4 : 2;
  store_as(x + i, n - i, type, static_cast<char*>(to) + i * bytes);
}

// Rows of activations in bf16, zeros up to whole vectors.
class RoundedRows {
 public:
  RoundedRows(const FloatRows& x, int64_t columns)
      : stride_((columns + kPairs - 1) / kPairs * kPairs),
        data_(static_cast<uint16_t*>(
            std::aligned_alloc(64, static_cast<size_t>(x.count * stride_) * sizeof(uint16_t)))) {
    int64_t n = padded_row(columns);
    for (int64_t b = 0; b < x.count; ++b)
      for (int64_t k = 0; k < stride_; k += kPairs) {
        const float* from = x.data + b * x.stride + k;
        Floats low = load(from), high = k + kLanes < n ? load(from + kLanes) : Floats{};
        _mm512_store_si512(data_ + b * stride_ + k, rounded(low, high));
      }
  }
  ~RoundedRows() { std::free(data_); }
  RoundedRows(const RoundedRows&) = delete;
  RoundedRows& operator=(const RoundedRows&) = delete;
  const uint16_t* row(int64_t b) const { return data_ + b * stride_; }
  int64_t stride() const { return stride_; }

 private:
  int64_t stride_;
  uint16_t* data_;
};

inline __m512i load_some_pairs(const uint16_t* p, int64_t n) {
  return _mm512_maskz_loadu_epi16(static_cast<__mmask32>((uint64_t{1} << n) - 1), p);
}

// Weights that are multiplied together, and the activations.
struct PairTile {
  const uint16_t *w, *x;
  int64_t columns, x_stride;  // from row to row
  int64_t n;                  // columns of this part
  bool first;                 // of the parts
};

constexpr int64_t kPanelRows = kLanes;  // rows of weights: their sums are one vector

// s[r][b] += the products of the pairs of w[r] and of those at x of row b.
template <int R, int B>
inline __attribute__((always_inline)) void add_pairs(const __m512i (&w)[R], const uint16_t* x,
                                                     int64_t x_stride, __m512 (&s)[R][B]) {
#pragma GCC unroll 8
  for (int b = 0; b < B; ++b) {
    __m512i in = _mm512_load_si512(x + b * x_stride);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
      s[r][b] = _mm512_dpbf16_ps(s[r][b], reinterpret_cast<__m512bh>(w[r]),
                                 reinterpret_cast<__m512bh>(in));
  }
}

// sums[b * kPanelRows + r] = what is there, or nothing for the first part, and the products of n
// columns, of R rows of weights and B of activations.
template <int R, int B>
inline __attribute__((always_inline)) void pair_tile(const PairTile& t, Floats* sums,
                                                     Ahead& ahead) {
  __m512 s[R][B];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int b = 0; b < B; ++b)
      s[r][b] = t.first ? _mm512_setzero_ps() : reinterpret_cast<__m512>(sums[b * kPanelRows + r]);
  int64_t k = 0;
  __m512i w[R];
  for (; k + kPairs <= t.n; k += kPairs) {
    for (int r = 0; r < R && B > 1; ++r) ahead.next();
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) w[r] = _mm512_loadu_si512(t.w + r * t.columns + k);
    add_pairs(w, t.x + k, t.x_stride, s);
  }
  if (k < t.n) {
    for (int r = 0; r < R; ++r) w[r] = load_some_pairs(t.w + r * t.columns + k, t.n - k);
    add_pairs(w, t.x + k, t.x_stride, s);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int b = 0; b < B; ++b) sums[b * kPanelRows + r] = reinterpret_cast<Floats>(s[r][b]);
}

// As panel() of the body: up to kPanelRows rows of weights and B rows of activations.
template <int B>
inline void pair_panel(const PairTile& all, int64_t rows, const FloatRows& y, Ahead& ahead) {
  // For one row of activations what counts is how the memory is read: line after line, the
  // processor fetches by itself what comes next.
  constexpr int R = B == 1 ? 1 : B == 8 ? 2 : 4;
  constexpr int64_t kPiece = B == 1 ? int64_t{1} << 40 : 8192 / B;
  Floats total[B][kPanelRows];  // of rows beyond the last one nothing is kept
  for (int64_t k = 0; k < all.columns; k += kPiece) {
    PairTile t = all;
    t.n = least(kPiece, all.columns - k);
    t.x += k;
    t.first = k == 0;
    int64_t r = 0;
    auto at = [&](int64_t row) {
      t.w = all.w + row * all.columns + k;
      return t;
    };
    for (; r + R <= rows; r += R) pair_tile<R, B>(at(r), total[0] + r, ahead);
    for (; r < rows; ++r) pair_tile<1, B>(at(r), total[0] + r, ahead);
  }
  for (int b = 0; b < B; ++b) store_some(y.data + b * y.stride, sums(total[b]), rows);
}

void multiply_pairs(const WeightMatrix& m, int64_t from, int64_t to, const FloatRows& x,
                    const FloatRows& y) {
  constexpr int64_t kDistance = 8192;
  RoundedRows rounded(x, m.columns);
  for (int64_t n = from; n < to; n += kPanelRows) {
    int64_t rows = least(kPanelRows, to - n);
    const uint16_t* w = static_cast<const uint16_t*>(m.data) + n * m.columns;
    Ahead ahead{reinterpret_cast<const char*>(w + rows * m.columns) + kDistance, 64};
    for (int64_t b = 0; b < x.count; ahead.step = 0) {
      PairTile tile{w, rounded.row(b), m.columns, rounded.stride(), 0, true};
      int64_t left = x.count - b;
      FloatRows out{y.data + b * y.stride + n, left, y.stride};
      if (left >= 8)
        pair_panel<8>(tile, rows, out, ahead), b += 8;
      else if (left >= 4)
        pair_panel<4>(tile, rows, out, ahead), b += 4;
      else if (left >= 2)
        pair_panel<2>(tile, rows, out, ahead), b += 2;
      else
        pair_panel<1>(tile, rows, out, ahead), b += 1;
    }
  }
}

void multiply_by_pairs(const WeightMatrix& w, int64_t from, int64_t to, const FloatRows& x,
                       const FloatRows& y) {
  w.type == WeightType::kFloat ? multiply(w, from, to, x, y) : multiply_pairs(w, from, to, x, y);
}

constexpr RowKernels with_pairs(RowKernels kernels) {
  kernels.multiply = multiply_by_pairs;
  kernels.store = store_rounded;
  return kernels;
}

}  // namespace

const RowKernels kAvx512Bf16RowKernels = with_pairs(kernels_named("avx512bf16"));

}  // namespace neox
