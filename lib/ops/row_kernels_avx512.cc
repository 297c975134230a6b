// Compiled for AVX-512.
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
// Held in a register instead of loaded again for each use.
inline void keep(Floats& v) { asm("" : "+v"(v)); }

}  // namespace
}  // namespace neox

#include "ops/row_kernels_body.h"

namespace neox {
const RowKernels kAvx512RowKernels = kernels_named("avx512");
}
