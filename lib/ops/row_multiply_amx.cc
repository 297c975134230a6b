// Products of RowKernels by the tiles of AMX (bf16_kernels_amx.cc): 16 rows of weights times up to
// 16 of activations, which are rounded to bf16, take no longer than times one, so that only the
// memory is waited for.
#include <immintrin.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "ops/amx_tiles.h"
#include "ops/bf16_pack.h"
#include "ops/row_kernels_amx.h"

namespace neox {
namespace {

constexpr int64_t kTile = 16;     // rows of a tile
constexpr int64_t kColumns = 32;  // of weights, in a row of it

// 0 and 1 are sums [weights' rows, activations' rows], 4 and 5 weights, 6 and 7 pairs of so many
// rows of activations.
TileShapes shapes_for(int64_t activations) {
  TileShapes shapes;
  for (int tile : {0, 1, 6, 7}) shapes.row_bytes[tile] = static_cast<uint16_t>(4 * activations);
  return shapes;
}

// Activations as tiles take them: groups of `width` rows, [columns / 32][16 pairs][width], zeros
// where there are none.
class PairedRows {
 public:
  PairedRows(const FloatRows& x, int64_t columns)
      : width_(std::min(x.count, kTile)),
        chunks_((columns + kColumns - 1) / kColumns),
        groups_((x.count + width_ - 1) / width_),
        data_(groups_ * chunks_ * kTile * width_) {
    for (int64_t b = 0; b < x.count; ++b)
      for (int64_t c = 0; c < chunks_; ++c)
        put(x.data + b * x.stride + c * kColumns, columns - c * kColumns, b, c);
  }
  int64_t width() const { return width_; }
  int64_t chunks() const { return chunks_; }
  int64_t groups() const { return groups_; }
  const uint32_t* group(int64_t g) const { return data_.data() + g * chunks_ * kTile * width_; }

 private:
  // n numbers, or 32, of row b.
  void put(const float* from, int64_t n, int64_t b, int64_t chunk) {
    auto mask = static_cast<__mmask32>((uint64_t{1} << std::min(n, kColumns)) - 1);
    __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from),
           high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> kTile), from + kTile);
    alignas(64) uint32_t pairs[kTile];
    _mm512_store_si512(pairs, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
    uint32_t* to = data_.data() + (b / width_ * chunks_ + chunk) * kTile * width_ + b % width_;
    for (int64_t p = 0; p < kTile; ++p) to[p * width_] = pairs[p];
  }

  int64_t width_, chunks_, groups_;
  Room<uint32_t> data_;
};

// 16 rows of weights that lie `apart` bytes from each other.
struct WeightTiles {
  const char* data;
  int64_t apart;
};

// To the sums of one group of activations, 0, and those of the next group, 1, as if each were
// alone.
template <bool kTwo>
void add_chunks(const WeightTiles& w, const uint32_t* x, const uint32_t* next, int64_t chunks,
                int64_t width) {
  const int64_t stride = 4 * width, chunk = kTile * width;
  int64_t c = 0;
  for (; c + 2 <= chunks; c += 2) {
    _tile_loadd(4, w.data + 64 * c, w.apart);
    _tile_loadd(6, x + c * chunk, stride);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kTwo) _tile_loadd(7, next + c * chunk, stride);
    if constexpr (kTwo) _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, w.data + 64 * (c + 1), w.apart);
    _tile_loadd(6, x + (c + 1) * chunk, stride);
    _tile_dpbf16ps(0, 5, 6);
    if constexpr (kTwo) _tile_loadd(7, next + (c + 1) * chunk, stride);
    if constexpr (kTwo) _tile_dpbf16ps(1, 5, 7);
  }
  if (c == chunks) return;
  _tile_loadd(4, w.data + 64 * c, w.apart);
  _tile_loadd(6, x + c * chunk, stride);
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kTwo) _tile_loadd(7, next + c * chunk, stride);
  if constexpr (kTwo) _tile_dpbf16ps(1, 4, 7);
}

// Where the sums of 16 rows of weights go: of row r and of row b of activations to
// data[b * stride + r * apart].
struct RowSums {
  float* data;
  int64_t stride, apart;
};

