// Sixteen elements at a time, for CPU kernels: loops over rows that compilers do not vectorise
// themselves, because they hold sums, exponentials or conversions. Types of 16 bits are computed in
// float. All is inlined into functions with NEOX_CLONES, whose clone for this CPU
// is chosen when the program is loaded.
#pragma once
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ops/element.h"

namespace neox::lanes {

inline constexpr int64_t kLanes = 16;

template <class W>
struct LanesOf {
  typedef W type __attribute__((vector_size(kLanes * sizeof(W))));
};
template <class W>
using Lanes = typename LanesOf<W>::type;

// What elements of type T are computed in.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Floats are compared by their bits, as integers: GCC finds the instructions of vectors for least
// integers alone where a vector is wider than the registers, and compares floats one by one.
template <class I>
[[gnu::always_inline]] inline I least(I a, I b) {
  return a < b ? a : b;
}

// All ones where x is NaN.
[[gnu::always_inline]] inline Lanes<uint32_t> nan_mask(Lanes<float> x) {
  Lanes<uint32_t> bits = std::bit_cast<Lanes<uint32_t>>(x) << 1,  // without the sign
      beyond = bits - least(bits, Lanes<uint32_t>{} + 0xFF000000U);
  return std::bit_cast<Lanes<uint32_t>>(std::bit_cast<Lanes<int32_t>>(-beyond) >> 31);
}

// x within [low, high], low < 0 < high; any number where x is NaN.
[[gnu::always_inline]] inline Lanes<float> within(float low, Lanes<float> x, float high) {
  // Of negative numbers the lower one has the greater bits, and all have greater ones than others.
  auto above =
      least(std::bit_cast<Lanes<uint32_t>>(x), Lanes<uint32_t>{} + std::bit_cast<uint32_t>(low));
  return std::bit_cast<Lanes<float>>(
      least(std::bit_cast<Lanes<int32_t>>(above), Lanes<int32_t>{} + std::bit_cast<int32_t>(high)));
}

// y, and NaN where x is.
[[gnu::always_inline]] inline Lanes<float> with_nan_of(Lanes<float> x, Lanes<float> y) {
  return std::bit_cast<Lanes<float>>(std::bit_cast<Lanes<uint32_t>>(y) | nan_mask(x));
}

template <class T>
[[gnu::always_inline]] inline Lanes<Wide<T>> load(const T* from) {
  if constexpr (std::is_same_v<T, Wide<T>>) {
    Lanes<T> x;
    std::memcpy(&x, from, sizeof x);
    return x;
  } else if constexpr (std::is_same_v<T, c10::BFloat16>) {
    Lanes<uint16_t> bits;
    std::memcpy(&bits, from, sizeof bits);
    return std::bit_cast<Lanes<float>>(__builtin_convertvector(bits, Lanes<uint32_t>) << 16);
  } else {
    Lanes<float> x;
    for (int64_t i = 0; i < kLanes; ++i) x[i] = static_cast<float>(from[i]);
    return x;
  }
}

// Rounds to the nearest, ties to even.
template <class T>
[[gnu::always_inline]] inline void store(T* to, Lanes<Wide<T>> x) {
  if constexpr (std::is_same_v<T, Wide<T>>) {
    std::memcpy(to, &x, sizeof x);
  } else if constexpr (std::is_same_v<T, c10::BFloat16>) {
    auto bits = std::bit_cast<Lanes<uint32_t>>(x);
    Lanes<uint32_t> rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    Lanes<uint32_t> none = nan_mask(x);
    rounded = (rounded & ~none) | (none & 0x7FC0);
    auto half = __builtin_convertvector(rounded, Lanes<uint16_t>);
    std::memcpy(to, &half, sizeof half);
  } else {
    for (int64_t i = 0; i < kLanes; ++i) to[i] = static_cast<T>(x[i]);
  }
}

// What is left of x in a T.
template <class T>
[[gnu::always_inline]] inline Lanes<Wide<T>> rounded(Lanes<Wide<T>> x) {
  if constexpr (std::is_same_v<T, Wide<T>>) return x;
  T narrow[kLanes];
  store(narrow, x);
  return load(narrow);
}

// How many lanes of a step count: all of them, or the last ones of a row.
struct All {};
struct First {
  int64_t n;
};

template <class T>
[[gnu::always_inline]] inline Lanes<Wide<T>> load(const T* from, All) {
  return load(from);
}

// The other lanes are `rest`.
template <class T>
[[gnu::always_inline]] inline Lanes<Wide<T>> load(const T* from, First first, Wide<T> rest = 0) {
  Lanes<Wide<T>> x = Lanes<Wide<T>>{} + rest;
  for (int64_t i = 0; i < first.n; ++i) x[i] = static_cast<Wide<T>>(from[i]);
  return x;
}

template <class T>
[[gnu::always_inline]] inline void store(T* to, Lanes<Wide<T>> x, All) {
  store(to, x);
}

template <class T>
[[gnu::always_inline]] inline void store(T* to, Lanes<Wide<T>> x, First first) {
  for (int64_t i = 0; i < first.n; ++i) to[i] = static_cast<T>(x[i]);
}

// The lanes that count; the others 0.
template <class V>
[[gnu::always_inline]] inline V only(V x, All) {
  return x;
}

template <class V>
[[gnu::always_inline]] inline V only(V x, First first) {
  for (int64_t i = first.n; i < kLanes; ++i) x[i] = 0;
  return x;
}

// step(i, All or First) for the elements 0 .. n - 1, kLanes at a time. Steps are lambdas with the
// attribute always_inline.
template <class Step>
[[gnu::always_inline]] inline void for_lanes(int64_t n, const Step& step) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) step(i, All{});
  if (i < n) step(i, First{n - i});
}

