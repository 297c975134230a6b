// A tile has 16 rows of 64 bytes. The product of a tile of rows, 16 pairs of depth each, and of a
// tile of 16 such pairs with 16 columns each, is added to a tile of 16 x 16 sums in 16 cycles
// (Intel Architecture Instruction Set Extensions Programming Reference, 319433, chapter 3). Of
// eight tiles four are sums, so that each of the others is used twice.
#include <immintrin.h>

#include "ops/amx_tiles.h"
#include "ops/bf16_pack.h"
#include "ops/bf16_softmax.h"

namespace neox {
namespace amx {
namespace {

using namespace pairs;

constexpr int64_t kTile = 16;             // rows, and columns of 32 bits, of a tile
constexpr int64_t kTileRows = 2 * kTile;  // of a block of sums
constexpr int64_t kTileNumbers = kTile * kTile;
static_assert(kTileColumns == 2 * kTile);

// Tiles for blocks of so many rows.
TileShapes shapes_for(int64_t block_rows) {
  auto rows_of = [](int64_t n) { return static_cast<uint8_t>(std::clamp<int64_t>(n, 1, kTile)); };
  TileShapes shapes;
  for (int tile : {0, 1, 4}) shapes.rows[tile] = rows_of(block_rows);
  for (int tile : {2, 3, 5}) shapes.rows[tile] = rows_of(block_rows - kTile);
  return shapes;
}

// Of neighbouring lines more come at a time: 29 GB/s where four of a row follow each other, 10
// where one does (a core's share of the third-level cache of Granite Rapids).
using How = Reading<false, 128>;

// Packed rows: [groups][pairs / 16][2][16 rows][16 pairs], so that tiles lie consecutively.
// Depth lies consecutively.
void copy_rows(const Bf16Matrix& m, int64_t row, int64_t pairs, uint32_t* to) {
  for (int64_t pair = 0; pair < pairs; pair += kTile) {
    __mmask32 mask = halves_of(m.depth, 2 * pair);
    for (int64_t i = row; i < row + kTileRows; ++i, to += kTile) {
      __m512i x = _mm512_setzero_si512();
      if (i < m.rows) x = _mm512_maskz_loadu_epi16(mask, m.data + i * m.row_stride + 2 * pair);
      _mm512_store_si512(to, x);
    }
  }
}

// Rows lie consecutively: two tiles.
void transpose_rows(const Bf16Matrix& m, int64_t row, int64_t pair, uint32_t* to) {
  __m512i r[2][kTile];
#pragma GCC unroll 16
  for (int64_t i = 0; i < kTile; ++i) {
    RowPairs<How> both(m, row, pair + i);
    r[0][i] = both.half(0);
    r[1][i] = both.half(1);
  }
  transpose(r[0]);
  transpose(r[1]);
  for (int64_t i = 0; i < kTileRows; ++i)
    _mm512_store_si512(to + i * kTile, r[i / kTile][i % kTile]);
}

void pack_rows(const Bf16Matrix& m, uint32_t* to) {
  int64_t pairs = padded_to((m.depth + 1) / 2, kTile), group = pairs * kTileRows;
  if (m.depth_stride == 1) {
    for (int64_t row = 0; row < m.rows; row += kTileRows)
      copy_rows(m, row, pairs, to + row / kTileRows * group);
    return;
  }
  for (int64_t strip = 0; strip < m.rows; strip += How::kRows) {
    int64_t end = std::min(m.rows, strip + How::kRows);
    for (int64_t pair = 0; pair < pairs; pair += kTile)
      for (int64_t row = strip; row < end; row += kTileRows)
        transpose_rows(m, row, pair, to + row / kTileRows * group + pair * kTileRows);
  }
}

void pack_columns(const Bf16Matrix& m, uint32_t* to) {
  pack<kTileColumns, How>(m, to, padded_to((m.depth + 1) / 2, kTile));
}

// Two tiles of rows, which follow each other in depth and in groups; strides in bytes.
struct RowTiles {
  const char* data;
  int64_t stride, second, step, group;
  RowTiles at(int64_t groups, int64_t pairs) const {
    RowTiles there = *this;
    there.data += groups * group + pairs / kTile * step;
    return there;
  }
};
RowTiles packed(const PackedRows& rows) {
  constexpr int64_t kBytes = 4 * kTileNumbers;
  return {reinterpret_cast<const char*>(rows.data), 4 * kTile, kBytes, 2 * kBytes, 4 * rows.group};
}
RowTiles unpacked(const Bf16Matrix& m) {
  int64_t stride = 2 * m.row_stride;
  return {reinterpret_cast<const char*>(m.data), stride, kTile * stride, 4 * kTile,
          kTileRows * stride};
}

// Which operand the level-1 cache holds: the other passes through it once.
enum class Held { kRows, kColumns };

// What is held next, fetched a little at a time while tiles multiply, from up to 16 pages of the
// memory in turn. What is asked for line by line waits in the level-1 cache's few line buffers; but
// of pages that are read on in every second line, the processor fetches the others by itself (one
// core of Emerald Rapids, 128 rows with weights of 768 and 1024 of depth from the memory: 0.8 and
// 0.9 TFLOP/s without, 1.05 and 1.1 with this; asked for row by row, 0.8).
class Ahead {
 public:
  Ahead() = default;  // nothing
  Ahead(const char* data, int64_t bytes, int64_t steps)
      : data_(data), left_(bytes), at_once_((bytes / kApart + steps - 1) / steps) {
    take_pages();
  }
  [[gnu::always_inline]] void step() {
    for (int64_t i = 0; i < at_once_ && left_ > 0; ++i) {
      _mm_prefetch(data_ + page_ * kPage + byte_, _MM_HINT_T1);
      if (++page_ == pages_) next_lines();
    }
  }

