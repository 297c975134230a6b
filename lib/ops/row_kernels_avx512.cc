// Compiled for AVX-512.
#include "ops/row_kernels_avx512.h"

namespace neox {
namespace {
constexpr int kPlaces = 8;
}
}  // namespace neox

#include "ops/row_kernels_body.h"

namespace neox {
const RowKernels kAvx512RowKernels = kernels_named("avx512");
}
