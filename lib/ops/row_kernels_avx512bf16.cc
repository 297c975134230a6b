// Compiled for AVX-512 with dot products of bf16: pairs of weights are multiplied and summed in one
// instruction, where widening them takes five. Activations are rounded to bf16 for it.
#include "ops/row_kernels_avx512.h"

namespace neox {
namespace {
constexpr int kPlaces = 1;
}
}  // namespace neox

#include "ops/row_kernels_body.h"
#include "ops/row_packing_avx512.h"
#include "ops/row_packing_products.h"

namespace neox {
namespace {

constexpr int64_t kPairs = 2 * kLanes;  // columns of one vector

inline __m512bh as_bf16(__m512i x) { return reinterpret_cast<__m512bh>(x); }

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

// As OrderedRows takes it.
struct InBf16 {
  using Element = uint16_t;
  static constexpr int64_t kVector = kPairs, kColumns = kPairs;
  static void put(const float* from, int64_t n, uint16_t* to, int64_t) {
    Floats low = load_some(from, n),
           high = n > kLanes ? load_some(from + kLanes, n - kLanes) : Floats{};
    _mm512_store_si512(to, rounded(low, high));
  }
};

inline __m512i load_some_pairs(const uint16_t* p, int64_t n) {
  return _mm512_maskz_loadu_epi16(static_cast<__mmask32>((uint64_t{1} << n) - 1), p);
}

// Weights that are multiplied together, and the activations.
struct PairTile {
  const uint16_t *w = nullptr, *x = nullptr;
  int64_t columns = 0;             // of all parts
  int64_t n = 0;                   // of this part
  bool first = true, last = true;  // of the parts
  float* y = nullptr;              // of the weights' first row
  int64_t y_stride = 0;
};

constexpr int64_t kPanelRows = 48;  // of weights, which meet the same part of the activations
// Of them, what is multiplied together: as many as leave the sums in registers.
template <int B>
constexpr int kTileRows = B == 8 ? 3 : 1;

// s[r][b] += the products of the pairs of w[r] and of those at x of row b.
template <int R, int B>
inline __attribute__((always_inline)) void add_pairs(const __m512i (&w)[R], const uint16_t* x,
                                                     __m512 (&s)[R][B]) {
#pragma GCC unroll 8
  for (int b = 0; b < B; ++b) {
    __m512i in = _mm512_load_si512(x + b * kPairs);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) s[r][b] = _mm512_dpbf16_ps(s[r][b], as_bf16(w[r]), as_bf16(in));
  }
}

// The sums of 16 vectors at once, while the next tile is multiplied: R numbers of each row.
template <int R, int B>
inline __attribute__((always_inline)) void store_tile(const PairTile& t, const __m512 (&s)[R][B]) {
  constexpr int kSums = (R * B + kLanes - 1) / kLanes;
  float y[kSums * kLanes];
#pragma GCC unroll 2
  for (int i = 0; i < kSums; ++i) {
    Floats v[kLanes] = {};
#pragma GCC unroll 16
    for (int j = 0; j < kLanes; ++j)
      if (int k = i * kLanes + j; k < R * B) v[j] = reinterpret_cast<Floats>(s[k % R][k / R]);
    store(y + i * kLanes, sums(v));
  }
  for (int b = 0; b < B; ++b) std::memcpy(t.y + b * t.y_stride, y + b * R, R * sizeof(float));
}

// The products of R rows of weights and B of activations. kept[r * B + b]: sums of the parts
// before.
template <int R, int B>
inline __attribute__((always_inline)) void pair_tile(const PairTile& t, Floats* kept,
                                                     Ahead& ahead) {
  __m512 s[R][B];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int b = 0; b < B; ++b)
      s[r][b] = t.first ? _mm512_setzero_ps() : reinterpret_cast<__m512>(kept[r * B + b]);
  int64_t k = 0;
  __m512i w[R];
  for (; k + kPairs <= t.n; k += kPairs) {
    for (int r = 0; r < R && B > 1; ++r) ahead.next(nullptr);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) w[r] = _mm512_loadu_si512(t.w + r * t.columns + k);
    add_pairs(w, t.x + k * B, s);
  }
  if (k < t.n) {
    for (int r = 0; r < R; ++r) w[r] = load_some_pairs(t.w + r * t.columns + k, t.n - k);
    add_pairs(w, t.x + k * B, s);
  }
  if (t.last) return store_tile(t, s);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int b = 0; b < B; ++b) kept[r * B + b] = reinterpret_cast<Floats>(s[r][b]);
}

// As panel() of the body: up to kPanelRows rows of weights and B rows of activations, of which a
// part stays in the innermost cache.
template <int B>
inline void pair_panel(const PairTile& all, int64_t rows, Ahead& ahead) {
  constexpr int R = kTileRows<B>;
  constexpr int64_t kPart = 8192 / B;
  Floats kept[B * kPanelRows];
  for (int64_t k = 0; k < all.columns; k += kPart) {
    PairTile t = all;
    t.n = least(kPart, all.columns - k);
    t.x += k * B;
    t.first = k == 0;
    t.last = k + t.n == all.columns;
    int64_t r = 0;
    auto at = [&](int64_t row) {
      t.w = all.w + row * all.columns + k;
      t.y = all.y + row;
      return t;
    };
    for (; r + R <= rows; r += R) pair_tile<R, B>(at(r), kept + r * B, ahead);
    for (; r < rows; ++r) pair_tile<1, B>(at(r), kept + r * B, ahead);
  }
}

