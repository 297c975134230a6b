// Compiled for AVX2 and FMA.
#include <immintrin.h>

#include <cstdint>

namespace neox {
namespace {

typedef float Floats __attribute__((vector_size(32)));
constexpr int64_t kLanes = 8;
constexpr int kRegisters = 16;

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
inline Floats sums(const Floats (&v)[kLanes]) {
  Floats s;
  for (int64_t i = 0; i < kLanes; ++i) s[i] = sum(v[i]);
  return s;
}
// Held in a register instead of loaded again for each use.
inline void keep(Floats& v) { asm("" : "+x"(v)); }

}  // namespace
}  // namespace neox

#include "ops/row_kernels_body.h"

namespace neox {
const RowKernels kAvx2RowKernels = kernels_named("avx2");
}
