// Compiled for AVX2 and FMA, which have no dot products of bf16: rows are packed as floats, columns
// as pairs, of which each number becomes a float by a shift or a mask as it is multiplied.
#include <algorithm>

#include "ops/bf16_kernels.h"
#include "ops/bf16_softmax.h"
#include "ops/bf16_vectors_avx2.h"

namespace neox {
namespace avx2 {
namespace {

constexpr int64_t kTileRows = 6, kColumns = 2 * kLanes;  // of a tile of sums in registers

// --- packing ---

// So many numbers of 16 bits, the others 0.
template <class V>
[[gnu::always_inline]] inline V load_some(const uint16_t* from, int64_t n) {
  V x{};
  if (n >= static_cast<int64_t>(sizeof(V) / 2))
    std::memcpy(&x, from, sizeof(V));
  else if (n > 0)
    std::memcpy(&x, from, static_cast<size_t>(2 * n));
  return x;
}

int64_t pairs_in(const Bf16Matrix& m) { return (m.depth + 1) / 2; }

// Of rows whose depth lies consecutively, kLanes pairs from `pair` on, of `rows` rows from `row`
// on: r[j] has pair j of them, 0 where there is none.
[[gnu::always_inline]] inline void load_along(const Bf16Matrix& m, int64_t row, int64_t rows,
                                              int64_t pair, __m256i (&r)[kLanes]) {
  const uint16_t* from = m.data + row * m.row_stride + 2 * pair;
  int64_t left = m.depth - 2 * pair;
  if (rows >= kLanes && left >= 2 * kLanes)
    for (__m256i& x : r) std::memcpy(&x, from, sizeof x), from += m.row_stride;
  else
    for (int64_t i = 0; i < kLanes; ++i, from += m.row_stride)
      r[i] = load_some<__m256i>(from, i < rows ? left : 0);
  transpose(r);
}

// A pair of so many rows that lie consecutively.
[[gnu::always_inline]] inline __m256i load_across(const uint16_t* from, int64_t depth_stride,
                                                  int64_t rows, bool whole) {
  auto first = load_some<__m128i>(from, rows),
       second = load_some<__m128i>(from + depth_stride, whole ? rows : 0);
  return _mm256_set_m128i(_mm_unpackhi_epi16(first, second), _mm_unpacklo_epi16(first, second));
}

// f(row, pair, pairs, which): all of them, of groups of kRows rows. Where depth lies consecutively,
// that of one group in turn.
template <int64_t kRows, class F>
[[gnu::always_inline]] inline void each_along(const Bf16Matrix& m, int64_t padded, const F& f) {
  int64_t pairs = pairs_in(m);
  for (int64_t row = 0; row < padded; row += kRows)
    for (int64_t pair = 0; pair < pairs; pair += kLanes) {
      __m256i r[kLanes];
      load_along(m, row, m.rows - row, pair, r);
      f(row, pair, std::min(kLanes, pairs - pair), r);
    }
}

// Where rows lie consecutively, those of a line of the cache in turn. The next line may lie in
// another page, where no processor looks for it by itself.
template <int64_t kRows, int64_t kRowsOfLine, class F>
[[gnu::always_inline]] inline void each_across(const Bf16Matrix& m, int64_t padded, const F& f) {
  constexpr int64_t kAhead = 16;
  int64_t pairs = pairs_in(m);
  for (int64_t first = 0; first < padded; first += kRowsOfLine)
    for (int64_t pair = 0; pair < pairs; ++pair) {
      const uint16_t* from = m.data + 2 * pair * m.depth_stride;
      for (int64_t ahead : {kAhead, kAhead + 1}) {
        const uint16_t* next = from + ahead * m.depth_stride + first;
        _mm_prefetch(next, _MM_HINT_T0);
        _mm_prefetch(next + kRowsOfLine - 1, _MM_HINT_T0);
      }
      for (int64_t row = first; row < std::min(first + kRowsOfLine, padded); row += kRows) {
        __m256i r[1] = {
            load_across(from + row, m.depth_stride, m.rows - row, 2 * pair + 1 < m.depth)};
        f(row, pair, int64_t{1}, r);
      }
    }
}

void store_six(uint32_t* to, __m256i x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(x));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to + 4), _mm256_extracti128_si256(x, 1));
}

