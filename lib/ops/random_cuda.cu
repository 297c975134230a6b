#include <c10/cuda/CUDAStream.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/philox.h"
#include "ops/random.h"

namespace neox {
namespace {

template <class T, class Wide>
__global__ void dropout_kernel(const T* x, T* y, int64_t n, int64_t per_sample, uint32_t threshold,
                               Wide scale, uint64_t key, int64_t first_sample, int64_t offset) {
  int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) {
    int64_t sample = i / per_sample, position = offset + i % per_sample;
    Random4 block = philox(key, static_cast<uint64_t>(position / 4),
                           static_cast<uint64_t>(first_sample + sample));
    y[i] = block.v[position % 4] < threshold ? T(Wide(0)) : T(Wide(x[i]) * scale);
  }
}

template <class T, class Wide>
void launch(const void* x, void* y, int64_t n, int64_t per_sample, double p,
            const DropoutSite& site) {
  int threads = 256;
  auto blocks = static_cast<unsigned>(std::min<int64_t>((n + threads - 1) / threads, 65536));
  dropout_kernel<T, Wide><<<blocks, threads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      static_cast<const T*>(x), static_cast<T*>(y), n, per_sample,
      static_cast<uint32_t>(std::llround(p * 4294967296.0)), static_cast<Wide>(1 / (1 - p)),
      site.key, site.first_sample, site.offset);
}

}  // namespace

void dropout_cuda(const void* x, void* y, DropoutType type, int64_t n, int64_t per_sample, double p,
                  const DropoutSite& site) {
  if (n == 0) return;
  switch (type) {
    case DropoutType::kFloat:
      launch<float, float>(x, y, n, per_sample, p, site);
      break;
    case DropoutType::kDouble:
      launch<double, double>(x, y, n, per_sample, p, site);
      break;
    case DropoutType::kHalf:
      launch<__half, float>(x, y, n, per_sample, p, site);
      break;
    case DropoutType::kBFloat16:
      launch<__nv_bfloat16, float>(x, y, n, per_sample, p, site);
      break;
  }
  cudaError_t status = cudaGetLastError();
  check(status == cudaSuccess, "dropout of ", n, " elements: ", cudaGetErrorString(status));
}

}  // namespace neox
