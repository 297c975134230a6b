// Compiled for AVX512-FP16, whose multiplications are twice as many as those in float: for
// processors whose dot products of bf16 are slow, and whose tiles (AMX) the system does not give.
// bf16 has fewer digits than fp16, but a wider range: each row and each column is multiplied by a
// power of 2, so that its greatest number is between 16 and 32 (what is 2^19 times smaller loses
// digits). So 32 products have a sum below 2^15, which fp16 can hold; such sums are added up in
// float. What they are rounded to is less than what bf16 has lost of the factors before
// (docs/decisions/035-sums-in-fp16.md).
#include <immintrin.h>

#include <algorithm>

#include "ops/bf16_pack.h"
#include "ops/bf16_softmax.h"

namespace neox {
namespace fp16 {
namespace {

using namespace pairs;

constexpr int64_t kTileRows = 14;            // whose sums of 64 columns fill the registers
constexpr int64_t kWide = 2 * kTileColumns;  // columns of a tile
constexpr int64_t kChunkPairs = 16;          // whose products are added up in fp16
constexpr int64_t kScaleWords = 1;           // of a packed row, or column
constexpr int64_t kAheadDepths = 4;          // of columns, that are fetched before

// --- scaling ---

// The greatest numbers so far, without their signs, in 32 lanes of bf16.
[[gnu::always_inline]] inline __m512i greater(__m512i most, __m512i x) {
  return _mm512_max_epu16(most, _mm512_and_si512(x, _mm512_set1_epi16(0x7fff)));
}

// Of the greatest numbers, bf16 without signs, in the lower halves: the powers of 2 that bring them
// to 16 and more, below 32; and, where `back`, from there. Rows of zeros and of numbers below
// 2^-122 are multiplied by 2^126, those with infinities or NaN by 2^-124: they stay what they are.
[[gnu::always_inline]] inline __m512 scale_of(__m512i greatest, bool back) {
  __m512i exponent = _mm512_max_epi32(_mm512_srli_epi32(greatest, 7), _mm512_set1_epi32(5));
  __m512i scale = back ? _mm512_sub_epi32(exponent, _mm512_set1_epi32(4))
                       : _mm512_sub_epi32(_mm512_set1_epi32(127 + 127 + 4), exponent);
  return as_floats(_mm512_slli_epi32(scale, 23));
}
// Of pairs of numbers of the same row or column.
[[gnu::always_inline]] inline __m512i greatest_of(__m512i pairs) {
  return _mm512_max_epu32(_mm512_srli_epi32(pairs, 16),
                          _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff)));
}

[[gnu::always_inline]] inline __m256i to_fp16(__m512i floats, __m512 scale) {
  return reinterpret_cast<__m256i>(_mm512_cvtxps_ph(_mm512_mul_ps(as_floats(floats), scale)));
}

// --- packing ---

using How = Reading<true, 2 * kLanes>;

// A packed group: the numbers of each depth, and behind all the floats that bring sums back.
struct RowGroup {  // [2 pairs][kTileRows], each number twice, as it meets pairs of columns
  static constexpr int64_t kRows = kTileRows, kParts = 1, kDepthWords = kTileRows, kStrip = 4;
  [[gnu::always_inline]] static void store(uint32_t* to, __m256i numbers) {
    __m512i x = _mm512_cvtepu16_epi32(numbers);
    _mm512_mask_storeu_epi32(to, lanes_of(kRows), _mm512_or_si512(x, _mm512_slli_epi32(x, 16)));
  }
};
struct ColumnGroup {  // [2 pairs][kTileColumns], in parts of sixteen
  static constexpr int64_t kRows = kTileColumns, kParts = 2, kDepthWords = kLanes, kStrip = 1;
  [[gnu::always_inline]] static void store(uint32_t* to, __m256i numbers) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(to), numbers);
  }
};
constexpr int64_t kPartWords = kLanes / 2;

template <class Group>
constexpr int64_t words_of(int64_t pairs) {
  return Group::kDepthWords * 2 * pairs + Group::kRows * kScaleWords;
}