// Groups [depth][kTileRows] of floats.
void pack_rows(const Bf16Matrix& m, uint32_t* to) {
  auto store = [=, pairs = pairs_in(m)](int64_t row, int64_t pair, int64_t n, const __m256i* r) {
    uint32_t* here = to + 2 * (row * pairs + pair * kTileRows);
    for (int64_t j = 0; j < n; ++j, here += 2 * kTileRows) {
      // Eight, of which what comes next writes over two.
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(here), first_of(r[j]));
      if (j + 1 < n)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(here + kTileRows), second_of(r[j]));
      else
        store_six(here + kTileRows, second_of(r[j]));
    }
  };
  if (m.depth_stride == 1) return each_along<kTileRows>(m, m.rows, store);
  each_across<kTileRows, 5 * kTileRows>(m, m.rows, store);
}

// Groups [2][pairs][kColumns], so that what a tile reads lies consecutively: lines that lie two
// apart would share half of the sets of a cache.
void pack_columns(const Bf16Matrix& m, uint32_t* to) {
  int64_t padded = padded_to(m.rows, kTileColumns);
  auto store = [=, pairs = pairs_in(m)](int64_t row, int64_t pair, int64_t n, const __m256i* r) {
    uint32_t* here = to + (row / kColumns * pairs + pair) * kColumns + row % kColumns;
    for (int64_t j = 0; j < n; ++j)
      _mm256_store_si256(reinterpret_cast<__m256i*>(here + j * kColumns), r[j]);
  };
  if (m.depth_stride == 1) return each_along<kLanes>(m, padded, store);
  each_across<kLanes, kTileColumns>(m, padded, store);
}

// --- multiplying ---

using Tile = __m256[kTileRows][2];

// clang-format off
// A row of a tile, and all rows of one depth: a number of a, `at` bytes behind %[a], times 16 of b.
#define NEOX_ROW(at, i) \
  "vbroadcastss " #at "(%[a]), %[x]\n\t" \
  "vfmadd231ps %[b0], %[x], %[s" #i "0]\n\t" \
  "vfmadd231ps %[b1], %[x], %[s" #i "1]\n\t"
#define NEOX_DEPTH(at0, at1, at2, at3, at4, at5) \
  NEOX_ROW(at0, 0) NEOX_ROW(at1, 1) NEOX_ROW(at2, 2) NEOX_ROW(at3, 3) NEOX_ROW(at4, 4) NEOX_ROW(at5, 5)
// The first numbers of 16 pairs by a shift, the second by a mask.
#define NEOX_PAIR \
  "vmovdqa (%[b]), %[b0]\n\t" \
  "vmovdqa 32(%[b]), %[b1]\n\t" \
  "vpslld $16, %[b0], %[b0]\n\t" \
  "vpslld $16, %[b1], %[b1]\n\t" \
  NEOX_DEPTH(0, 4, 8, 12, 16, 20) \
  "vandps (%[b]), %[mask], %[b0]\n\t" \
  "vandps 32(%[b]), %[mask], %[b1]\n\t" \
  NEOX_DEPTH(24, 28, 32, 36, 40, 44) \
  "addq $48, %[a]\n\t" \
  "addq %[stride], %[b]\n\t"
#define NEOX_CLEAR(i) \
  "vxorps %[s" #i "0], %[s" #i "0], %[s" #i "0]\n\t" \
  "vxorps %[s" #i "1], %[s" #i "1], %[s" #i "1]\n\t"
// clang-format on

