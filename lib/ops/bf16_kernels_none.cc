#include "base/error.h"
#include "ops/bf16_kernels.h"

namespace neox {

bool has_bf16_kernels() { return false; }

void pack_rows(const Bf16Matrix&, uint32_t*) { fail(Exit::kInternal, "no kernels for bf16 here"); }
void pack_columns(const Bf16Matrix&, uint32_t*) {
  fail(Exit::kInternal, "no kernels for bf16 here");
}
void multiply_packed(const PackedRows&, const uint32_t*, int64_t, const ProductSum&, int64_t,
                     int64_t) {
  fail(Exit::kInternal, "no kernels for bf16 here");
}

}  // namespace neox
