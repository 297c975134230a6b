// Packed weights (ops/packed_weights.h) for the tiles of AMX: each tile is unpacked where the
// innermost cache holds it, and multiplied while the next one is.
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "ops/amx_tiles.h"
#include "ops/bf16_pack.h"
#include "ops/row_kernels_amx.h"
#include "ops/row_packing_avx512.h"
#include "ops/row_packing_body.h"

namespace neox {
namespace {

constexpr int64_t kTile = kPackedRows, kColumns = 32;
constexpr int64_t kUnits = 4;  // of a tile: 16 pairs of columns, of each the 16 rows

// Where a group of rows is read.
struct Place {
  const uint8_t* codes;
  const RareWeight* rare;

  // The next tile, of this number. What lies behind it is asked for, as far as the next group's.
  [[gnu::always_inline]] void unpack(uint32_t tile, const Unpacking& how, uint16_t* to) {
#pragma GCC unroll 4
    for (int64_t u = 0; u < kUnits; ++u) {
      ask_ahead(codes + u * kUnitBytes, 1024);
      Numbers numbers;
      how.unit(codes + u * kUnitBytes, numbers);
      for (int i = 0; i < 4; ++i) _mm512_store_si512(to + u * kUnit + 32 * i, raw(numbers[i]));
    }
    codes += kUnits * kUnitBytes;
    for (; rare->tile == tile; ++rare) to[rare->place] = rare->value;
  }
  // The first tile, which was unpacked from here.
  void skip_first() {
    codes += kUnits * kUnitBytes;
    while (rare->tile == 0) ++rare;
  }
};

// Up to 16 rows of activations in bf16 as tiles take them: [columns / 32][rows][32].
class Bf16Rows {
 public:
  Bf16Rows(const FloatRows& x, int64_t columns)
      : count_(x.count), chunks_(columns / kColumns), data_(chunks_ * count_ * kColumns) {
    for (int64_t b = 0; b < count_; ++b)
      for (int64_t c = 0; c < chunks_; ++c) {
        const float* from = x.data + b * x.stride + c * kColumns;
        __m512bh pairs = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + 16), _mm512_loadu_ps(from));
        _mm512_store_si512(data_.data() + (c * count_ + b) * kColumns,
                           reinterpret_cast<__m512i>(pairs));
      }
  }
  int64_t chunks() const { return chunks_; }
  const uint16_t* chunk(int64_t c) const { return data_.data() + c * count_ * kColumns; }

 private:
  int64_t count_, chunks_;
  Room<uint16_t> data_;
};

constexpr int64_t kPlaces = 4;  // that are read at once, as in row_multiply_amx.cc

// 0 to 3 are sums [activations' rows, weights' rows], of a place each; 4 and 5 weights, 6
// activations.
TileShapes shapes_for(int64_t activations) {
  TileShapes shapes;
  for (int tile : {0, 1, 2, 3, 6}) shapes.rows[tile] = static_cast<uint8_t>(activations);
  return shapes;
}

// Tiles of weights in 16 bits.
struct alignas(64) Unpacked {
  uint16_t at[kPlaces][kTile * kColumns];
};

// To the tiles' sums: a group of rows of each place. Of place 0 its first tile is unpacked already,
// and in the end that of `next` is.
void add_groups(Place (&places)[kPlaces], Place next, const Bf16Rows& x, const Unpacking& how,
                Unpacked& numbers) {
  auto chunks = static_cast<uint32_t>(x.chunks());
  for (uint32_t c = 0; c < chunks; ++c) {
    _tile_loadd(6, x.chunk(c), 64);
    places[1].unpack(c, how, numbers.at[1]);
    _tile_loadd(4, numbers.at[0], 64);
    _tile_dpbf16ps(0, 6, 4);
    places[2].unpack(c, how, numbers.at[2]);
    _tile_loadd(5, numbers.at[1], 64);
    _tile_dpbf16ps(1, 6, 5);
    places[3].unpack(c, how, numbers.at[3]);
    _tile_loadd(4, numbers.at[2], 64);
    _tile_dpbf16ps(2, 6, 4);
    bool last = c + 1 == chunks;
    if (last) places[0] = next;
    places[0].unpack(last ? 0 : c + 1, how, numbers.at[0]);
    _tile_loadd(5, numbers.at[3], 64);
    _tile_dpbf16ps(3, 6, 5);
  }
}

// Groups of rows, a quarter of them to each place.
class Quarters {
 public:
  Quarters(const PackedWeights& w, int64_t from, int64_t to)
      : w_(w),
        first_(from / kTile),
        count_((to - from) / kTile),
        part_((count_ + kPlaces - 1) / kPlaces) {}
  int64_t size() const { return part_; }
  // The i-th of a place; beyond the last one, that.
  int64_t group(int64_t place, int64_t i) const {
    return first_ + std::min(std::min(i, part_ - 1) + place * part_, count_ - 1);
  }
  Place at(int64_t place, int64_t i) const {
    __builtin_prefetch(w_.places + group(place, i) + 8, 0, 3);
    return {w_.codes(group(place, i)), w_.rare(group(place, i))};
  }

 private:
  const PackedWeights& w_;
  int64_t first_, count_, part_;
};

// The sums of the i-th groups and y.count rows of activations.
void store_sums(const Quarters& quarters, int64_t i, const FloatRows& y) {
  alignas(64) float sums[kPlaces][kTile][kTile];
  _tile_stored(0, sums[0], 64);
  _tile_stored(1, sums[1], 64);
  _tile_stored(2, sums[2], 64);
  _tile_stored(3, sums[3], 64);
  for (int64_t b = 0; b < y.count; ++b)
    for (int64_t p = 0; p < kPlaces; ++p)
      std::memcpy(y.data + b * y.stride + quarters.group(p, i) * kTile, sums[p][b],
                  sizeof sums[p][b]);
}

}  // namespace

void pack_for_tiles(const PackedGroup& group) {
  Packer packer(group);
  auto chunks = static_cast<uint32_t>(group.columns / kColumns);
  for (uint32_t c = 0; c < chunks; ++c) {
    __m512i rows[kTile];
    for (int64_t r = 0; r < kTile; ++r)
      rows[r] = _mm512_loadu_si512(group.rows + r * group.columns + c * kColumns);
    pairs::transpose(rows);
    for (int u = 0; u < kUnits; ++u) {
      Numbers numbers;
      std::memcpy(&numbers, rows + 4 * u, sizeof numbers);
      packer.add(numbers, c, u * static_cast<int>(kUnit));
    }
  }
  packer.end();
}

void multiply_packed_by_tiles(const WeightMatrix& w, int64_t from, int64_t to, const FloatRows& x,
                              const FloatRows& y) {
  if (from == to) return;
  Bf16Rows rows(x, w.columns);
  Tiles tiles(shapes_for(x.count));
  Unpacking how(*w.packed);
  Quarters quarters(*w.packed, from, to);
  Unpacked numbers;
  quarters.at(0, 0).unpack(0, how, numbers.at[0]);
  for (int64_t i = 0; i < quarters.size(); ++i) {
    Place places[kPlaces];
    for (int64_t p = 0; p < kPlaces; ++p) places[p] = quarters.at(p, i);
    places[0].skip_first();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    add_groups(places, quarters.at(0, i + 1), rows, how, numbers);
    store_sums(quarters, i, {y.data, x.count, y.stride});
  }
}

}  // namespace neox
