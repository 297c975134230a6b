#include "tokenizer/bpe_scan.h"

namespace neox {

std::span<const Simd> available_simd() {
  static constexpr Simd kAll[] = {Simd::kPlain};
  return kAll;
}

const ScanFunctions& scan_functions(Simd) { return plain_scan(); }

}  // namespace neox
