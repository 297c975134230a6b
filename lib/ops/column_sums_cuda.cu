#include "ops/column_sums.h"
#include "ops/cuda_kernels.cuh"

namespace neox {
namespace {

using namespace cuda;

template <class W, int N>
__global__ void __launch_bounds__(kTileX* kTileY) parts_kernel(PartSums p) {
  int64_t column = (int64_t{blockIdx.x} * kTileX + threadIdx.x) * N;
  W sums[N] = {};
  wait_for_kernel_before();
  if (column < p.columns) {
    const W* from = static_cast<const W*>(p.from) + column;
#pragma unroll 8
    for (int64_t part = threadIdx.y; part < p.parts; part += kTileY) {
      auto x = load_pack<W, N>(from + part * p.columns);
#pragma unroll
      for (int j = 0; j < N; ++j) sums[j] += x.at[j];
    }
  }
  sum_over_tile<W, N>(sums, static_cast<W*>(p.to), column, p.columns);
}

}  // namespace

void sum_of_parts_cuda(const PartSums& p) {
  auto run = [&]<class W>(W*) {
    auto launch = [&]<int N>(std::integral_constant<int, N>) {
      launch_early(parts_kernel<W, N>, {tiles(p.columns, N, 1), tile_threads()}, p);
    };
    if (packs<W>(p.columns, p.from))
      launch(std::integral_constant<int, kPack<W>>());
    else
      launch(std::integral_constant<int, 1>());
  };
  if (p.type == Element::kDouble)
    run(static_cast<double*>(nullptr));
  else
    run(static_cast<float*>(nullptr));
  check_launch("the sum of parts", p.parts, p.columns);
}

}  // namespace neox
