#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
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

at::SDPBackend attention_choice(int index, c10::ScalarType type, int64_t T, int64_t D) {
  at::Device gpu(at::kCUDA, static_cast<c10::DeviceIndex>(index));
  // In memory T stands before the heads.
  at::Tensor x = at::empty({1, T, 1, D}, at::device(gpu).dtype(type)).transpose(1, 2);
  x.set_requires_grad(true);
  return static_cast<at::SDPBackend>(at::_fused_sdp_choice(x, x, x, {}, 0.0, true));
}

}  // namespace

int cuda_runtime() { return CUDART_VERSION; }
int visible_gpus() { return c10::cuda::device_count(); }

void use_gpu(int index) {
  auto device = static_cast<c10::DeviceIndex>(index);
  c10::cuda::set_device(device);
  // When LibTorch is first asked, it sets an order of its own.
  attention_choice(index, at::kBFloat16, 1, 64);
  int64_t cudnn = at::detail::getCUDAHooks().versionRuntimeCuDNN();
  at::globalContext().setSDPPriorityOrder(
      attention_order(at::cuda::getDeviceProperties(device)->major, cudnn));
}

UnplannedAttention::UnplannedAttention(at::Device device) {
  if (!device.is_cuda()) return;
  at::Context& context = at::globalContext();
  for (at::SDPBackend kernel : context.sDPPriorityOrder())
    before_.push_back(static_cast<int64_t>(kernel));
  context.setSDPPriorityOrder(unplanned_attention_order());
}

UnplannedAttention::~UnplannedAttention() {
  if (!before_.empty()) at::globalContext().setSDPPriorityOrder(before_);
}

GpuId gpu_id(int index) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties", index);
  char pci[32] = "";
  check_cuda(cudaDeviceGetPCIBusId(pci, sizeof pci, index), "cudaDeviceGetPCIBusId", index);
  return {uuid_text(properties.uuid), pci};
}

int64_t gpu_peak_memory(int index) {
  auto stats =
      c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(index));
  return stats.reserved_bytes[0].peak;  // of all kinds
}

std::string attention_kernel(int index, c10::ScalarType type, int64_t T, int64_t D) {
  switch (attention_choice(index, type, T, D)) {
    case at::SDPBackend::cudnn_attention:
      return "cuDNN";
    case at::SDPBackend::flash_attention:
      return "Flash Attention 2";
    case at::SDPBackend::efficient_attention:
      return "LibTorch's memory-efficient kernel";
    default:
      return "plain products";
  }
}

}  // namespace neox
