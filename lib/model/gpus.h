// The GPUs that this process sees, through the CUDA runtime. In a build without CUDA there are
// none.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

namespace neox {

int cuda_runtime();  // of the build, 13000 is 13.0; 0 without CUDA. Asks no driver.
int visible_gpus();  // 0 where CUDA does not work
// From now on this thread's current device; attention takes its kernels in the order for it.
void use_gpu(int index);

struct GpuId {
  std::string uuid;  // "GPU-4f2d..." of the whole world's GPUs
  std::string pci;   // "0000:1b:00.0"
};
GpuId gpu_id(int index);

// Bytes that this process held at most, with what its allocator keeps for later.
int64_t gpu_peak_memory(int index);

// LibTorch's attention kernels (at::SDPBackend), the fastest first, for a GPU of compute capability
// major.x and a version of cuDNN (91900 is 9.19). On Hopper and the Blackwell of data centres cuDNN
// is up to twice as fast as Flash Attention 2, which was written for Ampere; before 9.15.1 it is
// wrong for some lengths. On others LibTorch does not prefer it either.
std::vector<int64_t> attention_order(int major, int64_t cudnn);
// Those that need no plan of each new shape first.
std::vector<int64_t> unplanned_attention_order();

// While it lives, attention on the device takes its kernels in that order: for texts, each of which
// has another length. A plan of cuDNN takes tens to hundreds of milliseconds.
class UnplannedAttention {
 public:
  explicit UnplannedAttention(at::Device device);
  ~UnplannedAttention();
  UnplannedAttention(const UnplannedAttention&) = delete;
  UnplannedAttention& operator=(const UnplannedAttention&) = delete;

 private:
  std::vector<int64_t> before_;  // on a CPU empty
};

// The kernel that causal attention of T tokens with heads of D elements takes in training: "cuDNN".
std::string attention_kernel(int index, c10::ScalarType type, int64_t T, int64_t D);

}  // namespace neox
