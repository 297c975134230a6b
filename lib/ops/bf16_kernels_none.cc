#include "base/error.h"
#include "ops/bf16_kernels.h"
#include "ops/bf16_softmax.h"

namespace neox {
namespace {

[[noreturn]] void none() { fail(Exit::kInternal, "no kernels for bf16 on this processor"); }

}  // namespace

bool has_bf16_kernels() { return false; }

void pack_rows(const Bf16Matrix&, uint32_t*) { none(); }
void pack_columns(const Bf16Matrix&, uint32_t*) { none(); }
void multiply_packed(const PackedRows&, const PackedColumns&, int64_t, const ProductSum&, int64_t,
                     int64_t) {
  none();
}
void multiply_unpacked(const Bf16Matrix&, const PackedColumns&, const ProductSum&, int64_t) {
  none();
}
void softmax_keys(const KeyScores&, const SoftmaxState&, uint32_t*) { none(); }
void softmax_backward_queries(const QueryScores&, const ScoreGradients&) { none(); }
float dot_bf16(const uint16_t*, const uint16_t*, int64_t) { none(); }
void scale_rows(float*, int64_t, int64_t, const float*) { none(); }
void store_rows(const float*, int64_t, int64_t, const float*, uint16_t*, int64_t) { none(); }

}  // namespace neox
