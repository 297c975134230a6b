#include "ops/row_kernels_amx.h"

namespace neox {
namespace {

RowKernels with_tiles(RowKernels kernels) {
  kernels.name = "amx";
  kernels.multiply = multiply_by_tiles;
  kernels.packed_columns = 32;
  kernels.pack = pack_for_tiles;
  return kernels;
}

}  // namespace

std::vector<const RowKernels*> all_row_kernels() {
  std::vector<const RowKernels*> all = {&kPlainRowKernels};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    all.push_back(&kAvx2RowKernels);
  bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512vl");
  bool pairs = avx512 && __builtin_cpu_supports("avx512bf16");
  // Intel's processors take longer for a dot product of pairs than for two of floats.
  bool slow_pairs = __builtin_cpu_is("intel");
  if (pairs && slow_pairs) all.push_back(&kAvx512Bf16RowKernels);
  if (avx512) all.push_back(&kAvx512RowKernels);
  if (pairs && !slow_pairs) all.push_back(&kAvx512Bf16RowKernels);
  static const RowKernels tiles = with_tiles(kAvx512RowKernels);
  if (pairs && has_bf16_tiles()) all.push_back(&tiles);
  return all;
}

const RowKernels& row_kernels() {
  static const RowKernels& fastest = *all_row_kernels().back();
  return fastest;
}

}  // namespace neox
