#include "tokenizer/bpe_scan.h"

namespace neox {

std::span<const Simd> available_simd() {
  static constexpr Simd kAll[] = {Simd::kPlain};
  return kAll;
}

const ScanFunctions& avx2_scan() { return plain_scan(); }
const ScanFunctions& avx512_scan() { return plain_scan(); }

}  // namespace neox