// Writes what brings the sums of a part back, and gives what its numbers are multiplied by.
template <class Group>
[[gnu::always_inline]] inline __m512 finish(uint32_t* group, int64_t part, int64_t pairs,
                                            __m512i greatest) {
  uint32_t* to = group + Group::kDepthWords * 2 * pairs + part * kLanes;
  _mm512_mask_storeu_ps(to, lanes_of(Group::kRows, part * kLanes), scale_of(greatest, true));
  return scale_of(greatest, false);
}

// Sixteen rows or fewer; depth lies consecutively.
template <class Group>
void pack_part_along(const Bf16Matrix& m, uint32_t* group, int64_t part, int64_t pairs) {
  alignas(64) uint32_t greatest[kLanes] = {};
  for (int64_t i = 0; i < m.rows; ++i) {
    __m512i most = _mm512_setzero_si512();
    for (int64_t k = 0; k < m.depth; k += 2 * kLanes)
      most = greater(
          most, _mm512_maskz_loadu_epi16(halves_of(m.depth, k), m.data + i * m.row_stride + k));
    greatest[i] = _mm512_reduce_max_epu32(greatest_of(most));
  }
  __m512 scale = finish<Group>(group, part, pairs, _mm512_load_si512(greatest));
  uint32_t* here = group + part * kPartWords;
  for (int64_t pair = 0; pair < pairs; pair += kLanes) {
    __m512i r[kLanes];
    load_rows<How>(m, 0, pair, r);
    transpose(r);
    int64_t n = std::min(kLanes, pairs - pair);
    for (int64_t i = 0; i < n; ++i, here += 2 * Group::kDepthWords) {
      Group::store(here, to_fp16(first_of(r[i]), scale));
      Group::store(here + Group::kDepthWords, to_fp16(second_of(r[i]), scale));
    }
  }
}

// Of a depth, the numbers of some rows, which lie consecutively, in lanes of 32 bits.
[[gnu::always_inline]] inline __m512i load_across(const Bf16Matrix& m, int64_t row, __mmask16 rows,
                                                  int64_t depth) {
  return _mm512_cvtepu16_epi32(
      _mm256_maskz_loadu_epi16(rows, m.data + depth * m.depth_stride + row));
}

// Groups that lie in a few lines of the cache: read from far away for the greatest numbers, and
// again from the cache.
template <class Group>
void pack_strip_across(const Bf16Matrix& m, int64_t first, uint32_t* to, int64_t pairs) {
  constexpr int64_t kAllParts = Group::kStrip * Group::kParts,
                    kPartRows = Group::kRows / Group::kParts;
  __m512i greatest[kAllParts] = {};
  __mmask16 rows[kAllParts];
  for (int64_t p = 0; p < kAllParts; ++p)
    rows[p] = lanes_of(std::min(kPartRows, m.rows - first - p * kPartRows));
  for (int64_t depth = 0; depth < m.depth; ++depth) {
    const uint16_t* ahead = m.data + (depth + 2 * kAhead) * m.depth_stride + first;
    fetch(ahead);
    fetch(ahead + kAllParts * kPartRows - 1);
    for (int64_t p = 0; p < kAllParts; ++p)
      greatest[p] = greater(greatest[p], load_across(m, first + p * kPartRows, rows[p], depth));
  }
  for (int64_t p = 0; p < kAllParts && first + p / Group::kParts * Group::kRows < m.rows; ++p) {
    uint32_t* group = to + p / Group::kParts * words_of<Group>(pairs);
    int64_t part = p % Group::kParts;
    __m512 scale = finish<Group>(group, part, pairs, greatest[p]);
    uint32_t* here = group + part * kPartWords;
    for (int64_t depth = 0; depth < 2 * pairs; ++depth, here += Group::kDepthWords) {
      __mmask16 there = depth < m.depth ? rows[p] : 0;
      Group::store(here,
                   to_fp16(first_of(load_across(m, first + p * kPartRows, there, depth)), scale));
    }
  }
}

template <class Group>
void pack(const Bf16Matrix& m, uint32_t* to) {
  int64_t pairs = (m.depth + 1) / 2, words = words_of<Group>(pairs);
  if (m.depth_stride != 1) {
    for (int64_t row = 0; row < m.rows; row += Group::kStrip * Group::kRows)
      pack_strip_across<Group>(m, row, to + row / Group::kRows * words, pairs);
    return;
  }
  for (int64_t row = 0; row < m.rows; row += Group::kRows, to += words)
    for (int64_t part = 0; part < Group::kParts; ++part) {
      int64_t from = row + part * kLanes, left = std::min(m.rows, row + Group::kRows) - from;
      pack_part_along<Group>(m.narrow(from, std::clamp<int64_t>(left, 0, kLanes)), to, part, pairs);
    }
}