// The sums of a tile over so many pairs of rows [depth][kTileRows] and columns. They fill the
// registers: left to itself, GCC moves and spills them.
[[gnu::always_inline]] inline void sum_pairs(const float* a, const uint32_t* b, int64_t b_stride,
                                             int64_t pairs, Tile& sum) {
  __m256 b0, b1, x, mask = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(0xffff0000)));
  // clang-format off
  asm(NEOX_CLEAR(0) NEOX_CLEAR(1) NEOX_CLEAR(2) NEOX_CLEAR(3) NEOX_CLEAR(4) NEOX_CLEAR(5)
      "shrq %[pairs]\n\t"  // two at a time behind the odd one
      "jnc 2f\n\t"
      NEOX_PAIR
      "2:\n\t"
      "testq %[pairs], %[pairs]\n\t"
      "jz 3f\n\t"
      "1:\n\t" NEOX_PAIR NEOX_PAIR
      "decq %[pairs]\n\t"
      "jnz 1b\n\t"
      "3:"
      : [a] "+&r"(a), [b] "+&r"(b), [pairs] "+&r"(pairs), [b0] "=&x"(b0), [b1] "=&x"(b1), [x] "=&x"(x),
        [s00] "=&x"(sum[0][0]), [s01] "=&x"(sum[0][1]), [s10] "=&x"(sum[1][0]), [s11] "=&x"(sum[1][1]),
        [s20] "=&x"(sum[2][0]), [s21] "=&x"(sum[2][1]), [s30] "=&x"(sum[3][0]), [s31] "=&x"(sum[3][1]),
        [s40] "=&x"(sum[4][0]), [s41] "=&x"(sum[4][1]), [s50] "=&x"(sum[5][0]), [s51] "=&x"(sum[5][1])
      : [stride] "r"(4 * b_stride), [mask] "x"(mask)
      : "memory", "cc");
  // clang-format on
}

// 16 sums to where they are wanted.
[[gnu::always_inline]] inline void store_row(__m256 x, __m256 y, const ProductSum& c, int64_t at) {
  if (c.half) return store_halves(static_cast<uint16_t*>(c.data) + at, x, y);
  float* to = static_cast<float*>(c.data) + at;
  if (c.add) {
    x = _mm256_add_ps(x, _mm256_loadu_ps(to));
    y = _mm256_add_ps(y, _mm256_loadu_ps(to + kLanes));
  }
  _mm256_storeu_ps(to, x);
  _mm256_storeu_ps(to + kLanes, y);
}

void store_one(float x, const ProductSum& c, int64_t at) {
  if (c.half) {
    uint16_t halves[kLanes];
    store_halves(halves, _mm256_set1_ps(x));
    static_cast<uint16_t*>(c.data)[at] = halves[0];
  } else {
    float& to = static_cast<float*>(c.data)[at];
    to = c.add ? to + x : x;
  }
}

// Rows and columns of a tile that the product has.
struct Valid {
  int64_t rows, columns;
};

// A tile at the product's right edge.
[[gnu::noinline]] void store_each(const float (&sum)[kTileRows][kColumns], const ProductSum& c,
                                  const Valid& valid) {
  for (int64_t i = 0; i < valid.rows; ++i)
    for (int64_t j = 0; j < valid.columns; ++j)
      store_one(sum[i][j] + (c.bias ? c.bias[j] : 0), c, i * c.stride + j);
}

