// The device, the last error, the log, and what LibTorch asks the driver.
#include "machine.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>

namespace cuda_stand_in {
namespace {
thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;

std::set<int>& contexts() {
  static auto* all = new std::set<int>;
  return *all;
}

// Graphs until the GPU fails.
std::atomic<long>& graphs_left() {
  static std::atomic<long> left = [] {
    const char* text = std::getenv("CUDA_STAND_IN_FAILS");
    return text && *text ? std::stol(text) : std::numeric_limits<long>::max();
  }();
  return left;
}

int num_devices() {
  const char* text = std::getenv("CUDA_STAND_IN_DEVICES");
  return text ? std::stoi(text) : 1;
}

}  // namespace

size_t device_memory() {
  const char* text = std::getenv("CUDA_STAND_IN_MEMORY");
  return text ? std::stoul(text) : 150754820096;
}

bool may_make_graph() {
  static long made = 0;
  const char* text = std::getenv("CUDA_STAND_IN_UNMADE");
  return ++made != (text ? std::stol(text) : 0);
}

size_t most_shared_memory() {
  const char* text = std::getenv("CUDA_STAND_IN_SHARED");
  return text ? std::stoul(text) : 227 << 10;
}

cudaError_t failure() { return graphs_left() > 0 ? cudaSuccess : cudaErrorECCUncorrectable; }
void count_graph() { --graphs_left(); }

std::lock_guard<std::recursive_mutex> lock() {
  static auto* mutex = new std::recursive_mutex;
  return std::lock_guard<std::recursive_mutex>(*mutex);
}

void note(const std::string& line) {
  static std::ofstream* log = [] {
    const char* name = std::getenv("CUDA_STAND_IN_LOG");
    return name ? new std::ofstream(name, std::ios::app) : nullptr;
  }();
  if (log) *log << line << "\n" << std::flush;
}

cudaError_t refuse(cudaError_t error, const std::string& what) {
  note("refused: " + what);
  std::fprintf(stderr, "CUDA stand-in: refused: %s\n", what.c_str());
  return last_error = error;
}

void use_context(const char* call) {
  auto guard = lock();
  if (!contexts().insert(current_device).second || contexts().size() == 1) return;
  refuse(cudaErrorDevicesUnavailable,
         concat(call, " by a thread whose current GPU is ", current_device, ", not the process's"));
}

}  // namespace cuda_stand_in

using namespace cuda_stand_in;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) { return *count = num_devices(), cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = current_device, cudaSuccess; }
cudaError_t cudaSetDevice(int device) {
  current_device = device;
  use_context("cudaSetDevice");
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { return *can = 0, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = kVersion, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = kVersion, cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(cudaError_t) { return "an error of the stand-in"; }
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorECCUncorrectable ? "uncorrectable ECC error encountered"
                                            : "refused by the stand-in for CUDA";
}

cudaError_t cudaGetLastError() {
  cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  std::snprintf(text, static_cast<size_t>(size), "0000:%02x:00.0", 0x1e + device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  *p = {};
  p->uuid.bytes[0] = static_cast<char>(device);
  std::strcpy(p->name, "NVIDIA H200 (stand-in)");
  p->major = 9;
  p->totalGlobalMem = device_memory();
  p->multiProcessorCount = kProcessors;
  p->warpSize = 32;
  p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->maxThreadsPerMultiProcessor = 2048;
  p->maxBlocksPerMultiProcessor = 32;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->sharedMemPerBlock = kSharedMemory;
  p->sharedMemPerBlockOptin = most_shared_memory();
  p->sharedMemPerMultiprocessor = 228 << 10;
  p->l2CacheSize = 60 << 20;
  p->textureAlignment = 512;
  p->unifiedAddressing = p->canMapHostMemory = p->concurrentKernels = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      return *value = kProcessors, cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return *value = kSharedMemory, cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return *value = static_cast<int>(most_shared_memory()), cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      return *value = 9, cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      return *value = 0, cudaSuccess;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return *value = 2048, cudaSuccess;
    case cudaDevAttrMaxThreadsPerBlock:
      return *value = 1024, cudaSuccess;
    case cudaDevAttrWarpSize:
      return *value = 32, cudaSuccess;
    case cudaDevAttrMaxGridDimX:
      return *value = 2147483647, cudaSuccess;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      return *value = 65535, cudaSuccess;
    case cudaDevAttrL2CacheSize:
      return *value = 60 << 20, cudaSuccess;
    default:
      note(concat("attribute ", static_cast<int>(attribute), " is not known"));
      return *value = 0, cudaSuccess;
  }
}

// The driver's functions are found by dlsym, if they are here.
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  note(concat("the driver's ", name, " is asked for"));
  *function = nullptr;
  if (result) *result = cudaDriverEntryPointSymbolNotFound;
  return cudaErrorSymbolNotFound;
}

int cuDriverGetVersion(int* version) { return *version = kVersion, 0; }
int cuCtxSetCurrent(void*) { return 0; }
int cuCtxGetCurrent(void** context) { return *context = &last_error, 0; }
int cuDevicePrimaryCtxRetain(void** context, int) { return *context = &last_error, 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  auto guard = lock();
  *flags = 0;
  *active = contexts().contains(device);
  return 0;
}

}  // extern "C"
