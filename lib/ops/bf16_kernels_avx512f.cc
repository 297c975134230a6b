// Compiled for AVX-512 without its dot products of bf16, at which some processors that have them
// are slower: rows are packed as floats, columns as pairs, which become floats, thirty-two columns
// at a time, before all rows meet them.
#include <immintrin.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "ops/bf16_pack.h"
#include "ops/bf16_softmax_avx512.h"

namespace neox {
namespace avx512f {
namespace {

using namespace pairs;

constexpr int64_t kTileRows = 14;    // whose sums of 32 columns fill the registers but for four
constexpr int64_t kAheadDepths = 4;  // of columns, that are fetched before they are read

// --- packing ---

// The numbers of a depth of a group of rows.
void store_depth(uint32_t* to, __m512i floats) {
  _mm512_mask_storeu_epi32(to, lanes_of(kTileRows), floats);
}

using How = Reading<true, 2 * kLanes>;

void pack_rows_along(const Bf16Matrix& m, uint32_t* to, int64_t pairs) {
  for (int64_t row = 0; row < m.rows; row += kTileRows) {
    Bf16Matrix group = m.narrow(row, std::min(kTileRows, m.rows - row));
    uint32_t* here = to + 2 * row * pairs;
    for (int64_t pair = 0; pair < pairs; pair += kLanes) {
      __m512i r[kLanes];
      load_rows<How>(group, 0, pair, r);
      transpose(r);
      int64_t n = std::min(kLanes, pairs - pair);
      for (int64_t i = 0; i < n; ++i, here += 2 * kTileRows) {
        store_depth(here, first_of(r[i]));
        store_depth(here + kTileRows, second_of(r[i]));
      }
    }
  }
}

// The groups of some lines of the cache in turn.
void pack_rows_across(const Bf16Matrix& m, uint32_t* to, int64_t pairs) {
  constexpr int64_t kStrip = 4 * kTileRows;
  for (int64_t first = 0; first < m.rows; first += kStrip)
    for (int64_t depth = 0; depth < 2 * pairs; ++depth) {
      const uint16_t* from = m.data + depth * m.depth_stride;
      fetch(from + 2 * kAhead * m.depth_stride + first);
      fetch(from + 2 * kAhead * m.depth_stride + first + kStrip - 1);
      for (int64_t row = first; row < std::min(first + kStrip, m.rows); row += kTileRows) {
        __mmask16 mask = depth < m.depth ? lanes_of(std::min(kTileRows, m.rows - row)) : 0;
        __m512i x = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from + row));
        store_depth(to + 2 * row * pairs + depth * kTileRows, first_of(x));
      }
    }
}

// Groups [depth][kTileRows] of floats.
void pack_rows(const Bf16Matrix& m, uint32_t* to) {
  int64_t pairs = (m.depth + 1) / 2;
  return m.depth_stride == 1 ? pack_rows_along(m, to, pairs) : pack_rows_across(m, to, pairs);
}
void pack_columns(const Bf16Matrix& m, uint32_t* to) {
  pack<kTileColumns, How>(m, to, (m.depth + 1) / 2);
}

// --- multiplying ---

// What is wanted next, fetched a little at a time while a tile is computed: all at once it would
// keep what is wanted now waiting. Lines of where the tile goes, and of the next columns.
class Ahead {
 public:
  static constexpr int64_t kPairs = 8;  // of a tile, between which something is fetched

  Ahead(const ProductSum& c, const Valid& valid, const uint32_t* next, int64_t lines, int64_t pairs)
      : row_(static_cast<const char*>(c.data)),
        stride_(c.stride * (c.half ? 2 : 4)),
        last_((valid.columns - 1) * (c.half ? 2 : 4)),
        rows_(valid.rows),
        next_(next),
        lines_((lines * kPairs + pairs - 1) / pairs) {}
  [[gnu::always_inline]] void fetch() {
    for (int64_t i = 0; i < lines_; ++i, next_ += kLanes) _mm_prefetch(next_, _MM_HINT_T1);
    if (rows_-- <= 0) return;
    _mm_prefetch(row_, _MM_HINT_T0);
    _mm_prefetch(row_ + last_, _MM_HINT_T0);
    row_ += stride_;
  }

 private:
  const char* row_;
  int64_t stride_, last_, rows_;
  const uint32_t* next_;
  int64_t lines_;
};

// kRows of a tile's rows by 32 columns.
template <int kRows>
struct Tile {
  __m512 sum[kRows][2];