// --- multiplying ---

// The columns of a tile: one group, or two.
struct TileColumns {
  const _Float16* numbers[2];
  const float* scales[2];
  TileColumns(const PackedColumns& b) {
    for (int64_t i = 0; i < 2; ++i) {
      const uint32_t* group = b.data + i * b.group;
      numbers[i] = reinterpret_cast<const _Float16*>(group);
      scales[i] = reinterpret_cast<const float*>(group + b.group - kTileColumns * kScaleWords);
    }
  }
};

using Sums = float[kTileRows][kWide];

// kRows of a tile's rows by kVectors times 32 columns.
template <int kRows, int kVectors>
struct Tile {
  __m512h sum[kRows][kVectors];

  // The products of so many depths.
  [[gnu::always_inline]] void multiply(const uint32_t*& a, TileColumns& b, int64_t depths) {
#pragma GCC unroll 14
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
      for (int j = 0; j < kVectors; ++j) sum[i][j] = _mm512_setzero_ph();
    for (int64_t k = 0; k < depths; ++k, a += kTileRows) {
      __m512h x[kVectors];
#pragma GCC unroll 2
      for (int j = 0; j < kVectors; ++j) {
        x[j] = _mm512_load_ph(b.numbers[j]);
        _mm_prefetch(b.numbers[j] + kAheadDepths * kTileColumns, _MM_HINT_T0);
        b.numbers[j] += kTileColumns;
      }
#pragma GCC unroll 14
      for (int i = 0; i < kRows; ++i) {
        auto y = reinterpret_cast<__m512h>(_mm512_set1_epi32(static_cast<int>(a[i])));
#pragma GCC unroll 2
        for (int j = 0; j < kVectors; ++j) sum[i][j] = _mm512_fmadd_ph(y, x[j], sum[i][j]);
      }
    }
  }
  // To the sums in float, or, of the first ones, in their place.
  [[gnu::always_inline]] void add_to(Sums& sums, bool first) const {
    const __mmask16 there = first ? 0 : 0xffff;
#pragma GCC unroll 14
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
      for (int j = 0; j < kVectors; ++j) {
        auto x = reinterpret_cast<__m512i>(sum[i][j]);
        __m256i halves[2] = {_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1)};
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h) {
          float* to = sums[i] + (2 * j + h) * kLanes;
          __m512 y = _mm512_cvtxph_ps(reinterpret_cast<__m256h>(halves[h]));
          _mm512_store_ps(to, _mm512_add_ps(y, _mm512_maskz_load_ps(there, to)));
        }
      }
  }
};

// What is wanted next, fetched a little at a time while a tile is computed: lines of the next
// columns, and of where the tile goes.
struct Ahead {
  const uint32_t* next;
  int64_t lines;  // of a chunk
};

void fetch(Ahead& ahead, const ProductSum& c, const Valid& valid, int64_t first_row) {
  for (int64_t i = 0; i < ahead.lines; ++i, ahead.next += kLanes)
    _mm_prefetch(ahead.next, _MM_HINT_T1);
  int64_t size = c.half ? 2 : 4;
  for (int64_t i = first_row; i < std::min(first_row + 2, valid.rows); ++i)
    for (int64_t at = 0; at < valid.columns * size; at += 64)
      _mm_prefetch(static_cast<const char*>(c.data) + i * c.stride * size + at, _MM_HINT_T0);
}

template <int kRows, int kVectors>
void sum_tile(const uint32_t* a, TileColumns b, int64_t pairs, const ProductSum& c,
              const Valid& valid, Ahead ahead, Sums& sums) {
  for (int64_t pair = 0, row = 0; pair < pairs; pair += kChunkPairs, row += 2) {
    fetch(ahead, c, valid, row);
    Tile<kRows, kVectors> tile;
    tile.multiply(a, b, 2 * std::min(kChunkPairs, pairs - pair));
    tile.add_to(sums, pair == 0);
  }
}

