// What CUDA kernels share: the types of elements, accesses of 16 bytes, and sums over warps and
// blocks in a fixed order. Types of 16 bits are computed in float.
#pragma once
#include <c10/cuda/CUDAStream.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <nv/target>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "base/error.h"
#include "ops/element.h"

namespace neox::cuda {

template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

// N elements, loaded and stored as many at once as are aligned together.
template <class T, int N, int kAligned = N>
struct alignas(kAligned * sizeof(T)) Pack {
  T at[N];
  __device__ Wide<T> operator[](int i) const { return static_cast<Wide<T>>(at[i]); }
};

// Elements in 16 bytes.
template <class T>
constexpr int kPack = 16 / static_cast<int>(sizeof(T));

template <class T, int N, int kAligned = N>
__device__ Pack<T, N, kAligned> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, N, kAligned>*>(from);
}

// Two elements of 16 bits as one word, the first one low.
__device__ inline unsigned pair_of(__nv_bfloat16 a, __nv_bfloat16 b) {
  __nv_bfloat162 pair = __halves2bfloat162(a, b);
  return *reinterpret_cast<unsigned*>(&pair);
}
__device__ inline unsigned pair_of(__half a, __half b) {
  __half2 pair = __halves2half2(a, b);
  return *reinterpret_cast<unsigned*>(&pair);
}

// All elements of 16 bits, as words.
template <class T>
__device__ uint4 words_of(const Pack<T, 8>& pack) {
  return {pair_of(pack.at[0], pack.at[1]), pair_of(pack.at[2], pack.at[3]),
          pair_of(pack.at[4], pack.at[5]), pair_of(pack.at[6], pack.at[7])};
}
template <class T>
__device__ uint2 words_of(const Pack<T, 4>& pack) {
  return {pair_of(pack.at[0], pack.at[1]), pair_of(pack.at[2], pack.at[3])};
}

// Into global memory in one access.
__device__ inline void store_words(void* to, uint4 x) {
  NV_IF_ELSE_TARGET(NV_IS_DEVICE,
                    (asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x.x),
                                  "r"(x.y), "r"(x.z), "r"(x.w)
                                  : "memory");),
                    (*reinterpret_cast<uint4*>(to) = x;))
}
__device__ inline void store_words(void* to, uint2 x) {
  NV_IF_ELSE_TARGET(NV_IS_DEVICE,
                    (asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(x.x), "r"(x.y)
                                  : "memory");),
                    (*reinterpret_cast<uint2*>(to) = x;))
}

// Into global memory; elements of 16 bits up to eight at once, where the compiler would store them
// two at a time.
template <class T, int N, int kAligned = N>
__device__ void store_pack(T* to, const Pack<T, N, kAligned>& pack) {
  if constexpr (sizeof(T) == 2 && N >= 4 && kAligned == N)
    store_words(to, words_of(pack));
  else
    *reinterpret_cast<Pack<T, N, kAligned>*>(to) = pack;
}

// Into shared memory.
template <class T>
__device__ void put_pack(T* to, const Pack<T, kPack<T>>& pack) {
  if constexpr (sizeof(T) == 2) {
    uint4 words = words_of(pack);
    *reinterpret_cast<uint4*>(to) = words;
  } else {
    *reinterpret_cast<Pack<T, kPack<T>>*>(to) = pack;
  }
}

// N elements that wait in registers as whole words, where a Pack of 16-bit types that is loaded
// under a condition takes a register for each element.
template <class T, int N = kPack<T>>
struct Words {
  uint4 words[N / kPack<T>];
  __device__ Wide<T> operator[](int i) const {
    return static_cast<Wide<T>>(reinterpret_cast<const T*>(words)[i]);
  }
};

template <class T, int N = kPack<T>>
__device__ Words<T, N> load_words(const T* from) {
  Words<T, N> x;
#pragma unroll
  for (int i = 0; i < N / kPack<T>; ++i)
    x.words[i] = *reinterpret_cast<const uint4*>(from + i * kPack<T>);
  return x;
}

// N elements that wait in registers, in as few as they fit into.
template <class T, int N>
using Held = std::conditional_t<N % kPack<T> == 0, Words<T, N>, Pack<T, N>>;

template <class T, int N>
__device__ Held<T, N> load_held(const T* from) {
  if constexpr (N % kPack<T> == 0)
    return load_words<T, N>(from);
  else
    return load_pack<T, N>(from);
}

