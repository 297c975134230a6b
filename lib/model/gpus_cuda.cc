#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include "base/error.h"
#include "base/text.h"
#include "model/gpus.h"

namespace neox {
namespace {

void check_cuda(cudaError_t status, const char* call, int index) {
  check(status == cudaSuccess, call, " of GPU ", index, ": ", cudaGetErrorString(status));
}

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = hexadecimal({uuid.bytes, sizeof uuid.bytes});
  for (size_t dash : {20, 16, 12, 8}) text.insert(dash, "-");
  return "GPU-" + text;
}

}  // namespace

int cuda_runtime() { return CUDART_VERSION; }
int visible_gpus() { return c10::cuda::device_count(); }
void use_gpu(int index) { c10::cuda::set_device(static_cast<c10::DeviceIndex>(index)); }

GpuId gpu_id(int index) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties", index);
  char pci[32] = "";
  check_cuda(cudaDeviceGetPCIBusId(pci, sizeof pci, index), "cudaDeviceGetPCIBusId", index);
  return {uuid_text(properties.uuid), pci};
}

}  // namespace neox
