// Products of a few rows of activations with packed weights (ops/packed_weights.h), row by row: a
// tile is 128 columns of one row, numbered through the rows of a group, and sums have the bits of
// those with weights in 16 bits. For more rows of activations the memory is not what is waited for.
// Included behind row_kernels_body.h and what row_packing_body.h asks for.
#include <utility>

#include "ops/row_packing_body.h"

namespace neox {
namespace {

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
  [[gnu::always_inline]] void unpack(const Unpacking& how, Numbers& to) {
    ask_ahead(codes_, 1024);
    how.unit(codes_, to);
    codes_ += kUnitBytes;
    if (rare_->tile == tile_) [[unlikely]]
      set_rare(to);
    ++tile_;
  }

 private:
  [[gnu::noinline]] void set_rare(Numbers& to) {
    uint16_t numbers[kUnit];
    std::memcpy(numbers, &to, sizeof numbers);
    for (; rare_->tile == tile_; ++rare_) numbers[rare_->place] = rare_->value;
    std::memcpy(&to, numbers, sizeof numbers);
  }

  const uint8_t* codes_;
  const RareWeight* rare_;
  uint32_t tile_;
};

// y of R rows of weights, `apart` from row to row, and B of activations. Order: as of OrderedRows,
// with add(), which adds the products of the columns of one vector.
template <int R, int B, class Order>
inline void multiply_places(const WeightMatrix& w, int64_t row, int64_t apart, const Unpacking& how,
                            const typename Order::Element* x, const FloatRows& y) {
  auto places = [&]<int... kR>(std::integer_sequence<int, kR...>) {
    RowPlace at[] = {RowPlace(*w.packed, w.columns, row + kR * apart)...};
    Floats s[R][B] = {};
    for (int64_t k = 0; k < w.columns; k += kUnit)
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        Numbers numbers;
        at[r].unpack(how, numbers);
#pragma GCC unroll 8
        for (int64_t u = 0; u < kUnit; u += Order::kColumns)
          Order::template add<B>(numbers[u / Order::kColumns], x + (k + u) * B, s[r]);
      }
    for (int r = 0; r < R; ++r)
      for (int b = 0; b < B; ++b) y.data[b * y.stride + row + r * apart] = sum(s[r][b]);
  };
  places(std::make_integer_sequence<int, R>());
}

// Of R parts of the rows at once.
template <int R, int B, class Order>
inline void multiply_packed_rows(const WeightMatrix& w, int64_t from, int64_t to,
                                 const FloatRows& x, const FloatRows& y) {
  OrderedRows<Order> ordered(x, w.columns);
  Unpacking how(*w.packed);
  int64_t part = (to - from) / R;
  for (int64_t i = 0; i < part; ++i)
    multiply_places<R, B, Order>(w, from + i, part, how, ordered.rows(0), y);
  for (int64_t row = from + R * part; row < to; ++row)
    multiply_places<1, B, Order>(w, row, 1, how, ordered.rows(0), y);
}

// Sums in float, of weights in float.
struct AddFloats : InParts<uint16_t> {
  template <int B>
  [[gnu::always_inline]] static void add(Words numbers, const float* x, Floats (&s)[B]) {
    auto pairs = reinterpret_cast<Ints>(numbers);
    auto even = reinterpret_cast<Floats>(pairs << 16),
         odd = reinterpret_cast<Floats>(pairs & static_cast<int32_t>(0xFFFF0000));
    for (int b = 0; b < B; ++b) s[b] += even * load(x + b * kLanes);
    for (int b = 0; b < B; ++b) s[b] += odd * load(x + (B + b) * kLanes);
  }
};

// As multiply() of the body, of R places where weights are packed.
template <int R>
void multiply_packed_floats(const WeightMatrix& w, int64_t from, int64_t to, const FloatRows& x,
                            const FloatRows& y) {
  if (!w.packed || x.count == 0 || x.count > 2) return multiply(w, from, to, x, y);
  (x.count == 1 ? multiply_packed_rows<R, 1, AddFloats>
                : multiply_packed_rows<R, 2, AddFloats>)(w, from, to, x, y);
}

template <int R>
constexpr RowKernels with_packed_floats(RowKernels kernels) {
  kernels.multiply = multiply_packed_floats<R>;
  kernels.packed_columns = kUnit;
  kernels.count_rare = count_rare;
  kernels.pack = pack_rows;
  return kernels;
}

}  // namespace
}  // namespace neox
