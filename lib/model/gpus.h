// The GPUs that this process sees, through the CUDA runtime. In a build without CUDA there are
// none.
#pragma once
#include <string>

namespace neox {

int cuda_runtime();       // of the build, 13000 is 13.0; 0 without CUDA. Asks no driver.
int visible_gpus();       // 0 where CUDA does not work
void use_gpu(int index);  // from now on this thread's current device

struct GpuId {
  std::string uuid;  // "GPU-4f2d..." of the whole world's GPUs
  std::string pci;   // "0000:1b:00.0"
};
GpuId gpu_id(int index);

}  // namespace neox
