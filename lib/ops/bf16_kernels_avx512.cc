#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "ops/bf16_pack.h"
#include "ops/bf16_softmax_avx512.h"

namespace neox {
namespace avx512 {
namespace {

using namespace pairs;

constexpr int64_t kTileRows = 8;

__m512bh as_bf16(__m512i x) { return reinterpret_cast<__m512bh>(x); }

template <int kVectors>
using Tile = __m512[kTileRows][kVectors];

template <int kVectors>
[[gnu::always_inline]] inline void add_pairs(const uint32_t* row, const PackedColumns& columns_of,
                                             int64_t pairs, Tile<kVectors>& sum) {
  const uint32_t* b = columns_of.data;
  for (int64_t pair = 0; pair < pairs; ++pair, row += kTileRows, b += columns_of.pair) {
    __m512i columns[kVectors];
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) columns[j] = _mm512_load_si512(b + j * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i) {
      __m512i x = _mm512_set1_epi32(static_cast<int>(row[i]));
#pragma GCC unroll 2
      for (int j = 0; j < kVectors; ++j)
        sum[i][j] = _mm512_dpbf16_ps(sum[i][j], as_bf16(x), as_bf16(columns[j]));
    }
  }
}

template <int kVectors>
[[gnu::always_inline]] inline void store(const Tile<kVectors>& sum, const ProductSum& c,
                                         const Valid& valid) {
  __m512 bias[kVectors];
#pragma GCC unroll 2
  for (int j = 0; j < kVectors; ++j) {
    __mmask16 mask = lanes_of(valid.columns, j * kLanes);
    bias[j] = c.bias ? _mm512_maskz_loadu_ps(mask, c.bias + j * kLanes) : _mm512_setzero_ps();
  }
#pragma GCC unroll 8
  for (int i = 0; i < kTileRows; ++i) {
    if (i >= valid.rows) return;
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j)
      store_sums(_mm512_add_ps(sum[i][j], bias[j]), c, i * c.stride + j * kLanes,
                 lanes_of(valid.columns, j * kLanes));
  }
}

template <int kVectors>
[[gnu::always_inline]] inline void clear(Tile<kVectors>& sum) {
#pragma GCC unroll 8
  for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) sum[i][j] = _mm512_setzero_ps();
}

template <int kVectors>
void multiply_tile(const uint32_t* a, const PackedColumns& b, int64_t pairs, const ProductSum& c,
                   const Valid& valid) {
  Tile<kVectors> sum;
  clear(sum);
  if (c.add) fetch_sums(c, valid);
  add_pairs<kVectors>(a, b, pairs, sum);
  store<kVectors>(sum, c, valid);
}

// The first `rows` <= kTileRows rows of a matrix as they lie; the others are read as the first.
struct UnpackedRows {
  const uint16_t* at[kTileRows];
  explicit UnpackedRows(const Bf16Matrix& m) {
    for (int64_t i = 0; i < kTileRows; ++i) at[i] = m.data + (i < m.rows ? i : 0) * m.row_stride;
  }
};

int pair_at(const uint16_t* p) {
  int pair;
  std::memcpy(&pair, p, sizeof pair);
  return pair;
}

// Memory that is wanted next, fetched a little at a time: all at once it would keep what is wanted
// now waiting.
class Ahead {
  static constexpr int64_t kLine = 64;
  const char* at_;
  int64_t step_;

 public:
  Ahead(const Bf16Matrix& m, int64_t times)
      : at_(reinterpret_cast<const char*>(m.data)),
        step_(padded_to(2 * m.rows * m.row_stride / times, kLine)) {}
  void fetch() {
    for (int64_t i = 0; i < step_; i += kLine) _mm_prefetch(at_ + i, _MM_HINT_T1);
    at_ += step_;
  }
};

constexpr int64_t kAtOnce = 16;  // pairs, between which something is fetched

template <int kVectors>
[[gnu::always_inline]] inline void add_pairs(const UnpackedRows& a, const uint32_t* b,
                                             int64_t pairs, Ahead& ahead, Tile<kVectors>& sum) {
  UnpackedRows row = a;
  for (int64_t pair = 0; pair < pairs;) {
    ahead.fetch();
    for (int64_t end = std::min(pair + kAtOnce, pairs); pair < end; ++pair, b += kTileColumns) {
      __m512i columns[kVectors];
#pragma GCC unroll 2
      for (int j = 0; j < kVectors; ++j) columns[j] = _mm512_load_si512(b + j * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kTileRows; ++i) {
        __m512i x = _mm512_set1_epi32(pair_at(row.at[i] + 2 * pair));
#pragma GCC unroll 2
        for (int j = 0; j < kVectors; ++j)
          sum[i][j] = _mm512_dpbf16_ps(sum[i][j], as_bf16(x), as_bf16(columns[j]));
      }
    }
  }
}

// 8 rows of 16 numbers become 16 columns of 8: columns i and i + 4 of the first half of r[i], and
// of the second half of r[i + 4].
[[gnu::always_inline]] inline void transpose(__m512i (&r)[kTileRows]) {
  const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                high = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  transpose_quarters(r);
  for (int i = 0; i < 4; ++i) {
    __m512i first = r[i];
    r[i] = _mm512_permutex2var_epi64(first, low, r[i + 4]);
    r[i + 4] = _mm512_permutex2var_epi64(first, high, r[i + 4]);
  }
}

__m256 upper_half(__m512 x) {
  return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1));
}