// For one row of activations what counts is how the memory is read: line after line, the processor
// fetches by itself what comes next; asked for a little ahead it does so beyond its pages too.
template <>
inline void pair_panel<1>(const PairTile& all, int64_t rows, Ahead&) {
  constexpr int64_t kNext = 512;
  Floats total[kLanes];  // of rows beyond the last one nothing is kept
  for (int64_t r = 0; r < rows; ++r) {
    const uint16_t* w = all.w + r * all.columns;
    __m512 s[1][1] = {{_mm512_setzero_ps()}};
    int64_t k = 0;
    for (; k + kPairs <= all.columns; k += kPairs) {
      fetch(w + k + kNext, 64);
      add_pairs<1, 1>({_mm512_loadu_si512(w + k)}, all.x + k, s);
    }
    if (k < all.columns) add_pairs<1, 1>({load_some_pairs(w + k, all.columns - k)}, all.x + k, s);
    total[r % kLanes] = reinterpret_cast<Floats>(s[0][0]);
    int64_t done = r + 1, last = (done - 1) / kLanes * kLanes;
    if (done % kLanes == 0 || done == rows) store_some(all.y + last, sums(total), done - last);
  }
}

void multiply_pairs(const WeightMatrix& m, int64_t from, int64_t to, const FloatRows& x,
                    const FloatRows& y) {
  OrderedRows<InBf16> ordered(x, m.columns);
  for (int64_t n = from; n < to; n += kPanelRows) {
    int64_t rows = least(kPanelRows, to - n);
    const uint16_t* w = static_cast<const uint16_t*>(m.data) + n * m.columns;
    Ahead ahead{reinterpret_cast<const char*>(w + rows * m.columns) + kDistance, 64};
    for (int64_t b = 0; b < x.count; ahead.step = 0) {
      PairTile tile{.w = w,
                    .x = ordered.rows(b),
                    .columns = m.columns,
                    .y = y.data + b * y.stride + n,
                    .y_stride = y.stride};
      int64_t at_once = together(x.count - b);
      auto panel = at_once == 8   ? pair_panel<8>
                   : at_once == 4 ? pair_panel<4>
                   : at_once == 2 ? pair_panel<2>
                                  : pair_panel<1>;
      panel(tile, rows, ahead);
      b += at_once;
    }
  }
}

// The products of q, with zeros up to whole vectors, and one key.
inline __attribute__((always_inline)) Floats product(const uint16_t* q, const uint16_t* key,
                                                     int64_t D) {
  __m512 s = _mm512_setzero_ps();
  int64_t d = 0;
  for (; d + kPairs <= D; d += kPairs)
    s = _mm512_dpbf16_ps(s, as_bf16(_mm512_loadu_si512(key + d)),
                         as_bf16(_mm512_load_si512(q + d)));
  if (d < D)
    s = _mm512_dpbf16_ps(s, as_bf16(load_some_pairs(key + d, D - d)),
                         as_bf16(_mm512_load_si512(q + d)));
  return reinterpret_cast<Floats>(s);
}

// As score() of the body. Keys are read line after line, which the processor fetches by itself.
inline void score_pairs(const uint16_t* q, const uint16_t* keys, const uint16_t* values, int64_t D,
                        int64_t n, float scale, float* scores) {
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    fetch(values + j * D, 2 * kLanes * D);
    Floats s[kLanes];
#pragma GCC unroll 16
    for (int64_t i = 0; i < kLanes; ++i) s[i] = product(q, keys + (j + i) * D, D);
    store(scores + j, sums(s) * scale);
  }
  for (; j < n; ++j) scores[j] = sum(product(q, keys + j * D, D)) * scale;
}

// The weights of n positions, padded to vectors of floats, become bf16 where they lie, with zeros
// up to whole pairs of vectors. Returns the sum of what they are now.
inline float round_weights(float* weights, int64_t n) {
  const __m512i ones = _mm512_set1_epi16(0x3F80);
  __m512 total = _mm512_setzero_ps();
  for (int64_t j = 0; j < n; j += kPairs) {
    auto some = [&](int64_t at) {
      int64_t left = n - at < 0 ? 0 : least(n - at, kLanes);
      auto mask = static_cast<__mmask16>((1U << left) - 1);
      return reinterpret_cast<Floats>(_mm512_maskz_loadu_ps(mask, weights + at));
    };
    __m512i pairs = rounded(some(j), some(j + kLanes));
    total = _mm512_dpbf16_ps(total, as_bf16(pairs), as_bf16(ones));
    _mm512_storeu_si512(weights + j / 2, pairs);
  }
  return sum(reinterpret_cast<Floats>(total));
}