[[gnu::always_inline]] inline void store(const Tile& sum, const ProductSum& c, const Valid& valid) {
  if (valid.columns < kColumns) {
    float floats[kTileRows][kColumns];
    std::memcpy(floats, sum, sizeof floats);
    return store_each(floats, c, valid);
  }
  __m256 bias[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  if (c.bias) bias[0] = _mm256_loadu_ps(c.bias), bias[1] = _mm256_loadu_ps(c.bias + kLanes);
#pragma GCC unroll 6
  for (int i = 0; i < kTileRows; ++i) {
    if (i >= valid.rows) return;
    store_row(_mm256_add_ps(sum[i][0], bias[0]), _mm256_add_ps(sum[i][1], bias[1]), c,
              i * c.stride);
  }
}

// Where a tile of a large product is stored is far away: it is on its way before.
constexpr int64_t kManyPairs = 64;
[[gnu::always_inline]] inline void fetch_sums(const ProductSum& c, const Valid& valid) {
  const auto* from = static_cast<const char*>(c.data);
  int64_t size = c.half ? 2 : 4, last = (valid.columns - 1) * size;
  for (int64_t i = 0; i < valid.rows; ++i, from += c.stride * size) {
    _mm_prefetch(from, _MM_HINT_T0);
    _mm_prefetch(from + last, _MM_HINT_T0);
  }
}

void multiply_tile(const float* a, const uint32_t* b, int64_t b_stride, int64_t pairs,
                   const ProductSum& c, const Valid& valid) {
  Tile sum;
  if (c.add || pairs >= kManyPairs) fetch_sums(c, valid);
  sum_pairs(a, b, b_stride, pairs, sum);
  store(sum, c, valid);
}

// kColumns columns of pairs, of which the rows lie `pair` words apart; where they are packed, those
// behind them.
struct Columns {
  const uint32_t *data, *next = nullptr;
  int64_t pair;
  Columns(const PackedColumns& b, int64_t n) {
    bool packed = b.group > kTileColumns;  // pairs of all columns beside each other otherwise
    int64_t group = n / kTileColumns * b.group, column = n % kTileColumns;
    data = b.data + group + (packed ? column / kColumns * b.group / 2 : column);
    if (packed) next = data + b.group / 2;
    if (b.next) next = static_cast<const uint32_t*>(b.next) + n * (b.group / kTileColumns);
    pair = packed ? kColumns : b.pair;
  }
};

// A little of the next columns for each tile of these, so that they are near when it is their turn.
[[gnu::always_inline]] inline void fetch_columns(const uint32_t* next, int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i) _mm_prefetch(next + i * kColumns, _MM_HINT_T1);
}

// They stay in the first-level cache while all rows meet them.
constexpr int64_t kManyRows = 48;
void multiply_packed(const PackedRows& a, const PackedColumns& b, int64_t pairs,
                     const ProductSum& c, int64_t M, int64_t N) {
  for (int64_t n = 0; n < N; n += kColumns) {
    Columns columns(b, n);
    int64_t of_tile = columns.next && M >= kManyRows ? pairs * kTileRows / M : 0;
    for (int64_t m = 0; m < M; m += kTileRows, columns.next += of_tile * kColumns) {
      fetch_columns(columns.next, of_tile);
      const uint32_t* rows = a.data + m / kTileRows * a.group;
      multiply_tile(reinterpret_cast<const float*>(rows), columns.data, columns.pair, pairs,
                    c.at(m, n), {std::min(kTileRows, M - m), std::min(kColumns, N - n)});
    }
  }
}

}  // namespace
}  // namespace avx2

const Bf16Kernels kAvx2Bf16Kernels = {.name = "AVX2",
                                      .softmax = &kAvx2Softmax,
                                      .tile_rows = avx2::kTileRows,
                                      .wide_rows = true,
                                      .pairs_multiple = 1,
                                      .few_rows = 0,
                                      .few_row_bytes = 0,
                                      .all_row_bytes = 5 << 20,
                                      .outruns_memory = false,
                                      .along_depth = {192 << 10, 4 << 20},
                                      .across_depth = {192 << 10, 4 << 20, 1024},
                                      .pack_rows = avx2::pack_rows,
                                      .pack_columns = avx2::pack_columns,
                                      .multiply_packed = avx2::multiply_packed,
                                      .multiply_unpacked = nullptr};

}  // namespace neox
