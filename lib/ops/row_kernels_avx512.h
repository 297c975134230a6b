// What row_kernels_body.h asks for, over the vectors of AVX-512.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace neox {
namespace {

typedef float Floats __attribute__((vector_size(64)));
constexpr int64_t kLanes = 16;
constexpr int kRegisters = 32;

inline Floats load(const float* p) { return reinterpret_cast<Floats>(_mm512_loadu_ps(p)); }
inline Floats load(const uint16_t* p) {
  __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return reinterpret_cast<Floats>(_mm512_slli_epi32(wide, 16));
}
inline float sum(Floats v) { return _mm512_reduce_add_ps(reinterpret_cast<__m512>(v)); }

// sum() of each, bit for bit: two vectors become one at a time, first the sums of their halves
// beside each other, then of their quarters, eighths and sixteenths.
inline __attribute__((always_inline)) Floats sums(const Floats (&v)[kLanes]) {
  auto half = [&](int i, int j) {
    auto a = reinterpret_cast<__m512>(v[i]), b = reinterpret_cast<__m512>(v[j]);
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  };
  auto quarter = [&](int i) {
    __m512 a = half(i, i + 4), b = half(i + 8, i + 12);
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  };
  auto eighth = [&](int i) {
    __m512 a = quarter(i), b = quarter(i + 1);
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
  };
  __m512 a = eighth(0), b = eighth(2);
  return reinterpret_cast<Floats>(
      _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd)));
}
// Held in a register instead of loaded again for each use.
inline void keep(Floats& v) { asm("" : "+v"(v)); }

}  // namespace
}  // namespace neox
