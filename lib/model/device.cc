#include "model/device.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include "base/error.h"
#include "base/log.h"
#include "ops/cuda_build.h"

namespace neox {

at::Device pick_device(const Environment& env) {
  if (built_with_cuda() && at::hasCUDA()) return at::Device(at::kCUDA, 0);
  std::string allotted = gpus_allotted(env);
  check_usage(allotted.empty() || !built_with_cuda(), "GPUs were allotted to this process (",
              allotted,
              "), but CUDA finds none: check the driver with nvidia-smi, or unset the variable to "
              "train on the CPU");
  if (!allotted.empty())
    log_warning("GPUs were allotted (", allotted,
                "), but this build has no CUDA: make one with env/build.sh cuda");
  return at::kCPU;
}

std::string describe_device(const at::Device& device) {
  if (!device.is_cpu()) return device.str();
  return concat("CPU, ", at::get_num_threads(),
                at::get_num_threads() == 1 ? " thread, " : " threads, ", at::get_cpu_capability());
}

}  // namespace neox