using SumTile = void (*)(const uint32_t*, TileColumns, int64_t, const ProductSum&, const Valid&,
                         Ahead, Sums&);
// By half of the rows that there are, rounded up.
template <int kVectors>
constexpr SumTile kTiles[] = {nullptr,
                              sum_tile<2, kVectors>,
                              sum_tile<4, kVectors>,
                              sum_tile<6, kVectors>,
                              sum_tile<8, kVectors>,
                              sum_tile<10, kVectors>,
                              sum_tile<12, kVectors>,
                              sum_tile<14, kVectors>};

void store_tile(const Sums& sums, const float* row_scales, const TileColumns& columns,
                const ProductSum& c, const Valid& valid) {
  for (int64_t j = 0; j < valid.columns; j += kLanes) {
    __mmask16 mask = lanes_of(valid.columns, j);
    __m512 bias = c.bias ? _mm512_maskz_loadu_ps(mask, c.bias + j) : _mm512_setzero_ps();
    __m512 scale = _mm512_load_ps(columns.scales[j / kTileColumns] + j % kTileColumns);
    for (int64_t i = 0; i < valid.rows; ++i) {
      __m512 y = _mm512_mul_ps(_mm512_load_ps(sums[i] + j), scale);
      y = _mm512_fmadd_ps(y, _mm512_set1_ps(row_scales[i]), bias);
      store_sums(y, c, i * c.stride + j, mask);
    }
  }
}

constexpr int64_t kManyRows = 48;
void multiply_packed(const PackedRows& a, const PackedColumns& b, int64_t pairs,
                     const ProductSum& c, int64_t M, int64_t N) {
  alignas(64) Sums sums;
  PackedColumns columns = b;
  int64_t chunks = (pairs + kChunkPairs - 1) / kChunkPairs, tiles = (M + kTileRows - 1) / kTileRows,
          parts = tiles * chunks;
  for (int64_t n = 0; n < N; n += kWide, columns.data += 2 * b.group) {
    // A pointer: of a chosen array GCC 12 with -fsanitize=bounds computes the index in one branch.
    const SumTile* by_rows = N - n > kTileColumns ? kTiles<2> : kTiles<1>;
    const uint32_t* next = columns.data + 2 * b.group;
    if (b.next) next = static_cast<const uint32_t*>(b.next) + n / kTileColumns * b.group;
    // Of the next columns, by the chunks of all tiles.
    int64_t lines = M >= kManyRows ? (2 * b.group / kLanes + parts - 1) / parts : 0;
    TileColumns here(columns);
    for (int64_t m = 0; m < M; m += kTileRows, next += lines * chunks * kLanes) {
      const uint32_t* rows = a.data + m / kTileRows * a.group;
      Valid valid{std::min(kTileRows, M - m), std::min(kWide, N - n)};
      ProductSum to = c.at(m, n);
      by_rows[(valid.rows + 1) / 2](rows, here, pairs, to, valid, {next, lines}, sums);
      const uint32_t* scales = rows + a.group - kTileRows * kScaleWords;
      store_tile(sums, reinterpret_cast<const float*>(scales), here, to, valid);
    }
  }
}

}  // namespace
}  // namespace fp16

const Bf16Kernels kFp16Bf16Kernels = {.name = "AVX512-FP16",
                                      .softmax = &kAvx512Softmax,
                                      .tile_rows = fp16::kTileRows,
                                      .wide_rows = true,
                                      .scale_words = fp16::kScaleWords,
                                      .in_float = &kAvx512fBf16Kernels,
                                      .pairs_multiple = 1,
                                      .few_rows = 0,
                                      .few_row_bytes = 0,
                                      .all_row_bytes = 5 << 20,
                                      .outruns_memory = false,
                                      // Row bytes by the size of the cache: bf16_kernels_x86.cc.
                                      .along_depth = {512 << 10, 4 << 20},
                                      .across_depth = {512 << 10, 4 << 20, 1024},
                                      .pack_rows = fp16::pack<fp16::RowGroup>,
                                      .pack_columns = fp16::pack<fp16::ColumnGroup>,
                                      .multiply_packed = fp16::multiply_packed,
                                      .multiply_unpacked = nullptr};

}  // namespace neox
