#include "tokenizer/bpe_scan.h"

namespace neox {

std::span<const Simd> available_simd() {
  static constexpr Simd kAll[] = {Simd::kPlain, Simd::kAvx2, Simd::kAvx512};
  static const size_t count = [] {
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi");
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2");
    return avx2 && avx512 ? 3 : avx2 ? 2 : 1;
  }();
  return std::span(kAll).first(count);
}

const ScanFunctions& scan_functions(Simd simd) {
  return simd == Simd::kAvx512 ? avx512_scan() : simd == Simd::kAvx2 ? avx2_scan() : plain_scan();
}

}  // namespace neox
