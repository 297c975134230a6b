// Compiled for AVX-512.
#include "ops/row_kernels_avx512.h"

namespace neox {
namespace {
constexpr int kPlaces = 8;
}
}  // namespace neox

#include "ops/row_kernels_body.h"

#include "ops/row_packed_avx512.h"

namespace neox {
namespace {

struct AddFloats : InParts<uint16_t> {
  template <int B>
  [[gnu::always_inline]] static void add(__m512i numbers, const float* x, Floats (&s)[B]) {
    auto even = reinterpret_cast<Floats>(_mm512_slli_epi32(numbers, 16)),
         odd = reinterpret_cast<Floats>(
             _mm512_and_si512(numbers, _mm512_set1_epi32(static_cast<int>(0xFFFF0000))));
    for (int b = 0; b < B; ++b) s[b] += even * load(x + b * kLanes);
    for (int b = 0; b < B; ++b) s[b] += odd * load(x + (B + b) * kLanes);
  }
};

void multiply_or_unpack(const WeightMatrix& w, int64_t from, int64_t to, const FloatRows& x,
                        const FloatRows& y) {
  if (!multiplied_packed<AddFloats>(w, from, to, x, y)) multiply(w, from, to, x, y);
}

constexpr RowKernels with_packed(RowKernels kernels) {
  kernels.multiply = multiply_or_unpack;
  kernels.packed_columns = kUnit;
  kernels.pack = pack_rows;
  return kernels;
}

}  // namespace

const RowKernels kAvx512RowKernels = with_packed(kernels_named("avx512"));

}  // namespace neox
