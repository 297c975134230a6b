// normal_at(): Box-Muller over blocks of Philox, written so that compilers vectorise it. This file
// is compiled without contraction of a * b + c, so that every CPU gives the same bits.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "ops/clones.h"
#include "ops/random.h"

namespace neox {
namespace {

constexpr int kBlocks = 256;  // Philox blocks at a time; each gives four values

// The natural logarithm of x in (0, 1], with the polynomial of Cephes' logf.
inline float log_of(float x) {
  auto bits = std::bit_cast<int32_t>(x);
  auto exponent = static_cast<float>((bits >> 23) - 126);
  float m = std::bit_cast<float>((bits & 0x7FFFFF) | 0x3F000000);  // [0.5, 1)
  bool low = m < 0.70710678f;
  exponent = low ? exponent - 1 : exponent;
  float t = (low ? m + m : m) - 1, z = t * t;
  float y = 7.0376836292e-2f;
  y = y * t - 1.1514610310e-1f;
  y = y * t + 1.1676998740e-1f;
  y = y * t - 1.2420140846e-1f;
  y = y * t + 1.4249322787e-1f;
  y = y * t - 1.6668057665e-1f;
  y = y * t + 2.0000714765e-1f;
  y = y * t - 2.4999993993e-1f;
  y = y * t + 3.3333331174e-1f;
  y = y * t * z - 2.12194440e-4f * exponent - 0.5f * z;
  return t + y + 0.693359375f * exponent;
}

// Two normal values from two words: radius sqrt(-2 log u), angle 2 pi v (turned by a constant,
// which changes nothing).
inline void box_muller(uint32_t a, uint32_t b, float* first, float* second) {
  float u = (static_cast<float>(static_cast<int32_t>(a >> 8)) + 1.0f) * 0x1p-24f;  // (0, 1]
  float radius = std::sqrt(-2.0f * log_of(u));
  auto quadrant = static_cast<int32_t>(b >> 30);
  float r = (static_cast<float>(static_cast<int32_t>((b >> 6) & 0xFFFFFF)) - 8388608.0f) *
            (0x1p-24f * 1.57079632679f);
  float z =
      r *
      r;  // sine and cosine of r in [-pi/4, pi/4], with the polynomials of Cephes' sinf and cosf
  float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * r + r;
  float c =
      ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z -
      0.5f * z + 1.0f;
  bool swapped = quadrant & 1;
  float sine = swapped ? c : s, cosine = swapped ? -s : c;
  float sign = quadrant & 2 ? -radius : radius;
  *first = sign * cosine;
  *second = sign * sine;
}

NEOX_CLONES void normal_blocks(uint64_t key, uint64_t first, float* out) {
  uint32_t word[4][kBlocks];
  float value[4][kBlocks];
  for (int i = 0; i < kBlocks; ++i) {
    Random4 block = philox(key, first + static_cast<uint64_t>(i), 0);
    for (int lane = 0; lane < 4; ++lane) word[lane][i] = block.v[lane];
  }
  for (int pair = 0; pair < 4; pair += 2)
    for (int i = 0; i < kBlocks; ++i)
      box_muller(word[pair][i], word[pair + 1][i], &value[pair][i], &value[pair + 1][i]);
  for (int i = 0; i < kBlocks; ++i)
    for (int lane = 0; lane < 4; ++lane) out[4 * i + lane] = value[lane][i];
}

}  // namespace

void normal_at(uint64_t key, int64_t begin, std::span<float> out) {
  constexpr int64_t kValues = 4 * kBlocks;
  auto n = static_cast<int64_t>(out.size());
  float buffer[kValues];
  for (int64_t done = 0; done < n;) {
    int64_t group = (begin + done) / kValues, skip = (begin + done) % kValues;
    int64_t count = std::min(kValues - skip, n - done);
    bool whole = count == kValues;
    normal_blocks(key, static_cast<uint64_t>(group * kBlocks), whole ? out.data() + done : buffer);
    if (!whole)
      std::memcpy(out.data() + done, buffer + skip, static_cast<size_t>(count) * sizeof(float));
    done += count;
  }
}

}  // namespace neox