  [[gnu::always_inline]] void clear() {
#pragma GCC unroll 14
    for (int i = 0; i < kRows; ++i) sum[i][0] = sum[i][1] = _mm512_setzero_ps();
  }
  // Of columns as floats, so many depths.
  [[gnu::always_inline]] void add(const float*& a, const float*& b, int64_t depths) {
    for (int64_t k = 0; k < depths; ++k, a += kTileRows, b += kTileColumns) {
      __m512 x0 = _mm512_load_ps(b), x1 = _mm512_load_ps(b + kLanes);
      _mm_prefetch(b + kAheadDepths * kTileColumns, _MM_HINT_T0);
      _mm_prefetch(b + kAheadDepths * kTileColumns + kLanes, _MM_HINT_T0);
#pragma GCC unroll 14
      for (int i = 0; i < kRows; ++i) {
        __m512 x = _mm512_set1_ps(a[i]);
        sum[i][0] = _mm512_fmadd_ps(x, x0, sum[i][0]);
        sum[i][1] = _mm512_fmadd_ps(x, x1, sum[i][1]);
      }
    }
  }
  [[gnu::always_inline]] void store(const ProductSum& c, const Valid& valid) const {
    __mmask16 first = lanes_of(valid.columns), second = lanes_of(valid.columns, kLanes);
    __m512 bias0 = _mm512_setzero_ps(), bias1 = bias0;
    if (c.bias) {
      bias0 = _mm512_maskz_loadu_ps(first, c.bias);
      bias1 = _mm512_maskz_loadu_ps(second, c.bias + kLanes);
    }
#pragma GCC unroll 14
    for (int i = 0; i < kRows; ++i) {
      if (i >= valid.rows) return;
      store_sums(_mm512_add_ps(sum[i][0], bias0), c, i * c.stride, first);
      store_sums(_mm512_add_ps(sum[i][1], bias1), c, i * c.stride + kLanes, second);
    }
  }
};

template <int kRows>
void multiply_tile(const float* a, const float* b, int64_t pairs, const ProductSum& c,
                   const Valid& valid, Ahead ahead) {
  Tile<kRows> tile;
  tile.clear();
  for (int64_t pair = 0; pair < pairs; pair += Ahead::kPairs) {
    ahead.fetch();
    tile.add(a, b, 2 * std::min(Ahead::kPairs, pairs - pair));
  }
  tile.store(c, valid);
}

using MultiplyTile = void (*)(const float*, const float*, int64_t, const ProductSum&, const Valid&,
                              Ahead);
// By half of the rows that there are, rounded up.
constexpr MultiplyTile kTiles[] = {nullptr,           multiply_tile<2>, multiply_tile<4>,
                                   multiply_tile<6>,  multiply_tile<8>, multiply_tile<10>,
                                   multiply_tile<12>, multiply_tile<14>};

// Room for the floats of some columns, which a thread keeps for the next product. Not a container
// of the standard library: see row_multiply_amx.cc.
class WideColumns {
 public:
  ~WideColumns() { std::free(data_); }
  float* of(int64_t pairs) {
    if (pairs <= pairs_) return data_;
    std::free(data_);
    pairs_ = 0;
    auto bytes = static_cast<size_t>(pairs * 2 * kTileColumns) * sizeof(float);
    data_ = static_cast<float*>(std::aligned_alloc(64, bytes));
    if (!data_) throw std::bad_alloc();
    pairs_ = pairs;
    return data_;
  }

 private:
  float* data_ = nullptr;
  int64_t pairs_ = 0;
};

// [pairs][kTileColumns] to [depth][kTileColumns].
void widen(const PackedColumns& b, int64_t pairs, float* to) {
  const uint32_t* from = b.data;
  for (int64_t pair = 0; pair < pairs; ++pair, from += b.pair, to += 2 * kTileColumns)
    for (int64_t j = 0; j < kTileColumns; j += kLanes) {
      __m512i x = _mm512_load_si512(from + j);
      _mm512_store_ps(to + j, as_floats(first_of(x)));
      _mm512_store_ps(to + kTileColumns + j, as_floats(second_of(x)));
    }
}

constexpr int64_t kManyRows = 48;
void multiply_packed(const PackedRows& a, const PackedColumns& b, int64_t pairs,
                     const ProductSum& c, int64_t M, int64_t N) {
  PackedColumns columns = b;
  bool packed = b.group > kTileColumns;
  int64_t lines = packed && M >= kManyRows ? (2 * pairs * kTileRows + M - 1) / M : 0;
  thread_local WideColumns room;
  float* wide = room.of(pairs);
  for (int64_t n = 0; n < N; n += kTileColumns, columns.data += b.group) {
    const uint32_t* next = columns.data + b.group;
    if (b.next) next = static_cast<const uint32_t*>(b.next) + n / kTileColumns * b.group;
    widen(columns, pairs, wide);
    for (int64_t m = 0; m < M; m += kTileRows, next += lines * kLanes) {
      const uint32_t* rows = a.data + m / kTileRows * a.group;
      Valid valid{std::min(kTileRows, M - m), std::min(kTileColumns, N - n)};
      ProductSum to = c.at(m, n);
      kTiles[(valid.rows + 1) / 2](reinterpret_cast<const float*>(rows), wide, pairs, to, valid,
                                   {to, valid, next, lines, pairs});
    }
  }
}

}  // namespace
}  // namespace avx512f

const Bf16Softmax kAvx512fSoftmax = kSoftmax;

const Bf16Kernels kAvx512fBf16Kernels = {.name = "AVX512",
                                         .softmax = &kAvx512fSoftmax,
                                         .tile_rows = avx512f::kTileRows,
                                         .wide_rows = true,
                                         .pairs_multiple = 1,
                                         .few_rows = 0,
                                         .few_row_bytes = 0,
                                         .all_row_bytes = 5 << 20,
                                         .outruns_memory = false,
                                         // Row bytes by the size of the cache: bf16_kernels_x86.cc.
                                         .along_depth = {512 << 10, 4 << 20},
                                         .across_depth = {512 << 10, 4 << 20, 1024},
                                         .pack_rows = avx512f::pack_rows,
                                         .pack_columns = avx512f::pack_columns,
                                         .multiply_packed = avx512f::multiply_packed,
                                         .multiply_unpacked = nullptr};

}  // namespace neox
