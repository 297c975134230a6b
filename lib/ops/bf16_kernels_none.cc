#include "base/error.h"
#include "ops/bf16_kernels.h"
#include "ops/bf16_softmax.h"

namespace neox {
namespace {

[[noreturn]] void none() { fail(Exit::kInternal, "no kernels for bf16 on this processor"); }

}  // namespace

std::vector<const Bf16Kernels*> all_bf16_kernels() { return {}; }

const Bf16Kernels*& bf16_kernels() {
  static const Bf16Kernels* chosen = nullptr;
  return chosen;
}

void softmax_keys(const KeyScores&, const SoftmaxState&, uint32_t*) { none(); }
void softmax_backward_queries(const QueryScores&, const ScoreGradients&) { none(); }
float dot_bf16(const uint16_t*, const uint16_t*, int64_t) { none(); }
void scale_columns(const FloatColumns&, const float*) { none(); }
void store_columns(const FloatColumns&, const float*, uint16_t*, int64_t) { none(); }
void store_rows(const float*, int64_t, int64_t, uint16_t*, int64_t) { none(); }

}  // namespace neox
