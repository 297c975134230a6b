#include "ops/softmax_rows.h"

#include <bit>
#include <limits>

#include "ops/clones.h"

namespace neox {
namespace {

// e^x is 0 below it: nothing beside what a sum of exponentials up to 1 is rounded to, while numbers
// below 1e-38, which products of it would have, take processors a hundred times as long.
constexpr float kLeast = -44;

// kLeast, of which the compiler does not know the value: it would branch to a constant's
// exponential instead of computing it in vectors.
[[gnu::always_inline]] inline float least() {
  float x = kLeast;
  asm("" : "+r"(x));
  return x;
}

// To 2 units in the last place, as Cephes' expf: 2^n by the exponent's bits, a polynomial on
// [-ln 2 / 2, ln 2 / 2]. n are the last bits of a sum with 1.5 x 2^23.
[[gnu::always_inline]] inline float exp_of(float given, float least) {
  constexpr float kRound = 12582912, kLog2e = 1.44269504088896341F, kHigh = 0.693359375F,
                  kLow = -2.12194440e-4F;
  float x = given < least ? least : given;
  float shifted = x * kLog2e + kRound, n = shifted - kRound;
  float r = x - n * kHigh - n * kLow;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + (r + 1);
  uint32_t power = std::bit_cast<uint32_t>(shifted) << 23;
  float e = std::bit_cast<float>(std::bit_cast<uint32_t>(p) + power);
  return given < least ? 0 : e;
}

// Of a finite number, to the nearest, ties to even.
[[gnu::always_inline]] inline uint16_t bf16_of(float x) {
  auto bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

}  // namespace

// The clone for this CPU is chosen when the program is loaded.
NEOX_CLONES float row_max(const float* x, int64_t n) {
  float top = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : top)
  for (int64_t i = 0; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

NEOX_CLONES float row_exp(float* x, int64_t n, float scale, float top) {
  float sum = 0, lowest = least();
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    float e = exp_of(scale * x[i] - top, lowest);
    x[i] = e;
    sum += e;
  }
  return sum;
}

NEOX_CLONES void row_multiply(float* x, int64_t n, float factor) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

NEOX_CLONES void row_multiply(uint16_t* x, int64_t n, float factor) {
  for (int64_t i = 0; i < n; ++i)
    x[i] = bf16_of(std::bit_cast<float>(static_cast<uint32_t>(x[i]) << 16) * factor);
}

NEOX_CLONES void row_round(const float* __restrict x, int64_t n, uint16_t* __restrict to) {
  for (int64_t i = 0; i < n; ++i) to[i] = bf16_of(x[i]);
}

NEOX_CLONES void row_exp_round(const float* __restrict x, int64_t n, float log_sum, float factor,
                               uint16_t* __restrict to) {
  float lowest = least();
  for (int64_t i = 0; i < n; ++i) to[i] = bf16_of(exp_of(x[i] - log_sum, lowest) * factor);
}

NEOX_CLONES void row_exp_backward(float* __restrict x, float* __restrict dx, int64_t n, float scale,
                                  float log_sum, float dot) {
  float lowest = least();
  for (int64_t i = 0; i < n; ++i) {
    float e = exp_of(scale * x[i] - log_sum, lowest);
    x[i] = e;
    dx[i] = e * (dx[i] - dot) * scale;
  }
}

NEOX_CLONES float row_dot(const float* x, const float* y, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

}  // namespace neox
