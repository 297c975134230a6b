#include "ops/bf16_kernels.h"

namespace neox {

std::vector<const Bf16Kernels*> all_bf16_kernels() { return {}; }

const Bf16Kernels*& bf16_kernels() {
  static const Bf16Kernels* chosen = nullptr;
  return chosen;
}

}  // namespace neox
