// Compiled for AVX-512.
#include "ops/row_kernels_avx512.h"

namespace neox {
namespace {
constexpr int kPlaces = 8;
}
}  // namespace neox

#include "ops/row_kernels_body.h"

#include "ops/row_packing_avx512.h"
#include "ops/row_packing_products.h"

namespace neox {
const RowKernels kAvx512RowKernels = with_packed_floats<kPlaces>(kernels_named("avx512"));
}