// to += x, element by element.
template <class W, class Part>
[[gnu::always_inline]] inline void add_to(W* to, Lanes<W> x, Part part) {
  store(to, load(to, part) + x, part);
}

// In a fixed order.
template <class W>
[[gnu::always_inline]] inline W sum(const Lanes<W>& x) {
  W parts[kLanes];
  std::memcpy(parts, &x, sizeof parts);
  for (int64_t width = kLanes / 2; width > 0; width /= 2)
    for (int64_t i = 0; i < width; ++i) parts[i] += parts[i + width];
  return parts[0];
}

// e^x within 1.2e-7 of itself (Cephes' expf); 0 below -87.7, the largest value above 88.3.
[[gnu::always_inline]] inline Lanes<float> exp_of(Lanes<float> given) {
  constexpr float kLowest = -88.0f, kHighest = 88.3f, kRound = 12582912.0f;
  Lanes<float> x = within(kLowest, given, kHighest);
  Lanes<float> n = (x * 1.44269504089f + kRound) - kRound;
  Lanes<float> r = x - n * 0.693359375f + n * 2.12194440e-4f;
  Lanes<float> y = r * 1.9875691500e-4f + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * r * r + r + 1.0f;
  auto exponent = (__builtin_convertvector(n, Lanes<int32_t>) + 127) << 23;  // 0 of 2^-127
  return with_nan_of(given, y * std::bit_cast<Lanes<float>>(exponent));
}

[[gnu::always_inline]] inline Lanes<double> exp_of(Lanes<double> x) {
  for (int64_t i = 0; i < kLanes; ++i) x[i] = std::exp(x[i]);
  return x;
}

// Within 1.3e-7 (a rational function, as Eigen has it).
[[gnu::always_inline]] inline Lanes<float> erf_of(Lanes<float> given) {
  Lanes<float> x = within(-4.0f, given, 4.0f);
  Lanes<float> z = x * x;
  Lanes<float> p = z * -2.72614225801306e-10f + 2.77068142495902e-08f;
  p = p * z - 2.10102402082508e-06f;
  p = p * z - 5.69250639462346e-05f;
  p = p * z - 7.34990630326855e-04f;
  p = p * z - 2.95459980854025e-03f;
  p = p * z - 1.60960333262415e-02f;
  Lanes<float> q = z * -1.45660718464996e-05f - 2.13374055278905e-04f;
  q = q * z - 1.68282697438203e-03f;
  q = q * z - 7.37332916720468e-03f;
  q = q * z - 1.42647390514189e-02f;
  return with_nan_of(given, x * p / q);
}

[[gnu::always_inline]] inline Lanes<double> erf_of(Lanes<double> x) {
  for (int64_t i = 0; i < kLanes; ++i) x[i] = std::erf(x[i]);
  return x;
}

// Elements 0, 2, 4 ... and 1, 3, 5 ...
template <class W>
struct Pairs {
  Lanes<W> first, second;
  [[gnu::always_inline]] Pairs& operator+=(const Pairs& other) {
    first += other.first;
    second += other.second;
    return *this;
  }
};

template <class T>
[[gnu::always_inline]] inline Pairs<Wide<T>> load_pairs(const T* from, All) {
  auto a = load(from), b = load(from + kLanes);
  return {__builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
          __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)};
}

template <class T>
[[gnu::always_inline]] inline Pairs<Wide<T>> load_pairs(const T* from, First part) {
  Pairs<Wide<T>> x{};
  for (int64_t i = 0; i < part.n; ++i) {
    x.first[i] = static_cast<Wide<T>>(from[2 * i]);
    x.second[i] = static_cast<Wide<T>>(from[2 * i + 1]);
  }
  return x;
}

template <class T>
[[gnu::always_inline]] inline void store_pairs(T* to, const Pairs<Wide<T>>& x, All) {
  store(to, __builtin_shufflevector(x.first, x.second, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6,
                                    22, 7, 23));
  store(to + kLanes, __builtin_shufflevector(x.first, x.second, 8, 24, 9, 25, 10, 26, 11, 27, 12,
                                             28, 13, 29, 14, 30, 15, 31));
}

template <class T>
[[gnu::always_inline]] inline void store_pairs(T* to, const Pairs<Wide<T>>& x, First part) {
  for (int64_t i = 0; i < part.n; ++i) {
    to[2 * i] = static_cast<T>(x.first[i]);
    to[2 * i + 1] = static_cast<T>(x.second[i]);
  }
}

// Calls work(T*) with a null pointer of the type.
template <class Work>
void with_cpu_type(Element type, const Work& work) {
  with_type_of<c10::Half, c10::BFloat16>(type, work);
}

}  // namespace neox::lanes