// out = scale times the sum of the values of n positions by their weights, of up to N * kPairs
// columns. Two positions at a time: their numbers are interleaved, which leaves the quarters of the
// columns' vectors apart.
template <int N>
inline void weighted_pairs(const float* weights, const uint16_t* values, int64_t D, int64_t n,
                           float scale, int64_t columns, float* out) {
  __m512 s[N][2] = {};
  auto at = [&](int64_t j, int i) {
    int64_t left = columns - i * kPairs;
    return left >= kPairs ? _mm512_loadu_si512(values + j * D + i * kPairs)
                          : load_some_pairs(values + j * D + i * kPairs, left);
  };
  auto add = [&](int64_t j, int i, __m512i odd) {
    int32_t pair;
    std::memcpy(&pair, weights + j / 2, sizeof pair);
    __m512i even = at(j, i), weight = _mm512_set1_epi32(pair);
    __m512i low = _mm512_unpacklo_epi16(even, odd), high = _mm512_unpackhi_epi16(even, odd);
    s[i][0] = _mm512_dpbf16_ps(s[i][0], as_bf16(weight), as_bf16(low));
    s[i][1] = _mm512_dpbf16_ps(s[i][1], as_bf16(weight), as_bf16(high));
  };
  int64_t j = 0;
  for (; j + 2 <= n; j += 2)
    for (int i = 0; i < N; ++i) add(j, i, at(j + 1, i));
  for (int i = 0; i < N && j < n; ++i) add(j, i, _mm512_setzero_si512());
  for (int i = 0; i < N; ++i)
    for (int half = 0; half < 2; ++half) {
      __m512 apart = half ? _mm512_shuffle_f32x4(s[i][0], s[i][1], 0xee)
                          : _mm512_shuffle_f32x4(s[i][0], s[i][1], 0x44);
      auto y = reinterpret_cast<Floats>(_mm512_shuffle_f32x4(apart, apart, 0xd8));
      int64_t first = i * kPairs + half * kLanes;
      if (first < columns) store_some(out + first, y * scale, columns - first);
    }
}

constexpr int64_t kLargestHead = 512;

// As attend_query() of the body. Query and weights are rounded to bf16 too.
inline void attend_pairs(const CacheAttention& a, int64_t query) {
  int64_t n = a.last - a.first, D = a.D, d = 0;
  alignas(64) uint16_t q[kLargestHead] = {};
  store_rounded(a.q + query * a.q_stride, D, WeightType::kBfloat16, q);
  const auto *keys = static_cast<const uint16_t*>(a.keys) + a.first * D,
             *values = static_cast<const uint16_t*>(a.values) + a.first * D;
  score_pairs(q, keys, values, D, n, a.scale, a.scores);
  const float* added = a.added ? a.added + query * a.added_stride + a.first : nullptr;
  for (int64_t j = 0; added && j < n; ++j) a.scores[j] += added[j];
  exponentials(a.scores, n);
  float scale = 1 / round_weights(a.scores, n);
  float* out = a.out + query * D;
  for (; d + 2 * kPairs <= D; d += 2 * kPairs)
    weighted_pairs<2>(a.scores, values + d, D, n, scale, 2 * kPairs, out + d);
  for (; d < D; d += kPairs) weighted_pairs<1>(a.scores, values + d, D, n, scale, D - d, out + d);
}

void attend_by_pairs(const CacheAttention& a) {
  if (a.type == WeightType::kFloat || a.D > kLargestHead) return attend(a);
  for (int64_t query = 0; query < a.queries; ++query) attend_pairs(a, query);
}

struct AddPairs : InBf16 {
  template <int B>
  [[gnu::always_inline]] static void add(Words numbers, const uint16_t* x, Floats (&s)[B]) {
    for (int b = 0; b < B; ++b)
      s[b] = reinterpret_cast<Floats>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(s[b]),
                                                       as_bf16(raw(numbers)),
                                                       as_bf16(_mm512_load_si512(x + b * kPairs))));
  }
};

void multiply_by_pairs(const WeightMatrix& w, int64_t from, int64_t to, const FloatRows& x,
                       const FloatRows& y) {
  if (w.type == WeightType::kFloat) return multiply(w, from, to, x, y);
  if (!w.packed || x.count == 0 || x.count > 2) return multiply_pairs(w, from, to, x, y);
  (x.count == 1 ? multiply_packed_rows<4, 1, AddPairs>
                : multiply_packed_rows<4, 2, AddPairs>)(w, from, to, x, y);
}

constexpr RowKernels with_pairs(RowKernels kernels) {
  kernels.multiply = multiply_by_pairs;
  kernels.attend = attend_by_pairs;
  kernels.store = store_rounded;
  kernels.packed_columns = kUnit;
  kernels.count_rare = count_rare;
  kernels.pack = pack_rows;
  return kernels;
}

}  // namespace

const RowKernels kAvx512Bf16RowKernels = with_pairs(kernels_named("avx512bf16"));

}  // namespace neox
