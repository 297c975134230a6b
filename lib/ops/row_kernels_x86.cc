#include "ops/row_kernels.h"

namespace neox {

std::vector<const RowKernels*> all_row_kernels() {
  std::vector<const RowKernels*> all = {&kPlainRowKernels};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    all.push_back(&kAvx2RowKernels);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl"))
    all.push_back(&kAvx512RowKernels);
  return all;
}

const RowKernels& row_kernels() {
  static const RowKernels& fastest = *all_row_kernels().back();
  return fastest;
}

}  // namespace neox
