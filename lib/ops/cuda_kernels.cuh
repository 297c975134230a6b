// What CUDA kernels share: the types of elements, accesses of 16 bytes, and sums over warps and
// blocks in a fixed order. Types of 16 bits are computed in float.
#pragma once
#include <c10/cuda/CUDAStream.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "base/error.h"
#include "ops/element.h"

namespace neox::cuda {

template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

// N elements that are loaded and stored at once.
template <class T, int N>
struct alignas(N * sizeof(T)) Pack {
  T at[N];
};

// Elements in 16 bytes.
template <class T>
constexpr int kPack = 16 / static_cast<int>(sizeof(T));

template <class T, int N>
__device__ Pack<T, N> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}

template <class T, int N>
__device__ void store_pack(T* to, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

constexpr unsigned kAllLanes = 0xFFFFFFFFu;

struct Add {
  template <class W>
  __device__ W operator()(W a, W b) const {
    return a + b;
  }
};

struct Larger {
  template <class W>
  __device__ W operator()(W a, W b) const {
    return a > b ? a : b;
  }
};

// The same on every thread of the warp.
template <class W, class Op>
__device__ W over_warp(W x, Op op) {
  for (int step = 16; step > 0; step /= 2) x = op(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}

// The same on every thread of the block, of which each calls it. `empty` changes nothing.
template <class W, class Op>
__device__ W over_block(W x, Op op, W empty) {
  __shared__ W parts[32];
  unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = (blockDim.x + 31) / 32;
  x = over_warp(x, op);
  __syncthreads();  // parts may be in use by the call before
  if (lane == 0) parts[warp] = x;
  __syncthreads();
  return over_warp(lane < warps ? parts[lane] : empty, op);
}

template <class W>
__device__ W exp_of(W x) {
  if constexpr (std::is_same_v<W, float>)
    return __expf(x);
  else
    return exp(x);
}

// Calls work(T*) with a null pointer of the type.
template <class Work>
void with_type(Element type, const Work& work) {
  switch (type) {
    case Element::kFloat:
      return work(static_cast<float*>(nullptr));
    case Element::kDouble:
      return work(static_cast<double*>(nullptr));
    case Element::kHalf:
      return work(static_cast<__half*>(nullptr));
    case Element::kBFloat16:
      return work(static_cast<__nv_bfloat16*>(nullptr));
  }
}

// Whether accesses of 16 bytes fit rows of `columns` elements at these places; null counts as one.
template <class T, class... Pointers>
bool packs(int64_t columns, Pointers... at) {
  auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  return columns % kPack<T> == 0 && (aligned(at) && ...);
}

inline cudaStream_t stream() { return c10::cuda::getCurrentCUDAStream(); }

inline unsigned blocks(int64_t n, int64_t most = 0x7FFFFFFF) {
  return static_cast<unsigned>(std::min(n, most));
}

inline void check_launch(const char* name, int64_t rows, int64_t columns) {
  cudaError_t status = cudaGetLastError();
  check(status == cudaSuccess, name, " of ", rows, " x ", columns,
        " elements: ", cudaGetErrorString(status));
}

}  // namespace neox::cuda
