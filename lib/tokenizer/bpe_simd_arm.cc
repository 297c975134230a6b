#include "tokenizer/bpe_scan.h"

namespace neox {

std::span<const Simd> available_simd() {
  static constexpr Simd kAll[] = {Simd::kPlain, Simd::kNeon};
  return kAll;
}

const ScanFunctions& scan_functions(Simd simd) {
  return simd == Simd::kNeon ? neon_scan() : plain_scan();
}

}  // namespace neox
