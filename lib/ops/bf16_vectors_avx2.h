// What the kernels of bf16 for AVX2 have in common.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace neox::avx2 {
namespace {  // inlined into files that are compiled for AVX2

constexpr int64_t kLanes = 8;

// Of a pair, the first number and the second, as floats have them.
[[gnu::always_inline]] inline __m256i first_of(__m256i pairs) {
  return _mm256_slli_epi32(pairs, 16);
}
[[gnu::always_inline]] inline __m256i second_of(__m256i pairs) {
  return _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000)));
}

// bf16 of floats in the upper halves, to the nearest, ties to even; the lower ones are not cleared.
[[gnu::always_inline]] inline __m256i rounded_finite(__m256 x) {
  __m256i bits = _mm256_castps_si256(x);
  __m256i even = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_add_epi32(bits, _mm256_add_epi32(even, _mm256_set1_epi32(0x7fff)));
}
[[gnu::always_inline]] inline __m256i rounded(__m256 x) {
  __m256 none = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  return _mm256_blendv_epi8(rounded_finite(x), _mm256_set1_epi32(0x7fc00000),
                            _mm256_castps_si256(none));
}

// 16 floats as bf16.
[[gnu::always_inline]] inline void store_halves(uint16_t* to, __m256 x, __m256 y) {
  __m256i both =
      _mm256_packus_epi32(_mm256_srli_epi32(rounded(x), 16), _mm256_srli_epi32(rounded(y), 16));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(both, 0xd8));
}
// 8 of them.
[[gnu::always_inline]] inline void store_halves(uint16_t* to, __m256 x) {
  __m256i wide = _mm256_srli_epi32(rounded(x), 16);
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(to),
      _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1)));
}

// 8 rows of 8 numbers become their columns.
[[gnu::always_inline]] inline void transpose(__m256i (&r)[kLanes]) {
  __m256i t[kLanes], u[kLanes];
  for (int i = 0; i < kLanes; i += 2) {
    t[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < kLanes; i += 4) {
    u[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
    u[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
    u[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
    u[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x20);
    r[i + 4] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x31);
  }
}

}  // namespace
}  // namespace neox::avx2