 private:
  static constexpr int64_t kPage = 4096, kPages = 16, kApart = 128;
  void take_pages() { pages_ = std::min(kPages, (left_ + kPage - 1) / kPage); }
  void next_lines() {
    page_ = 0;
    if ((byte_ += kApart) < kPage) return;
    byte_ = 0;
    data_ += pages_ * kPage;
    left_ -= pages_ * kPage;
    take_pages();
  }
  const char* data_ = nullptr;
  int64_t left_ = 0, at_once_ = 0, pages_ = 0, page_ = 0, byte_ = 0;
};

// Tiles 0 to 3 += the rows' tiles 4 and 5 times the columns' 6 and 7. With the hint of
// "tileloaddt1" what passes by leaves what is held where it is: 2.1 TFLOP/s became 2.9 with 512 of
// depth (one core of Granite Rapids, which has 3.8 by the instructions alone).
template <Held kHeld, bool kTwoRows, bool kTwoColumns>
[[gnu::always_inline]] inline void add_pairs(const RowTiles& a, const PackedColumns& b,
                                             int64_t pairs, Ahead& ahead) {
  const char* rows = a.data;
  const uint32_t* columns = b.data;
  for (int64_t pair = 0; pair < pairs; pair += kTile) {
    const uint32_t* second = columns + kTile;
    int64_t stride = 4 * b.pair;
    if constexpr (kHeld == Held::kRows) {
      _tile_stream_loadd(6, columns, stride);
      _tile_loadd(4, rows, a.stride);
      if constexpr (kTwoRows) _tile_loadd(5, rows + a.second, a.stride);
      if constexpr (kTwoColumns) _tile_stream_loadd(7, second, stride);
    } else {
      _tile_stream_loadd(4, rows, a.stride);
      _tile_loadd(6, columns, stride);
      if constexpr (kTwoColumns) _tile_loadd(7, second, stride);
      if constexpr (kTwoRows) _tile_stream_loadd(5, rows + a.second, a.stride);
    }
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kTwoRows && kHeld == Held::kRows) _tile_dpbf16ps(2, 5, 6);
    if constexpr (kTwoColumns) _tile_dpbf16ps(1, 4, 7);
    if constexpr (kTwoRows && kHeld == Held::kColumns) _tile_dpbf16ps(2, 5, 6);
    if constexpr (kTwoRows && kTwoColumns) _tile_dpbf16ps(3, 5, 7);
    rows += a.step;
    columns += kTile * b.pair;
    if constexpr (kHeld == Held::kRows) ahead.step();
  }
}

template <Held kHeld>
void multiply_tiles(const RowTiles& a, const PackedColumns& b, int64_t pairs, const Valid& valid,
                    Ahead& ahead) {
  bool two_rows = valid.rows > kTile, two_columns = valid.columns > kTile;
  if (two_rows && two_columns)
    add_pairs<kHeld, true, true>(a, b, pairs, ahead);
  else if (two_rows)
    add_pairs<kHeld, true, false>(a, b, pairs, ahead);
  else if (two_columns)
    add_pairs<kHeld, false, true>(a, b, pairs, ahead);
  else
    add_pairs<kHeld, false, false>(a, b, pairs, ahead);
}

void clear_tiles() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

void load_tiles(const float* from, int64_t stride) {
  _tile_loadd(0, from, 4 * stride);
  _tile_loadd(1, from + kTile, 4 * stride);
  _tile_loadd(2, from + kTile * stride, 4 * stride);
  _tile_loadd(3, from + kTile * stride + kTile, 4 * stride);
}

void store_tiles(float* to, int64_t stride) {
  _tile_stored(0, to, 4 * stride);
  _tile_stored(1, to + kTile, 4 * stride);
  _tile_stored(2, to + kTile * stride, 4 * stride);
  _tile_stored(3, to + kTile * stride + kTile, 4 * stride);
}

// A block of sums outside the tiles.
struct alignas(64) Sums {
  float at[kTileRows][kTileColumns];
};

// What a product is added to are its first sums.
void load_rows(Sums& sums, const ProductSum& c, const Valid& valid) {
  const auto* from = static_cast<const float*>(c.data);
  for (int64_t j = 0; j < kTileColumns; j += kTile)
    for (int64_t i = 0; i < kTileRows; ++i) {
      __mmask16 mask = i < valid.rows ? lanes_of(valid.columns, j) : __mmask16{0};
      _mm512_store_ps(&sums.at[i][j], _mm512_maskz_loadu_ps(mask, from + i * c.stride + j));
    }
}

void store_rows(const Sums& sums, ProductSum c, const Valid& valid) {
  c.add = false;  // that has been done
  for (int64_t j = 0; j < valid.columns; j += kTile) {
    __mmask16 mask = lanes_of(valid.columns, j);
    __m512 bias = c.bias ? _mm512_maskz_loadu_ps(mask, c.bias + j) : _mm512_setzero_ps();
    for (int64_t i = 0; i < valid.rows; ++i)
      store_sums(_mm512_add_ps(_mm512_load_ps(&sums.at[i][j]), bias), c, i * c.stride + j, mask);
  }
}

void transpose(Sums& sums) {
  auto load = [&](int64_t i, int64_t j, __m512i(&r)[kTile]) {
    for (int64_t k = 0; k < kTile; ++k) r[k] = _mm512_load_si512(&sums.at[i + k][j]);
    pairs::transpose(r);
  };
  auto store = [&](int64_t i, int64_t j, const __m512i(&r)[kTile]) {
    for (int64_t k = 0; k < kTile; ++k) _mm512_store_si512(&sums.at[i + k][j], r[k]);
  };
  __m512i r[kTile];
  for (int64_t i : {int64_t{0}, kTile}) load(i, i, r), store(i, i, r);
  __m512i upper[kTile];
  load(0, kTile, upper);
  load(kTile, 0, r);
  store(0, kTile, r);
  store(kTile, 0, upper);
}

void load(Sums& sums, const ProductSum& c, const Valid& valid) {
  if (!c.transposed) return load_rows(sums, c, valid);
  load_rows(sums, c, {valid.columns, valid.rows});
  transpose(sums);
}

void store(Sums& sums, const ProductSum& c, const Valid& valid) {
  if (!c.transposed) return store_rows(sums, c, valid);
  transpose(sums);
  store_rows(sums, c, {valid.columns, valid.rows});
}

// A part of the depth of a block, of so many pairs.
struct Part {
  int64_t pairs;
  bool first, last;
};

// Sums that are whole blocks of floats are added up where they go, others in `sums`.
template <Held kHeld>
void multiply_part(const RowTiles& a, const PackedColumns& b, const Part& part, const ProductSum& c,
                   const Valid& valid, Sums& sums, Ahead& ahead) {
  bool whole = valid.rows == kTileRows && valid.columns == kTileColumns && !c.half && !c.bias &&
               !c.transposed;
  float* to = whole ? static_cast<float*>(c.data) : &sums.at[0][0];
  int64_t stride = whole ? c.stride : kTileColumns;
  if (part.first && c.add && !whole) load(sums, c, valid);
  if (part.first && !c.add)
    clear_tiles();
  else
    load_tiles(to, stride);
  multiply_tiles<kHeld>(a, b, part.pairs, valid, ahead);
  store_tiles(to, stride);
  if (part.last && !whole) store(sums, c, valid);
}

// The level-1 cache has room for so many pairs of a group that is held, beside what passes by: the
// depth is taken in equal parts of no more.
constexpr int64_t kPartPairs = 256;
int64_t part_of(int64_t pairs) {
  int64_t parts = (pairs + kPartPairs - 1) / kPartPairs;
  return padded_to((pairs + parts - 1) / parts, kTile);
}

constexpr int64_t kMostAhead = 128 << 10;  // bytes; with more, nothing is won
constexpr int64_t kNearBytes = 1 << 20;    // of columns that stay in a second-level cache of 2 MB
constexpr int64_t kBatch = 16;             // blocks that meet a part of what is held in turn

// A product of one group of rows or of columns, which are held, and of up to kBatch of the others.
template <Held kHeld>
void multiply_batch(const RowTiles& a, const PackedColumns& b, int64_t pairs, const ProductSum& c,
                    int64_t M, int64_t N, Ahead& ahead) {
  constexpr int64_t kDown = kHeld == Held::kColumns ? kTileRows : 0,
                    kRight = kHeld == Held::kRows ? kTileColumns : 0;
  Sums sums[kBatch];
  int64_t blocks = padded_to(kDown ? M : N, kTileRows) / kTileRows;
  auto part_of_c = [&](int64_t i) { return c.at(i * kDown, i * kRight); };
  auto valid = [&](int64_t i) {
    return Valid{std::min(kTileRows, M - i * kDown), std::min(kTileColumns, N - i * kRight)};
  };
  for (int64_t from = 0, end = 0, step = part_of(pairs); from < pairs; from = end) {
    end = std::min(from + step, pairs);
    Part part{end - from, from == 0, end == pairs};
    for (int64_t i = 0; i < blocks; ++i) {
      PackedColumns columns = b;
      columns.data += (kRight ? i * b.group : 0) + from * b.pair;
      if (c.add && part.first && i + 1 < blocks) fetch_sums(part_of_c(i + 1), valid(i + 1));
      multiply_part<kHeld>(a.at(kDown ? i : 0, from), columns, part, part_of_c(i), valid(i),
                           sums[part.first && part.last ? 0 : i], ahead);
    }
  }
}

constexpr int64_t kBatchColumns = kBatch * kTileColumns, kBatchRows = kBatch * kTileRows;

PackedColumns columns_from(const PackedColumns& b, int64_t n) {
  return {b.data + n / kTileColumns * b.group, b.group, b.pair};
}

// Each group of rows is held for all columns, and sums are written in their order. bytes_ahead: of
// the next group, if it is to be fetched.
void multiply_held_rows(const RowTiles& a, const PackedColumns& b, int64_t pairs,
                        const ProductSum& c, int64_t M, int64_t N, int64_t bytes_ahead = 0) {
  int64_t steps = padded_to(pairs, kTile) / kTile * (padded_to(N, kTileColumns) / kTileColumns);
  for (int64_t m = 0; m < M; m += kTileRows) {
    RowTiles rows = a.at(m / kTileRows, 0);
    Ahead ahead(rows.data + a.group, bytes_ahead, steps);
    for (int64_t n = 0; n < N; n += kBatchColumns)
      multiply_batch<Held::kRows>(rows, columns_from(b, n), pairs, c.at(m, n),
                                  std::min(kTileRows, M - m), std::min(kBatchColumns, N - n),
                                  ahead);
  }
}

// Rows are held while columns stay in the second-level cache; of more columns each group is, for
// all rows.
void multiply_packed(const PackedRows& a, const PackedColumns& b, int64_t pairs,
                     const ProductSum& c, int64_t M, int64_t N) {
  Tiles tiles(shapes_for(kTileRows));
  if (M <= kTileRows || N * pairs * 4 <= kNearBytes)
    return multiply_held_rows(packed(a), b, pairs, c, M, N);
  Ahead nothing;
  for (int64_t m = 0; m < M; m += kBatchRows)
    for (int64_t n = 0; n < N; n += kTileColumns)
      multiply_batch<Held::kColumns>(packed(a).at(m / kTileRows, 0), columns_from(b, n), pairs,
                                     c.at(m, n), std::min(kBatchRows, M - m),
                                     std::min(kTileColumns, N - n), nothing);
}

// Tiles are read as they lie: whole groups, then one of as many rows as are left. What lies behind
// the last is probably a part of the same matrix that is wanted next.
void multiply_unpacked(const Bf16Matrix& a, const PackedColumns& b, const ProductSum& c,
                       int64_t N) {
  int64_t group = unpacked(a).group;  // bytes
  bool one_piece = a.row_stride == a.depth;
  int64_t bytes_ahead = one_piece && group <= kMostAhead ? group : 0;
  auto multiply = [&](int64_t first, int64_t rows) {
    if (rows == 0) return;
    Tiles tiles(shapes_for(std::min(rows, kTileRows)));
    multiply_held_rows(unpacked(a.narrow(first, rows)), b, a.depth / 2, c.at(first, 0), rows, N,
                       bytes_ahead);
  };
  int64_t whole = a.rows / kTileRows * kTileRows;
  multiply(0, whole);
  multiply(whole, a.rows - whole);
}

}  // namespace
}  // namespace amx

const Bf16Kernels kAmxBf16Kernels = {
    .name = "AMX",
    .softmax = &kAvx512Softmax,
    .tile_rows = amx::kTileRows,
    .wide_rows = false,
    .pairs_multiple = amx::kTile,
    .few_rows = 256,
    .few_row_bytes = 1 << 20,
    .all_row_bytes = 0,
    .outruns_memory = true,
    .along_depth = {.row_bytes = 0, .column_bytes = 1 << 20},
    .across_depth = {.row_bytes = 1 << 20, .column_bytes = 8 << 20},
    .pack_rows = amx::pack_rows,
    .pack_columns = amx::pack_columns,
    .multiply_packed = amx::multiply_packed,
    .multiply_unpacked = amx::multiply_unpacked};

}  // namespace neox
