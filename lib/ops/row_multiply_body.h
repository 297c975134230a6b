// Products of RowKernels, and what all of its functions use: the first part of row_kernels_body.h.
#include <cstdlib>
#include <cstring>

#include "ops/row_kernels.h"

namespace neox {
namespace {

typedef int32_t Ints __attribute__((vector_size(4 * kLanes)));

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline Floats all(float x) { return Floats{} + x; }
inline Floats greater(Floats a, Floats b) { return a > b ? a : b; }
inline Floats smaller(Floats a, Floats b) { return a < b ? a : b; }
inline void store(float* p, Floats v) { std::memcpy(p, &v, sizeof v); }

// The first n <= kLanes elements, then zeros.
template <class T>
inline Floats load_some(const T* p, int64_t n) {
  if (n >= kLanes) return load(p);
  T some[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) some[i] = p[i];
  return load(some);
}
inline void store_some(float* p, Floats v, int64_t n) {
  if (n >= kLanes) return store(p, v);
  for (int64_t i = 0; i < n; ++i) p[i] = v[i];
}

// Up to so many rows of activations are multiplied together, of those that are left.
constexpr int64_t together(int64_t left) {
  return left >= 8 && kRegisters >= 32 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

// Rows of weights that are multiplied with B rows of activations at once: as many as leave the sums
// in registers, or where the memory is what they wait for, fewer.
template <int B, int G>
constexpr int weight_rows() {
  return kRegisters >= 32 ? (B == 8 ? 3 : 4) : B < 4 ? 4 : G == 1 ? 2 : 3;
}

constexpr int64_t kDistance = 8192;  // bytes behind what is read that the memory is asked for

// Where the memory is asked for what comes later: a line for each line that is used.
struct Ahead {
  const char* at;
  int64_t step;
  inline void next(const void*) {
    __builtin_prefetch(at, 0, 2);
    at += step;
  }
};

// A little behind each line that is used. kHint: that of __builtin_prefetch.
template <int kHint>
struct AheadOfEach {
  inline void next(const void* used) {
    __builtin_prefetch(static_cast<const char*>(used) + 1024, 0, kHint);
  }
};

// Vectors of floats that are loaded together: of bf16, neighbours share 32 bits, so the even ones
// of 2 kLanes columns are one vector and the odd ones another.
template <class T>
constexpr int64_t kParts = sizeof(float) / sizeof(T);

template <int>
inline Floats load_part(const float* p) {
  return load(p);
}
template <int kOdd>
inline Floats load_part(const uint16_t* p) {
  Ints pairs;
  std::memcpy(&pairs, p, sizeof pairs);
  return reinterpret_cast<Floats>(kOdd ? pairs & static_cast<int32_t>(0xFFFF0000) : pairs << 16);
}

// sums[r][b] += the products of n columns. x: as OrderedRows has them.
template <int R, int B, class T, class Asked>
inline __attribute__((always_inline)) void tile(const T* w, int64_t columns, int64_t n,
                                                const float* x, Floats* sums, Asked& ahead) {
  constexpr int64_t kLine = 64 / sizeof(T), P = kParts<T>, kWide = P * kLanes;
  Floats s[R][B];
  for (int r = 0; r < R; ++r)
    for (int b = 0; b < B; ++b) s[r][b] = sums[r * B + b];
  auto add_part = [&]<int kPart>(const T* from, int64_t stride, int64_t u) {
    Floats wide[R];
    for (int r = 0; r < R; ++r) wide[r] = load_part<kPart>(from + r * stride);
    for (int b = 0; b < B; ++b) {
      Floats v = load(x + u * B + (kPart * B + b) * kLanes);
      if (R > 1) keep(v);
      for (int r = 0; r < R; ++r) s[r][b] += wide[r] * v;
    }
  };
  auto add = [&](const T* from, int64_t stride, int64_t u) {
    add_part.template operator()<0>(from, stride, u);
    if constexpr (P == 2) add_part.template operator()<1>(from, stride, u);
  };
  int64_t k = 0;
  for (; k + kLine <= n; k += kLine) {
    for (int r = 0; r < R; ++r) ahead.next(w + r * columns + k);
#pragma GCC unroll 16
    for (int64_t u = k; u < k + kLine; u += kWide) add(w + u, columns, u);
  }
  for (; k < n; k += kWide) {
    T some[R * kWide] = {};
    for (int r = 0; r < R; ++r)
      for (int64_t i = 0; i < least(kWide, n - k); ++i)
        some[r * kWide + i] = w[r * columns + k + i];
    add(some, kWide, k);
  }
  for (int r = 0; r < R; ++r)
    for (int b = 0; b < B; ++b) sums[r * B + b] = s[r][b];
}

// sum() of each.
template <int kCount>
inline void add_lanes(const Floats (&v)[kCount], float* to) {
  int i = 0;
  if constexpr (kCount % kLanes == 0)
    for (; i < kCount; i += kLanes) {
      Floats some[kLanes];
      for (int j = 0; j < kLanes; ++j) some[j] = v[i + j];
      store(to + i, sums(some));
    }
  for (; i < kCount; ++i) to[i] = sum(v[i]);
}

constexpr int64_t kPanel = 12;  // rows of weights, a multiple of all weight_rows()

// Rows of weights, each `step` behind the one before.
struct PanelRows {
  int64_t count, step, columns;
};

// y of up to kMost rows of weights and G times B rows of activations, `apart` numbers of x from B
// to B, whose columns are taken in pieces that stay in the innermost cache.
template <int B, int G, int kMost, class T, class Asked>
inline void panel(const T* w, const PanelRows& of, const float* x, int64_t apart,
                  const FloatRows& y, Asked& ahead) {
  constexpr int R = weight_rows<B, G>();
  constexpr int64_t kPiece = B == 1 ? int64_t{1} << 40 : 4096 / (B * G);
  Floats totals[G][kMost * B] = {};
  for (int64_t k = 0; k < of.columns; k += kPiece) {
    int64_t n = least(kPiece, of.columns - k), r = 0, stride = of.step * of.columns;
    auto add = [&]<int kRows>() {
      for (int g = 0; g < G; ++g)
        tile<kRows, B>(w + r * stride + k, stride, n, x + g * apart + k * B, totals[g] + r * B,
                       ahead);
      r += kRows;
    };
    while (r + R <= of.count) add.template operator()<R>();
    while (r < of.count) add.template operator()<1>();
  }
  for (int g = 0; g < G; ++g) {
    float flat[kMost * B];
    add_lanes(totals[g], flat);
    for (int64_t r = 0; r < of.count; ++r)
      for (int b = 0; b < B; ++b) y.data[(g * B + b) * y.stride + r * of.step] = flat[r * B + b];
  }
}

// Rows of activations as a product reads them, zeros up to whole blocks of Order::kColumns. Of rows
// that are multiplied together the vectors of the same columns lie side by side. Order::put writes
// the vectors, Order::kVector elements each and `apart`, of a block's first n numbers.
template <class Order>
class OrderedRows {
  using Element = typename Order::Element;
  static constexpr int64_t kStep = Order::kColumns > kRowMultiple ? Order::kColumns : kRowMultiple;

 public:
  OrderedRows(const FloatRows& x, int64_t columns)
      : stride_((columns + kStep - 1) / kStep * kStep),
        data_(static_cast<Element*>(
            std::aligned_alloc(64, static_cast<size_t>(x.count * stride_) * sizeof(Element)))) {
    for (int64_t b = 0, rows; b < x.count; b += rows) {
      rows = together(x.count - b);
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t k = 0; k < stride_; k += Order::kColumns)
          Order::put(x.data + (b + i) * x.stride + k, columns - k,
                     data_ + b * stride_ + k * rows + i * Order::kVector, rows * Order::kVector);
    }
  }
  ~OrderedRows() { std::free(data_); }
  OrderedRows(const OrderedRows&) = delete;
  OrderedRows& operator=(const OrderedRows&) = delete;
  // Of row b, the first of some that are multiplied together, and of the others.
  const Element* rows(int64_t b) const { return data_ + b * stride_; }

 private:
  int64_t stride_;
  Element* data_;
};

// In the order of the parts of weights.
template <class T>
struct InParts {
  using Element = float;
  static constexpr int64_t kVector = kLanes, kColumns = kParts<T> * kLanes;
  static void put(const float* from, int64_t n, float* to, int64_t apart) {
    if constexpr (kParts<T> == 1) return store(to, load_some(from, n));
    Floats low = load_some(from, n),
           high = n > kLanes ? load_some(from + kLanes, n - kLanes) : Floats{};
    Ints even{}, odd{};
    for (int i = 0; i < kLanes; ++i) even[i] = 2 * i, odd[i] = 2 * i + 1;
    store(to, __builtin_shuffle(low, high, even));
    store(to + apart, __builtin_shuffle(low, high, odd));
  }
};

// Few rows of activations wait for the memory, which Intel's processors read faster in several
// places at once (Emerald Rapids, one core: 13 GB/s of one place, 18 to 20 of eight): each is a
// part of the rows of weights.
template <class T>
inline void multiply_one(const T* w, int64_t columns, int64_t rows, const float* x, float* y) {
  AheadOfEach<3> ahead;
  auto add = [&]<int kRows>(int64_t first, int64_t apart) {
    Floats sums[kRows] = {};
    tile<kRows, 1>(w + first * columns, apart * columns, columns, x, sums, ahead);
    for (int r = 0; r < kRows; ++r) y[first + r * apart] = sum(sums[r]);
  };
  int64_t part = rows / kPlaces;
  for (int64_t i = 0; i < part; ++i) add.template operator()<kPlaces>(i, part);
  for (int64_t i = kPlaces * part; i < rows; ++i) add.template operator()<1>(i, 1);
}

// The panel whose first row of weights is row n.
template <int kMost, class T, class Asked>
inline void multiply_panel(const T* w, const PanelRows& of, int64_t n, int64_t activations,
                           const OrderedRows<InParts<T>>& ordered, const FloatRows& y,
                           Asked& ahead) {
  for (int64_t b = 0; b < activations;) {
    int64_t count = together(activations - b);
    bool two = count == 4 && together(activations - b - count) == count;
    auto of_panel = count == 8   ? panel<8, 1, kMost, T, Asked>
                    : two        ? panel<4, 2, kMost, T, Asked>
                    : count == 4 ? panel<4, 1, kMost, T, Asked>
                    : count == 2 ? panel<2, 1, kMost, T, Asked>
                                 : panel<1, 1, kMost, T, Asked>;
    of_panel(w + n * of.columns, of, ordered.rows(b), ordered.rows(count) - ordered.rows(0),
             {y.data + b * y.stride + n, count, y.stride}, ahead);
    b += two ? 2 * count : count;
  }
}

template <class T>
inline void multiply_rows(const T* w, const WeightMatrix& m, int64_t from, int64_t to,
                          const FloatRows& x, const FloatRows& y) {
  if (x.count == 0) return;
  OrderedRows<InParts<T>> ordered(x, m.columns);
  if (x.count == 1 && kPlaces > 1)
    return multiply_one(w + from * m.columns, m.columns, to - from, ordered.rows(0), y.data + from);
  int64_t at_once = x.count == 1 ? weight_rows<1, 1>() : kPanel, passes = 0, n = from;
  for (int64_t b = 0; b < x.count; b += together(x.count - b)) ++passes;
  if (kPlaces > 1 && passes == 1) {
    AheadOfEach<2> ahead;
    auto apart = [&]<int kRows>() {
      int64_t part = (to - from) / kRows;
      for (; n < from + part; ++n)
        multiply_panel<kRows>(w, {kRows, part, m.columns}, n, x.count, ordered, y, ahead);
      n = from + part * kRows;
    };
    x.count == 8 ? apart.template operator()<6>() : apart.template operator()<8>();
  }
  for (; n < to; n += at_once) {
    int64_t rows = least(at_once, to - n);
    // What comes behind this panel is asked for over all passes, so that the memory never rests.
    Ahead ahead{reinterpret_cast<const char*>(w + (n + rows) * m.columns) + kDistance, 64 / passes};
    multiply_panel<kPanel>(w, {rows, 1, m.columns}, n, x.count, ordered, y, ahead);
  }
}

void multiply(const WeightMatrix& w, int64_t from, int64_t to, const FloatRows& x,
              const FloatRows& y) {
  if (w.type == WeightType::kFloat)
    multiply_rows(static_cast<const float*>(w.data), w, from, to, x, y);
  else
    multiply_rows(static_cast<const uint16_t*>(w.data), w, from, to, x, y);
}

}  // namespace
}  // namespace neox
