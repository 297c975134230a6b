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

// r[j]: pair `pair` + j of `rows` <= 8 rows from `row` on, 0 where there are none.
[[gnu::always_inline]] inline void load_pairs(const Bf16Matrix& m, int64_t row, int64_t rows,
                                              int64_t pair, __m256i (&r)[kLanes]) {
  int64_t left = m.depth - 2 * pair;
  if (m.depth_stride == 1) {
    for (int64_t i = 0; i < kLanes; ++i) {
      const uint16_t* from = m.data + (row + i) * m.row_stride + 2 * pair;
      r[i] = load_some<__m256i>(from, i < rows ? left : 0);
    }
    return transpose(r);
  }
  const uint16_t* from = m.data + 2 * pair * m.depth_stride + row;
  for (int64_t j = 0; j < kLanes; ++j, from += 2 * m.depth_stride, left -= 2) {
    auto first = load_some<__m128i>(from, left > 0 ? rows : 0),
         second = load_some<__m128i>(from + m.depth_stride, left > 1 ? rows : 0);
    r[j] = _mm256_set_m128i(_mm_unpackhi_epi16(first, second), _mm_unpacklo_epi16(first, second));
  }
}

int64_t pairs_in(const Bf16Matrix& m) { return (m.depth + 1) / 2; }

void store_row_floats(uint32_t* to, __m256i x) {  // kTileRows of them
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(x));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to + 4), _mm256_extracti128_si256(x, 1));
}

// f(row, pair) of all blocks of so many rows and of kLanes pairs. What lies consecutively is read
// in turn: the depth of one block, or, where rows lie so, those of a line of the cache.
template <int64_t kRows, int64_t kRowsOfLine, class F>
[[gnu::always_inline]] inline void each_block(const Bf16Matrix& m, int64_t padded, const F& f) {
  int64_t strip = m.depth_stride == 1 ? kRows : kRowsOfLine, pairs = pairs_in(m);
  for (int64_t first = 0; first < padded; first += strip)
    for (int64_t pair = 0; pair < pairs; pair += kLanes)
      for (int64_t row = first; row < std::min(first + strip, padded); row += kRows) f(row, pair);
}

// Groups [depth][kTileRows] of floats.
void pack_rows(const Bf16Matrix& m, uint32_t* to) {
  int64_t pairs = pairs_in(m);
  each_block<kTileRows, 5 * kTileRows>(m, m.rows, [&](int64_t row, int64_t pair) {
    int64_t rows = std::min(kLanes, m.rows - row);  // more than are stored, in whole vectors
    __m256i r[kLanes];
    load_pairs(m, row, rows, pair, r);
    int64_t n = std::min(kLanes, pairs - pair);
    uint32_t* here = to + 2 * (row * pairs + pair * kTileRows);
    for (int64_t j = 0; j < n; ++j, here += 2 * kTileRows) {
      store_row_floats(here, first_of(r[j]));
      store_row_floats(here + kTileRows, second_of(r[j]));
    }
  });
}

// Groups [2][pairs][kColumns], so that what a tile reads lies consecutively: lines that lie two
// apart would share half of the sets of a cache.
void pack_columns(const Bf16Matrix& m, uint32_t* to) {
  int64_t pairs = pairs_in(m);
  each_block<kLanes, kTileColumns>(
      m, padded_to(m.rows, kTileColumns), [&](int64_t row, int64_t pair) {
        __m256i r[kLanes];
        load_pairs(m, row, std::clamp<int64_t>(m.rows - row, 0, kLanes), pair, r);
        int64_t n = std::min(kLanes, pairs - pair);
        uint32_t* here = to + (row / kColumns * pairs + pair) * kColumns + row % kColumns;
        for (int64_t j = 0; j < n; ++j)
          _mm256_store_si256(reinterpret_cast<__m256i*>(here + j * kColumns), r[j]);
      });
}

// --- multiplying ---

using Tile = __m256[kTileRows][2];

// The second numbers of pairs, by a mask that takes no register of the sums.
[[gnu::always_inline]] inline __m256 second_floats(const uint32_t* pairs) {
  alignas(32) static constexpr uint32_t kSecond[kLanes] = {0xffff0000, 0xffff0000, 0xffff0000,
                                                           0xffff0000, 0xffff0000, 0xffff0000,
                                                           0xffff0000, 0xffff0000};
  __m256 x = _mm256_load_ps(reinterpret_cast<const float*>(pairs));
  asm("vandps %1, %0, %0" : "+x"(x) : "m"(kSecond));
  return x;
}

[[gnu::always_inline]] inline __m256 first_floats(const uint32_t* pairs) {
  return _mm256_castsi256_ps(first_of(_mm256_load_si256(reinterpret_cast<const __m256i*>(pairs))));
}

// A row of a as floats [kTileRows] times a row of b. Sums stay in their registers: GCC would let
// them change these, and run out of registers.
[[gnu::always_inline]] inline void add_depth(const float* a, __m256 b0, __m256 b1, Tile& sum) {
#pragma GCC unroll 6
  for (int i = 0; i < kTileRows; ++i) {
    __m256 x;
    asm("vbroadcastss %3, %2\n\tvfmadd231ps %4, %2, %0\n\tvfmadd231ps %5, %2, %1"
        : "+x"(sum[i][0]), "+x"(sum[i][1]), "=&x"(x)
        : "m"(a[i]), "x"(b0), "x"(b1));
  }
}

[[gnu::always_inline]] inline void add_pairs(const float* a, const uint32_t* b, int64_t b_stride,
                                             int64_t pairs, Tile& sum) {
  for (const float* end = a + pairs * 2 * kTileRows; a != end; a += 2 * kTileRows, b += b_stride) {
    add_depth(a, first_floats(b), first_floats(b + kLanes), sum);
    add_depth(a + kTileRows, second_floats(b), second_floats(b + kLanes), sum);
  }
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
#pragma GCC unroll 6
  for (int i = 0; i < kTileRows; ++i) sum[i][0] = sum[i][1] = _mm256_setzero_ps();
  if (c.add || pairs >= kManyPairs) fetch_sums(c, valid);
  add_pairs(a, b, b_stride, pairs, sum);
  store(sum, c, valid);
}

// kColumns columns of pairs, of which the rows lie `pair` words apart.
struct Columns {
  const uint32_t* data;
  int64_t pair;
  Columns(const PackedColumns& b, int64_t n) {
    bool packed = b.group > kTileColumns;  // pairs of all columns beside each other otherwise
    int64_t group = n / kTileColumns * b.group, column = n % kTileColumns;
    data = b.data + group + (packed ? column / kColumns * b.group / 2 : column);
    pair = packed ? kColumns : b.pair;
  }
};

// They stay in the first-level cache while all rows meet them.
void multiply_packed(const PackedRows& a, const PackedColumns& b, int64_t pairs,
                     const ProductSum& c, int64_t M, int64_t N) {
  for (int64_t n = 0; n < N; n += kColumns) {
    Columns columns(b, n);
    for (int64_t m = 0; m < M; m += kTileRows) {
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
                                      .in_floats = true,
                                      .pairs_multiple = 1,
                                      .few_rows = 0,
                                      .few_row_bytes = 0,
                                      .outruns_memory = false,
                                      .along_depth = {192 << 10, 4 << 20},
                                      .across_depth = {192 << 10, 4 << 20},
                                      .pack_rows = avx2::pack_rows,
                                      .pack_columns = avx2::pack_columns,
                                      .multiply_packed = avx2::multiply_packed,
                                      .multiply_unpacked = nullptr};

}  // namespace neox
