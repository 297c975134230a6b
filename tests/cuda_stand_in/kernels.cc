// Kernels: their registration by the code that nvcc makes, and launches.
#include <cxxabi.h>

#include <algorithm>
#include <map>
#include <vector>

#include "machine.h"

namespace cuda_stand_in {
namespace {

struct Kernel {
  std::string name;
  size_t dynamic_shared = kSharedMemory;
};

std::map<const void*, Kernel>& kernels() {
  static auto* all = new std::map<const void*, Kernel>;
  return *all;
}

struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

std::string readable(const char* symbol) {
  int status = 0;
  char* name = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
  std::string text = name ? name : symbol;
  std::free(name);
  return text;
}

// What an H200 refuses ("Compute Capabilities" of the CUDA programming guide).
std::string problem(const Kernel& kernel, const Configuration& c) {
  size_t threads = size_t{c.block.x} * c.block.y * c.block.z;
  if (threads == 0 || threads > 1024 || c.block.z > 64) return "threads of a block";
  if (c.grid.x == 0 || c.grid.y == 0 || c.grid.z == 0) return "no blocks";
  if (c.grid.x > 2147483647 || c.grid.y > 65535 || c.grid.z > 65535) return "blocks";
  if (c.shared > kernel.dynamic_shared) return "shared memory";
  return "";
}

cudaError_t launch(const void* function, const Configuration& c) {
  auto guard = lock();
  const Kernel& kernel = kernels()[function];
  auto shape = [](const dim3& d) { return concat(d.x, "x", d.y, "x", d.z); };
  std::string what =
      concat("kernel ", shape(c.grid), " of ", shape(c.block), ", ", c.shared, ": ", kernel.name);
  std::string wrong = problem(kernel, c);
  if (!wrong.empty()) return refuse(cudaErrorInvalidConfiguration, wrong + ": " + what);
  enqueue(c.stream, what);
  return cudaSuccess;
}

}  // namespace
}  // namespace cuda_stand_in

using namespace cuda_stand_in;

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* binary = nullptr;
  return &binary;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

void __cudaRegisterFunction(void**, const char* function, char*, const char* symbol, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  auto guard = lock();
  kernels()[function].name = readable(symbol);
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  const Configuration& last = configurations.back();
  *grid = last.grid;
  *block = last.block;
  *shared = last.shared;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  configurations.pop_back();
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void**, size_t shared,
                               cudaStream_t stream) {
  return launch(kernel, {grid, block, shared, stream});
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* function, void**) {
  return launch(function, {c->gridDim, c->blockDim, c->dynamicSmemBytes, c->stream});
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->ptxVersion = attributes->binaryVersion = 90;
  attributes->maxDynamicSharedSizeBytes = kSharedMemory;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  auto guard = lock();
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  Kernel& kernel = kernels()[function];
  kernel.dynamic_shared = static_cast<size_t>(std::max(value, 0));
  if (kernel.dynamic_shared <= most_shared_memory()) return cudaSuccess;
  return refuse(cudaErrorInvalidValue, concat(value, " bytes of shared memory: ", kernel.name));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*,
                                                                   int threads, size_t, unsigned) {
  *blocks = std::clamp(2048 / std::max(1, threads), 1, 32);
  return cudaSuccess;
}

cudaError_t cudaGetSymbolAddress(void** at, const void*) {
  static char variable[1 << 16];
  *at = variable;
  return cudaSuccess;
}

cudaError_t cudaMemcpyToSymbol(const void*, const void*, size_t, size_t, cudaMemcpyKind) {
  return cudaSuccess;
}

}  // extern "C"