template <class T, int N>
__device__ Held<T, N> held_of(const Pack<T, N>& pack) {
  if constexpr (N == kPack<T> && sizeof(T) == 2)
    return {{words_of(pack)}};
  else if constexpr (N == kPack<T>)
    return {{*reinterpret_cast<const uint4*>(pack.at)}};
  else
    return pack;
}

template <class T, int N>
__device__ void store_held(T* to, const Pack<T, N>& x) {
  store_pack(to, x);
}
template <class T>
__device__ void store_held(T* to, const Words<T>& x) {
  store_words(to, x.words[0]);
}

// x = load(i) and work(i, x), both in order, for i = first, first + step .. below end. kTogether
// loads are under way at once.
template <int kTogether, class Index, class Load, class Work>
__device__ void load_ahead(Index first, Index end, Index step, const Load& load, const Work& work) {
#pragma unroll 1
  for (; first < end; first += kTogether * step) {
    decltype(load(first)) x[kTogether];
#pragma unroll
    for (int u = 0; u < kTogether; ++u)
      if (first + u * step < end) x[u] = load(first + u * step);
#pragma unroll
    for (int u = 0; u < kTogether; ++u)
      if (first + u * step < end) work(first + u * step, x[u]);
  }
}

// A block of kThreads calls work(index, N elements) over a row of n, which N divides.
template <int kThreads, class T, int N, int kTogether = 4, class Index, class Work>
__device__ void for_packs(const T* row, Index n, const Work& work) {
  load_ahead<kTogether>(
      static_cast<Index>(threadIdx.x) * N, n, Index{kThreads * N},
      [row](Index i) { return load_held<T, N>(row + i); }, work);
}

// Of what is read once, such as weights: nothing else makes room for it.
template <class T>
__device__ Words<T> load_words_once(const T* from) {
  return {{__ldcs(reinterpret_cast<const uint4*>(from))}};
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

// On lane l the sum over the warp of x[l / (32 / N)]; N: a power of two up to 32.
template <int kStep = 16, class W, int N>
__device__ W sums_over_warp(const W (&x)[N]) {
  if constexpr (N == 1) {
    W sum = x[0];
    for (int step = kStep; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
    return sum;
  } else {
    W half[N / 2];
    bool upper = threadIdx.x & kStep;
#pragma unroll
    for (int j = 0; j < N / 2; ++j) {
      W mine = upper ? x[j + N / 2] : x[j], other = upper ? x[j] : x[j + N / 2];
      half[j] = mine + __shfl_xor_sync(kAllLanes, other, kStep);
    }
    return sums_over_warp<kStep / 2>(half);
  }
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

// 1 / x within two units in the last place, where dividing takes a dozen instructions.
template <class W>
__device__ W inverse_of(W x) {
  if constexpr (std::is_same_v<W, float>)
    return __fdividef(1.0f, x);
  else
    return 1 / x;
}

// For ops/activation_formulas.h.
template <class Element>
struct DeviceMath {
  using W = Element;
  static __device__ W exp(W x) { return exp_of(x); }
  static __device__ W erf(W x) { return ::erf(x); }
  static __device__ W inverse(W x) { return inverse_of(x); }
};

// Calls work(T*) with a null pointer of the type.
template <class Work>
void with_type(Element type, const Work& work) {
  with_type_of<__half, __nv_bfloat16>(type, work);
}

// Whether accesses of 16 bytes fit rows of `columns` elements at these places; null counts as one.
template <class T, class... Pointers>
bool packs(int64_t columns, Pointers... at) {
  return columns % kPack<T> == 0 && (takes_wide_loads(at) && ...);
}

inline cudaStream_t stream() { return c10::cuda::getCurrentCUDAStream(); }

inline int64_t device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&value, attribute, device);
  return value;
}

inline int64_t multiprocessors() {
  return std::max<int64_t>(device_attribute(cudaDevAttrMultiProcessorCount), 1);
}

// Kernels that are launched early (programmatic dependent launch; from compute capability 9.0 on,
// elsewhere they are launched as others are) begin as soon as all blocks of the kernel before have
// begun and said so. Until they wait they read only what no kernel writes that may still run, and
// write nothing.
__device__ inline void next_kernel_may_begin() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("griddepcontrol.launch_dependents;");))
}
// Until all that the kernel before has written is there.
__device__ inline void wait_for_kernel_before() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("griddepcontrol.wait;" ::: "memory");))
}