// Sums of up to 16 tiles that follow each other, and their places in the same order.
class KeptSums {
 public:
  // Of groups of so many rows of activations.
  KeptSums(int64_t count, const PairedRows& x)
      : count_(count), width_(x.width()), groups_(x.groups()), kept_(groups_) {}

  // The tiles' sums, of one group or two, of tile i.
  template <bool kTwo>
  void take(int64_t group, int64_t i) {
    _tile_stored(0, kept_.data()[group].at[i].row, 64);
    if constexpr (kTwo) _tile_stored(1, kept_.data()[group + 1].at[i].row, 64);
  }

  // Of n tiles, the first `rows` rows of each.
  void store(const RowSums& y, int64_t n, int64_t rows) const {
    auto mask = static_cast<__mmask16>((1U << n) - 1);
    for (int64_t g = 0; g < groups_; ++g)
      for (int64_t r = 0; r < rows; ++r) {
        __m512i v[kTile];
        for (int64_t i = 0; i < kTile; ++i) v[i] = _mm512_load_si512(kept_.data()[g].at[i].row[r]);
        pairs::transpose(v);
        int64_t first = g * width_;
        for (int64_t b = 0; b < std::min(width_, count_ - first); ++b)
          _mm512_mask_storeu_epi32(y.data + (first + b) * y.stride + r * y.apart, mask, v[b]);
      }
  }

 private:
  struct alignas(64) Tile {
    float row[kTile][kTile];
  };
  struct Kept {
    Tile at[kTile];
  };
  int64_t count_, width_, groups_;
  Room<Kept> kept_;
};

template <bool kTwo>
void multiply_groups(const WeightTiles& w, const PairedRows& x, int64_t g, int64_t i,
                     KeptSums& sums) {
  _tile_zero(0);
  if constexpr (kTwo) _tile_zero(1);
  add_chunks<kTwo>(w, x.group(g), kTwo ? x.group(g + 1) : nullptr, x.chunks(), x.width());
  sums.take<kTwo>(g, i);
}

void multiply_tiles(const WeightTiles& w, const PairedRows& x, int64_t i, KeptSums& sums) {
  int64_t g = 0;
  for (; g + 2 <= x.groups(); g += 2) multiply_groups<true>(w, x, g, i, sums);
  if (g < x.groups()) multiply_groups<false>(w, x, g, i, sums);
}

}  // namespace

void multiply_by_tiles(const WeightMatrix& w, int64_t from, int64_t to, const FloatRows& x,
                       const FloatRows& y) {
  if (w.type == WeightType::kFloat || x.count == 0)
    return kAvx512RowKernels.multiply(w, from, to, x, y);
  if (w.packed && x.count <= kTile && from % kTile == 0 && to % kTile == 0)
    return multiply_packed_by_tiles(w, from, to, x, y);
  PairedRows pairs(x, w.columns);
  Tiles tiles(shapes_for(pairs.width()));
  KeptSums sums(x.count, pairs);
  const auto* data = static_cast<const uint16_t*>(w.data) + from * w.columns;
  // The rows of a tile are of 16 places that lie far apart: processors fetch more of the memory
  // where they read it in several places (Emerald Rapids, one core: 20 GB/s; 15 of rows that follow
  // each other).
  int64_t part = w.columns % kColumns == 0 ? (to - from) / kTile : 0;
  for (int64_t i = 0; i < part; i += kTile) {
    int64_t n = std::min(kTile, part - i);
    for (int64_t j = i; j < i + n; ++j)
      multiply_tiles({reinterpret_cast<const char*>(data + j * w.columns), 2 * part * w.columns},
                     pairs, j - i, sums);
    sums.store({y.data + from + i, y.stride, part}, n, kTile);
  }
  // What fills no tile is copied, with zeros behind it.
  if (kTile * part == to - from) return;
  int64_t columns = pairs.chunks() * kColumns;
  Room<uint16_t> room(kTile * columns);
  for (int64_t i = kTile * part; i < to - from; i += kTile) {
    int64_t rows = std::min(kTile, to - from - i);
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(room.data() + r * columns, data + (i + r) * w.columns,
                  static_cast<size_t>(2 * w.columns));
    multiply_tiles({reinterpret_cast<const char*>(room.data()), 2 * columns}, pairs, 0, sums);
    sums.store({y.data + from + i, y.stride, 1}, 1, rows);
  }
}

}  // namespace neox
