#include <sys/syscall.h>
#include <unistd.h>

#include <cpuid.h>

#include <algorithm>

#include "ops/bf16_kernels.h"
#include "ops/row_kernels_amx.h"

namespace neox {
namespace {

// Linux saves the tiles of those processes alone that have asked for them.
bool may_use_tiles() {
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

bool has_amx_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kTile = 1U << 24, kBf16 = 1U << 22;
  return (d & kTile) != 0 && (d & kBf16) != 0;
}

// Rows that meet all columns may take half of the second-level cache: 1 MB on Sapphire Rapids and
// later, 512 KB on Skylake.
Bf16Kernels with_near_cache(Bf16Kernels kernels) {
  int64_t rows = std::clamp<int64_t>(::sysconf(_SC_LEVEL2_CACHE_SIZE) / 2, 256 << 10, 1 << 20);
  kernels.along_depth.row_bytes = kernels.across_depth.row_bytes = rows;
  return kernels;
}

}  // namespace

bool has_bf16_tiles() {
  static const bool has = has_amx_bf16() && may_use_tiles();
  return has;
}

std::vector<const Bf16Kernels*> all_bf16_kernels() {
  bool floats = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"),
       wide = floats && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512vl"),
       pairs = wide && __builtin_cpu_supports("avx512bf16");
  // Intel's processors take longer for a dot product of pairs than for two of floats.
  bool slow_pairs = pairs && __builtin_cpu_is("intel");
  bool fp16 = slow_pairs && __builtin_cpu_supports("avx512fp16");
  static const Bf16Kernels wide_kernels = with_near_cache(kAvx512fBf16Kernels),
                           fp16_kernels = with_near_cache(kFp16Bf16Kernels);
  std::vector<const Bf16Kernels*> all;
  if (floats) all.push_back(&kAvx2Bf16Kernels);
  if (slow_pairs) all.push_back(&kAvx512Bf16Kernels);
  if (wide) all.push_back(&wide_kernels);
  if (pairs && !slow_pairs) all.push_back(&kAvx512Bf16Kernels);
  if (fp16) all.push_back(&fp16_kernels);
  if (pairs && has_bf16_tiles()) all.push_back(&kAmxBf16Kernels);
  return all;
}

const Bf16Kernels*& bf16_kernels() {
  static const Bf16Kernels* chosen = [] {
    auto all = all_bf16_kernels();
    return all.empty() ? nullptr : all.back();
  }();
  return chosen;
}

}  // namespace neox