struct LaunchShape {
  dim3 grid, threads;
  size_t shared_bytes = 0;
  unsigned cluster = 1;  // blocks in x
};

template <class Arguments>
void launch_early(void (*kernel)(Arguments), const LaunchShape& shape, const Arguments& arguments) {
  cudaLaunchAttribute how[2] = {};
  how[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  how[0].val.programmaticStreamSerializationAllowed = 1;
  how[1].id = cudaLaunchAttributeClusterDimension;
  how[1].val.clusterDim = {shape.cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.threads;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream();
  config.attrs = how;
  bool can = device_attribute(cudaDevAttrComputeCapabilityMajor) >= 9;
  config.numAttrs = !can ? 0 : shape.cluster > 1 ? 2 : 1;
  cudaError_t status = cudaLaunchKernelEx(&config, kernel, arguments);
  check(status == cudaSuccess, "a kernel of ", shape.grid.x, " x ", shape.grid.y, " x ",
        shape.grid.z, " blocks: ", cudaGetErrorString(status));
}

inline unsigned blocks(int64_t n, int64_t most = 0x7FFFFFFF) {
  return static_cast<unsigned>(std::min(n, most));
}

// A number of rows that grows in equal steps, as a multiple of `size` and what is left: dividing
// anew takes dozens of instructions.
struct Divided {
  int whole, part, size, step_whole, step_part;
  __device__ Divided(int64_t x, int64_t size, int64_t step)
      : whole(static_cast<int>(x / size)),
        part(static_cast<int>(x % size)),
        size(static_cast<int>(size)),
        step_whole(static_cast<int>(step / size)),
        step_part(static_cast<int>(step % size)) {}
  // Whether `whole` has grown by one more than step_whole.
  __device__ bool advance() {
    whole += step_whole;
    part += step_part;
    if (part < size) return false;
    part -= size;
    ++whole;
    return true;
  }
};

// A tile: 32 packs of columns; its threads take every eighth row of those of blockIdx.y.
constexpr int kTileX = 32, kTileY = 8;

__device__ inline int64_t first_row() { return int64_t{blockIdx.y} * kTileY + threadIdx.y; }
__device__ inline int64_t row_step() { return int64_t{gridDim.y} * kTileY; }

inline dim3 tile_threads() { return dim3(kTileX, kTileY); }

inline dim3 tiles(int64_t columns, int N, unsigned parts) {
  return dim3(static_cast<unsigned>((columns + kTileX * N - 1) / (kTileX * N)), parts);
}

// A tile's thread does so for its rows.
template <int kTogether, class Load, class Work>
__device__ void for_rows(int64_t rows, const Load& load, const Work& work) {
  load_ahead<kTogether>(static_cast<int>(first_row()), static_cast<int>(rows),
                        static_cast<int>(row_step()), load, work);
}

// Enough parts of the rows to fill the device with so many blocks for each multiprocessor, and at
// least 8 rows for each thread.
inline int64_t tile_parts(int64_t rows, int64_t columns, int64_t blocks = 8) {
  int64_t wanted = multiprocessors() * blocks / std::max<int64_t>(1, tiles(columns, 8, 1).x);
  return std::clamp<int64_t>(rows / (kTileY * 8), 1, std::max<int64_t>(1, wanted));
}

// to[at ...] = the sums of a tile's threads over threadIdx.y, in order; every thread calls it.
template <class W, int N>
__device__ void sum_over_tile(const W (&sums)[N], W* to, int64_t at, int64_t width) {
  __shared__ W all[kTileY][kTileX * N + 1];
#pragma unroll
  for (int j = 0; j < N; ++j) all[threadIdx.y][j * kTileX + threadIdx.x] = sums[j];
  __syncthreads();
  for (int j = static_cast<int>(threadIdx.y); j < N; j += kTileY) {
    W sum = 0;
    for (int y = 0; y < kTileY; ++y) sum += all[y][j * kTileX + threadIdx.x];
    if (at + j < width) to[at + j] = sum;
  }
}

inline void check_launch(const char* name, int64_t rows, int64_t columns) {
  cudaError_t status = cudaGetLastError();
  check(status == cudaSuccess, name, " of ", rows, " x ", columns,
        " elements: ", cudaGetErrorString(status));
}

}  // namespace neox::cuda
