// As much of CUDA as the kernels use, on the CPU, for sources that rewrite.cmake has gone over.
// Blocks run one after the other, their threads as fibers of the calling thread, each until it
// waits for others, in an order that can be chosen: results of kernels without races do not depend
// on it. What a GPU leaves undefined throws Fault; shared memory holds NaN at first. Exactly one
// host thread may launch.
#pragma once
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <math.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <stdexcept>
#include <utility>

#define __global__
#define __device__
#define __host__

struct uint3 {
  unsigned x, y, z;
};
struct dim3 : uint3 {
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : uint3{x_, y_, z_} {}
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
using __half = c10::Half;
using __nv_bfloat16 = c10::BFloat16;
struct alignas(4) __half2 {
  __half x, y;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return {a, b}; }
struct cudaStream_t {};
enum cudaError_t { cudaSuccess, cudaErrorInvalidConfiguration };
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount,
  cudaDevAttrComputeCapabilityMajor,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor,
  cudaDevAttrMaxSharedMemoryPerBlockOptin,
  cudaDevAttrClusterLaunch
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize,
  cudaFuncAttributePreferredSharedMemoryCarveout
};
constexpr int cudaSharedmemCarveoutMaxShared = 100;

// Kernels end before others begin.
#define NV_IF_TARGET(...)
#define NV_IF_ELSE_TARGET(target, then, other) NEOX_WITHOUT_PARENTHESES other
#define NEOX_WITHOUT_PARENTHESES(...) __VA_ARGS__
#define __grid_constant__
enum cudaLaunchAttributeID {
  cudaLaunchAttributeProgrammaticStreamSerialization,
  cudaLaunchAttributeClusterDimension
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int programmaticStreamSerializationAllowed;
    uint3 clusterDim;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

inline uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace cuda_on_cpu {

struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Order { kForward, kReversed, kShuffled };  // of blocks, and of their threads

struct Device {
  Order order = Order::kForward;
  int multiprocessors = 2;
  cudaError_t error = cudaSuccess;
  int64_t blocks = 0;        // run so far
  size_t shared_bytes = 0;   // of the block that runs
  size_t dynamic_bytes = 0;  // of them, those that the launch asks for
  size_t allowed_bytes = 0;  // of them, those that the next launch may ask for
};
inline Device device;

// Throws what is thrown by a thread. A size beyond the limits is an error of the device.
void run_grid(dim3 grid, dim3 block, const std::function<void()>& thread);

struct Launch {
  dim3 grid, block;
  size_t shared_bytes;
  template <class... P>
  void run(void (*kernel)(P...), std::type_identity_t<P>... arguments) const {
    device.dynamic_bytes = shared_bytes;
    run_grid(grid, block, [&] { kernel(arguments...); });
  }
};
inline Launch launch(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t) {
  return {grid, block, shared_bytes};
}

// Throws where a block has more threads than the kernel is compiled for.
void check_bounds(unsigned threads, unsigned blocks = 1);
void take_shared(size_t bytes);
[[noreturn]] void fail_alignment(const void* at, size_t alignment);

// A variable of every block's own.
template <class T>
class Shared {
  int64_t block_ = -1;
  alignas(16) std::byte memory_[sizeof(T)];

 public:
  T& here() {
    if (std::exchange(block_, device.blocks) != device.blocks) {
      take_shared(sizeof(T));
      std::memset(memory_, 0xFF, sizeof(T));
    }
    return *reinterpret_cast<T*>(memory_);
  }
};

// The memory of every block that the launch asks for.
void* dynamic_shared();

template <class To, class From>
To& aligned(From* from) {
  if (reinterpret_cast<uintptr_t>(from) % alignof(To) != 0) fail_alignment(from, alignof(To));
  return *reinterpret_cast<To*>(from);
}

// The 8 bytes that the lane whose number differs by these bits brings, when all 32 have come.
uint64_t exchange(uint64_t mine, unsigned mask, unsigned lanes, const std::source_location& where);
void meet_block(const std::source_location& where);

}  // namespace cuda_on_cpu

inline void __syncthreads(std::source_location where = std::source_location::current()) {
  cuda_on_cpu::meet_block(where);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T x, unsigned lanes,
                  std::source_location where = std::source_location::current()) {
  uint64_t bits = 0;
  std::memcpy(&bits, &x, sizeof x);
  bits = cuda_on_cpu::exchange(bits, mask, lanes, where);
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

inline void __syncwarp(std::source_location where = std::source_location::current()) {
  cuda_on_cpu::exchange(0, 0xFFFFFFFF, 0, where);
}

// As the GPU's: the product is rounded, so that errors grow with x.
inline float __expf(float x) { return exp2f(x * 1.44269504f); }
inline float __fdividef(float x, float y) { return x / y; }

inline void __threadfence() {}
template <class T>
T __ldcg(const T* from) {
  return *from;
}
template <class T>
T __ldcs(const T* from) {
  return cuda_on_cpu::aligned<const T>(from);
}
inline int atomicAdd(int* to, int more) { return std::exchange(*to, *to + more); }

inline void cudaGetDevice(int* index) { *index = 0; }
inline void cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const int values[] = {cuda_on_cpu::device.multiprocessors, 9, 228 * 1024, 227 * 1024,
                        0};  // blocks run one by one, not in clusters
  *value = values[attribute];
}
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel, cudaFuncAttribute attribute, int bytes) {
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize)
    cuda_on_cpu::device.allowed_bytes = static_cast<size_t>(bytes);
  return cudaSuccess;
}
inline cudaError_t cudaGetLastError() {
  return std::exchange(cuda_on_cpu::device.error, cudaSuccess);
}
template <class... P>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...),
                               std::type_identity_t<P>... arguments) {
  cuda_on_cpu::launch(config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream)
      .run(kernel, arguments...);
  return cudaGetLastError();
}
inline const char* cudaGetErrorString(cudaError_t) { return "invalid configuration argument"; }

namespace c10::cuda {
inline cudaStream_t getCurrentCUDAStream() { return {}; }
}  // namespace c10::cuda
