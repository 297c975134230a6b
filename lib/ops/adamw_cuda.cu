#include "ops/adamw_formulas.h"
#include "ops/cuda_build.h"
#include "ops/cuda_kernels.cuh"

namespace neox {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

// Copy: the type of the rounded parameters; void: none.
template <class T, int N, class Copy>
__device__ void update(const AdamWRange& r, int64_t i, const AdamWFactors<T>& f) {
  auto *params = static_cast<T*>(r.param), *ms = static_cast<T*>(r.m), *vs = static_cast<T*>(r.v);
  auto p = load_pack<T, N>(params + i), m = load_pack<T, N>(ms + i), v = load_pack<T, N>(vs + i),
       grad = load_pack<T, N>(static_cast<const T*>(r.grad) + i);
#pragma unroll
  for (int j = 0; j < N; ++j) adamw_element(p.at[j], grad.at[j], m.at[j], v.at[j], f);
  store_pack<T, N>(params + i, p);
  store_pack<T, N>(ms + i, m);
  store_pack<T, N>(vs + i, v);
  if constexpr (!std::is_void_v<Copy>) {
    Pack<Copy, N> copy;
#pragma unroll
    for (int j = 0; j < N; ++j) copy.at[j] = static_cast<Copy>(static_cast<float>(p.at[j]));
    store_pack<Copy, N>(static_cast<Copy*>(r.copy) + i, copy);
  }
}

template <class T, int N, class Copy>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(AdamWRange r, AdamWConstants c, UpdateDeviceScalars s) {
  if (*s.finite == 0) return;
  __shared__ AdamWFactors<T> shared;
  if (threadIdx.x == 0) shared = adamw_factors<T>(c, *s.lr, *s.scale, *s.step);
  __syncthreads();
  AdamWFactors<T> f = shared;
  int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x, stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = at; i < r.n / N; i += stride) update<T, N, Copy>(r, i * N, f);
  int64_t rest = r.n / N * N + at;
  if (rest < r.n) update<T, 1, Copy>(r, rest, f);
}

// One double for each block: elements blockIdx.x, blockIdx.x + gridDim.x ... in packs.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) squares_kernel(SquaresRange r) {
  using W = Wide<T>;
  const T* x = static_cast<const T*>(r.x);
  int64_t n = r.n;
  int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x, stride = int64_t{gridDim.x} * kThreads;
  double sum = 0;
  for (int64_t i = at; i < n / N; i += stride) {
    auto pack = load_pack<T, N>(x + i * N);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      double v = static_cast<double>(static_cast<W>(pack.at[j]));
      sum += v * v;
    }
  }
  int64_t rest = n / N * N + at;
  if (rest < n) {
    double v = static_cast<double>(static_cast<W>(x[rest]));
    sum += v * v;
  }
  sum = over_block(sum, Add(), 0.0);
  if (threadIdx.x == 0) r.sums[blockIdx.x] = r.weight * sum;
}

// Enough blocks to fill the device; each thread takes several packs.
unsigned blocks_of(int64_t n, int N) {
  int64_t wanted = (n / N + kThreads - 1) / kThreads;
  return blocks(std::max<int64_t>(1, std::min(wanted, multiprocessors() * 16)));
}

bool aligned(std::initializer_list<const void*> all) {
  return std::ranges::all_of(all, takes_wide_loads);
}

template <class T, class Copy>
void launch(const AdamWRange& r, const AdamWConstants& c, const UpdateDeviceScalars& s) {
  constexpr int N = kPack<T>;
  if (aligned({r.param, r.grad, r.m, r.v, r.copy}))
    adamw_kernel<T, N, Copy><<<blocks_of(r.n, N), kThreads, 0, stream()>>>(r, c, s);
  else
    adamw_kernel<T, 1, Copy><<<blocks_of(r.n, 1), kThreads, 0, stream()>>>(r, c, s);
}

template <class T>
void launch(const AdamWRange& r, const AdamWConstants& c, const UpdateDeviceScalars& s) {
  if (!r.copy) return launch<T, void>(r, c, s);
  if (r.copy_type == Element::kBFloat16) return launch<T, __nv_bfloat16>(r, c, s);
  if (r.copy_type == Element::kHalf) return launch<T, __half>(r, c, s);
  launch<T, float>(r, c, s);
}

}  // namespace

bool built_with_cuda() { return true; }

void adamw_cuda(const AdamWRange& range, const AdamWConstants& constants,
                const UpdateDeviceScalars& scalars) {
  if (range.n == 0) return;
  if (range.type == Element::kFloat)
    launch<float>(range, constants, scalars);
  else
    launch<double>(range, constants, scalars);
  check_launch("AdamW", range.n, 1);
}

// Not of the size of the device, so that the sum is the same on each; 2048 blocks fill any.
int64_t sum_of_squares_parts_cuda(int64_t n) {
  return std::clamp<int64_t>(n / (4 * kThreads), 1, 2048);
}

void sum_of_squares_cuda(const SquaresRange& r) {
  with_type(r.type, [&]<class T>(T*) {
    if (aligned({r.x}))
      squares_kernel<T, kPack<T>><<<blocks(r.parts), kThreads, 0, stream()>>>(r);
    else
      squares_kernel<T, 1><<<blocks(r.parts), kThreads, 0, stream()>>>(r);
  });
  check_launch("the norm of gradients", r.n, 1);
}

}  // namespace neox
