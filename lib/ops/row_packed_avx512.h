// Products of one or two rows of activations with packed weights (ops/packed_weights.h), row by row
// in AVX-512: a tile is 128 columns of one row, numbered through the rows of a group, and sums have
// the bits of those with weights in 16 bits. For more rows of activations, unpacking is not what
// the memory is waited for any more. Included behind row_kernels_body.h.
#pragma once
#include "ops/row_packing_avx512.h"

namespace neox {
namespace {

bool pack_rows(const PackedGroup& group) {
  Codes codes(group.code_of);
  RareOnes rare(group);
  const uint16_t* from = group.rows;
  auto tiles = static_cast<uint32_t>(kPackedRows * group.columns / kUnit);
  for (uint32_t tile = 0; tile < tiles; ++tile, from += kUnit) {
    __m512i numbers[4];
    for (int i = 0; i < 4; ++i) numbers[i] = _mm512_loadu_si512(from + 32 * i);
    if (!pack_unit(numbers, codes, tile, 0, group.codes + tile * kUnitBytes, rare)) return false;
  }
  rare.end();
  return true;
}

// Where a row is read.
class RowPlace {
 public:
  RowPlace(const PackedWeights& w, int64_t columns, int64_t row)
      : rare_(w.rare(row / kPackedRows)),
        tile_(static_cast<uint32_t>(row % kPackedRows * columns / kUnit)) {
    codes_ = w.codes(row / kPackedRows) + tile_ * kUnitBytes;
    while (rare_->tile < tile_) ++rare_;
  }
  // The next 128 numbers.
  [[gnu::always_inline]] void unpack(const Unpacking& how, __m512i (&to)[4]) {
    ask_ahead(codes_, 1024);
    how.unit(codes_, to);
    codes_ += kUnitBytes;
    if (rare_->tile == tile_) [[unlikely]]
      set_rare(to);
    ++tile_;
  }

 private:
  [[gnu::noinline]] void set_rare(__m512i (&to)[4]) {
    uint16_t numbers[kUnit];
    std::memcpy(numbers, to, sizeof numbers);
    for (; rare_->tile == tile_; ++rare_) numbers[rare_->place] = rare_->value;
    std::memcpy(to, numbers, sizeof numbers);
  }

  const uint8_t* codes_;
  const RareWeight* rare_;
  uint32_t tile_;
};

// y of R rows of weights, `apart` from row to row, and B of activations. Order: as of OrderedRows,
// with add(), which adds the products of 32 columns.
template <int R, int B, class Order>
inline void multiply_places(const WeightMatrix& w, int64_t row, int64_t apart, const Unpacking& how,
                            const typename Order::Element* x, const FloatRows& y) {
  auto places = [&]<int... kR>(std::integer_sequence<int, kR...>) {
    RowPlace at[] = {RowPlace(*w.packed, w.columns, row + kR * apart)...};
    Floats s[R][B] = {};
    for (int64_t k = 0; k < w.columns; k += kUnit)
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        __m512i numbers[4];
        at[r].unpack(how, numbers);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) Order::template add<B>(numbers[i], x + (k + 32 * i) * B, s[r]);
      }
    for (int r = 0; r < R; ++r)
      for (int b = 0; b < B; ++b) y.data[b * y.stride + row + r * apart] = sum(s[r][b]);
  };
  places(std::make_integer_sequence<int, R>());
}

template <int B, class Order>
inline void multiply_packed_rows(const WeightMatrix& w, int64_t from, int64_t to,
                                 const FloatRows& x, const FloatRows& y) {
  constexpr int R = kPlaces;
  OrderedRows<Order> ordered(x, w.columns);
  Unpacking how(*w.packed);
  int64_t part = (to - from) / R;
  for (int64_t i = 0; i < part; ++i)
    multiply_places<R, B, Order>(w, from + i, part, how, ordered.rows(0), y);
  for (int64_t row = from + R * part; row < to; ++row)
    multiply_places<1, B, Order>(w, row, 1, how, ordered.rows(0), y);
}

// False: they are to be multiplied as they are.
template <class Order>
inline bool multiplied_packed(const WeightMatrix& w, int64_t from, int64_t to, const FloatRows& x,
                              const FloatRows& y) {
  if (!w.packed || x.count < 1 || x.count > 2) return false;
  (x.count == 1 ? multiply_packed_rows<1, Order> : multiply_packed_rows<2, Order>)(w, from, to, x,
                                                                                   y);
  return true;
}

}  // namespace
}  // namespace neox
