// Compiled for AVX2 and FMA.
#include <immintrin.h>

#include <cstdint>

namespace neox {
namespace {

typedef float Floats __attribute__((vector_size(32)));
constexpr int64_t kLanes = 8;
constexpr int kRegisters = 16;
constexpr int kPlaces = 1;

inline Floats load(const float* p) { return reinterpret_cast<Floats>(_mm256_loadu_ps(p)); }
inline Floats load(const uint16_t* p) {
  __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return reinterpret_cast<Floats>(_mm256_slli_epi32(wide, 16));
}
inline float sum(Floats v) {
  auto all = reinterpret_cast<__m256>(v);
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
// In the order in which sum() adds.
inline Floats sums(const Floats (&v)[kLanes]) {
  __m256 half[4], quarter[2];
  for (int i = 0; i < 4; ++i) {
    auto a = reinterpret_cast<__m256>(v[i]), b = reinterpret_cast<__m256>(v[i + 4]);
    half[i] = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  }
  for (int i = 0; i < 2; ++i) {
    auto a = _mm256_castps_pd(half[2 * i]), b = _mm256_castps_pd(half[2 * i + 1]);
    quarter[i] = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(a, b)),
                               _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)));
  }
  return reinterpret_cast<Floats>(_mm256_add_ps(_mm256_shuffle_ps(quarter[0], quarter[1], 0x88),
                                                _mm256_shuffle_ps(quarter[0], quarter[1], 0xdd)));
}
// Held in a register instead of loaded again for each use.
inline void keep(Floats& v) { asm("" : "+x"(v)); }

}  // namespace
}  // namespace neox

#include "ops/row_kernels_body.h"
#include "ops/row_packing_avx2.h"
#include "ops/row_packing_products.h"

namespace neox {
const RowKernels kAvx2RowKernels = with_packed_floats<4>(kernels_named("avx2"));
}
