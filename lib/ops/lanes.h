// Sixteen elements at a time, for CPU kernels: loops over rows that compilers do not vectorise
// themselves, because they hold sums, exponentials or conversions. Types of 16 bits are computed in
// float. All is inlined into functions with the attribute target_clones, whose clone for this CPU
// is chosen when the program is loaded.
#pragma once
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

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
    rounded = x == x ? rounded : rounded * 0 + 0x7FC0;
    auto half = __builtin_convertvector(rounded, Lanes<uint16_t>);
    std::memcpy(to, &half, sizeof half);
  } else {
    for (int64_t i = 0; i < kLanes; ++i) to[i] = static_cast<T>(x[i]);
  }
}

// The first n lanes; the others of what is loaded are `rest`.
template <class T>
[[gnu::always_inline]] inline Lanes<Wide<T>> load(const T* from, int64_t n, Wide<T> rest = 0) {
  Lanes<Wide<T>> x = Lanes<Wide<T>>{} + rest;
  for (int64_t i = 0; i < n; ++i) x[i] = static_cast<Wide<T>>(from[i]);
  return x;
}

template <class T>
[[gnu::always_inline]] inline void store(T* to, Lanes<Wide<T>> x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(x[i]);
}

template <class V>
[[gnu::always_inline]] inline V larger(V a, V b) {
  return a > b ? a : b;
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

template <class W>
[[gnu::always_inline]] inline W largest(const Lanes<W>& x) {
  W top = x[0];
  for (int64_t i = 1; i < kLanes; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

// e^x within 1.2e-7 of itself (Cephes' expf); 0 below -87.3, the largest value above 88.3.
[[gnu::always_inline]] inline Lanes<float> exp_of(Lanes<float> given) {
  constexpr float kLowest = -87.3f, kHighest = 88.3f, kRound = 12582912.0f;
  Lanes<float> x = given < kLowest ? Lanes<float>{} + kLowest : given;
  x = x > kHighest ? Lanes<float>{} + kHighest : x;
  Lanes<float> n = (x * 1.44269504089f + kRound) - kRound;
  Lanes<float> r = x - n * 0.693359375f + n * 2.12194440e-4f;
  Lanes<float> y = r * 1.9875691500e-4f + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * r * r + r + 1.0f;
  auto exponent = (__builtin_convertvector(n, Lanes<int32_t>) + 127) << 23;
  y *= std::bit_cast<Lanes<float>>(exponent);
  return given < kLowest ? Lanes<float>{} : y;
}

[[gnu::always_inline]] inline Lanes<double> exp_of(Lanes<double> x) {
  for (int64_t i = 0; i < kLanes; ++i) x[i] = std::exp(x[i]);
  return x;
}

}  // namespace neox::lanes