// 8 sums of a column of c.
[[gnu::always_inline]] inline void store_column(__m256 y, const ProductSum& c, int64_t at,
                                                __mmask8 mask) {
  auto* wide = static_cast<float*>(c.data) + at;
  if (c.half)
    _mm_mask_storeu_epi16(static_cast<uint16_t*>(c.data) + at, mask,
                          reinterpret_cast<__m128i>(_mm256_cvtneps_pbh(y)));
  else
    _mm256_mask_storeu_ps(wide, mask,
                          c.add ? _mm256_add_ps(y, _mm256_maskz_loadu_ps(mask, wide)) : y);
}

// The rows of a tile as columns of c, beginning at c.data.
template <int kVectors>
[[gnu::always_inline]] inline void store_transposed(const Tile<kVectors>& sum, const ProductSum& c,
                                                    const Valid& valid) {
  auto mask = static_cast<__mmask8>((1U << valid.rows) - 1);
  __m256 bias = c.bias ? _mm256_maskz_loadu_ps(mask, c.bias) : _mm256_setzero_ps();
#pragma GCC unroll 2
  for (int j = 0; j < kVectors; ++j) {
    __m512i r[kTileRows];
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i) r[i] = _mm512_castps_si512(sum[i][j]);
    transpose(r);
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i) {
      int64_t column = j * kLanes + i % 4 + i / 4 * 8;
      __m512 pair = _mm512_castsi512_ps(r[i]);
      if (column < valid.columns)
        store_column(_mm256_add_ps(_mm512_castps512_ps256(pair), bias), c, column * c.stride, mask);
      if (column + 4 < valid.columns)
        store_column(_mm256_add_ps(upper_half(pair), bias), c, (column + 4) * c.stride, mask);
    }
  }
}

template <int kVectors>
void multiply_transposed_tile(const UnpackedRows& a, const uint32_t* b, int64_t pairs, Ahead& ahead,
                              const ProductSum& c, const Valid& valid) {
  Tile<kVectors> sum;
  clear(sum);
  add_pairs<kVectors>(a, b, pairs, ahead, sum);
  store_transposed<kVectors>(sum, c, valid);
}

using How = Reading<true, 2 * kLanes>;

void pack_rows(const Bf16Matrix& m, uint32_t* to) {
  pack<kTileRows, How>(m, to, (m.depth + 1) / 2);
}
void pack_columns(const Bf16Matrix& m, uint32_t* to) {
  pack<kTileColumns, How>(m, to, (m.depth + 1) / 2);
}

void multiply_packed(const PackedRows& a, const PackedColumns& b, int64_t pairs,
                     const ProductSum& c, int64_t M, int64_t N) {
  PackedColumns columns = b;
  for (int64_t n = 0; n < N; n += kTileColumns, columns.data += b.group) {
    for (int64_t m = 0; m < M; m += kTileRows) {
      const uint32_t* rows = a.data + m / kTileRows * a.group;
      Valid valid{std::min(kTileRows, M - m), std::min(kTileColumns, N - n)};
      if (valid.columns > kLanes)
        multiply_tile<2>(rows, columns, pairs, c.at(m, n), valid);
      else
        multiply_tile<1>(rows, columns, pairs, c.at(m, n), valid);
    }
  }
}

// A few tiles of rows meet a group of columns in turn: what they write then fills whole lines of
// the cache, in few places at a time. All rows meet so many columns before the next ones.
void multiply_unpacked(const Bf16Matrix& a, const PackedColumns& b, const ProductSum& c,
                       int64_t N) {
  constexpr int64_t kBlock = 32768;  // elements of rows: a small part of a level-2 cache
  constexpr int64_t kMost = 128;     // columns
  if (N > kMost) {
    multiply_unpacked(a, b, c, kMost);
    PackedColumns rest{b.data + kMost / kTileColumns * b.group, b.group};
    return multiply_unpacked(a, rest, c.at(0, kMost), N - kMost);
  }
  int64_t pairs = a.depth / 2, groups = padded_to(N, kTileColumns) / kTileColumns;
  int64_t tiles = std::max<int64_t>(2, kBlock / a.depth / kTileRows), rows = tiles * kTileRows;
  for (int64_t first = 0; first < a.rows; first += rows) {
    int64_t end = std::min(first + rows, a.rows);
    Ahead ahead(a.narrow(end, std::min(rows, a.rows - end)),
                groups * tiles * (padded_to(pairs, kAtOnce) / kAtOnce));
    for (int64_t n = 0; n < N; n += kTileColumns) {
      const uint32_t* columns = b.data + n / kTileColumns * b.group;
      for (int64_t m = first; m < end; m += kTileRows) {
        Valid valid{std::min(kTileRows, end - m), std::min(kTileColumns, N - n)};
        UnpackedRows tile(a.narrow(m, valid.rows));
        if (valid.columns > kLanes)
          multiply_transposed_tile<2>(tile, columns, pairs, ahead, c.at(m, n), valid);
        else
          multiply_transposed_tile<1>(tile, columns, pairs, ahead, c.at(m, n), valid);
      }
    }
  }
}

}  // namespace
}  // namespace avx512

const Bf16Softmax kAvx512Softmax = kSoftmax;

const Bf16Kernels kAvx512Bf16Kernels = {.name = "AVX512-BF16",
                                        .softmax = &kAvx512Softmax,
                                        .tile_rows = avx512::kTileRows,
                                        .wide_rows = false,
                                        .pairs_multiple = 1,
                                        .few_rows = 1024,
                                        .few_row_bytes = 512 << 10,
                                        .all_row_bytes = 0,
                                        .outruns_memory = false,
                                        .along_depth = {320 << 10, 8 << 20},
                                        .across_depth = {320 << 10, 8 << 20, 2048},
                                        .pack_rows = avx512::pack_rows,
                                        .pack_columns = avx512::pack_columns,
                                        .multiply_packed = avx512::multiply_packed,
                                        .multiply_unpacked = avx512::multiply_unpacked};

}  // namespace neox
