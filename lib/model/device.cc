#include "model/device.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/SDPBackend.h>
#include <ATen/Version.h>
#include <torch/version.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "model/driver.h"
#include "model/gpus.h"
#include "ops/cuda_build.h"

namespace neox {
namespace {

void check_torch() {
  std::string problem = torch_problem(TORCH_VERSION, at::show_config());
  check_usage(problem.empty(), problem);
}

}  // namespace

at::Device pick_device(const Environment& env, const ProcessInfo& process) {
  at::Device device = choose_device(env, process);
  use_device(device);
  return device;
}

void use_device(at::Device device) {
  if (device.is_cuda()) use_gpu(device.index());
}

at::Device choose_device(const Environment& env, const ProcessInfo& process) {
  if (built_with_cuda() && !gpus_hidden(env)) {
    std::string problem = driver_problem(find_driver(), cuda_runtime(), process.host);
    check_usage(problem.empty(), problem);
  }
  check_torch();
  int visible = built_with_cuda() && at::hasCUDA() ? visible_gpus() : 0;
  if (visible > 0) {
    GpuChoice choice = choose_gpu(visible, process, env);
    if (!choice.note.empty() && process.rank == 0) log_warning(choice.note);
    return at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(choice.index));
  }
  std::string allotted = gpus_allotted(env);
  check_usage(allotted.empty() || !built_with_cuda(), "GPUs were allotted to this process (",
              allotted,
              "), but CUDA finds none: check the driver with nvidia-smi, or unset the variable to "
              "train on the CPU");
  std::string unused = built_with_cuda() ? "" : unused_gpus(env, driver_is_loaded());
  check_usage(unused.empty() || allotted.empty() || process.size == 1, unused);
  if (!unused.empty() && process.rank == 0) log_warning(unused);
  return at::kCPU;
}

std::string unused_gpus(const Environment& env, bool driver) {
  std::string allotted = gpus_allotted(env);
  if (gpus_hidden(env) || (allotted.empty() && !driver)) return "";
  return concat(allotted.empty() ? "this machine has an NVIDIA driver"
                                 : "GPUs were allotted (" + allotted + ")",
                ", but this build is for CPUs: make one with env/build.sh cuda, whose programs are "
                "in build/cuda/bin; or say that CPUs are meant: CUDA_VISIBLE_DEVICES= (empty), or "
                "--gpus-per-node=0 of a job");
}

at::Device pick_device(const Environment& env) { return pick_device(env, {.host = host_name()}); }

std::vector<int64_t> unplanned_attention_order() {
  std::vector<int64_t> order;
  for (at::SDPBackend kernel :
       {at::SDPBackend::flash_attention, at::SDPBackend::efficient_attention, at::SDPBackend::math,
        at::SDPBackend::cudnn_attention})
    order.push_back(static_cast<int64_t>(kernel));
  return order;
}

std::vector<int64_t> attention_order(int major, int64_t cudnn) {
  std::vector<int64_t> order = unplanned_attention_order();
  bool faster = (major == 9 || major == 10) && cudnn > 91500;
  if (faster) std::ranges::rotate(order, order.end() - 1);
  return order;
}

GpuChoice choose_gpu(int visible, const ProcessInfo& process, const Environment& env) {
  if (visible >= process.local_size) return {process.local_rank, ""};
  if (visible == 1)
    return {0, concat("each of the ", process.local_size, " ranks of ", process.host,
                      " sees one GPU alone, so that they may not reach each other's memory, and "
                      "exchange through the host's: give all to each by --gpus-per-node=",
                      process.local_size, " instead of --gpus-per-task or --gpu-bind")};
  std::string allotted = gpus_allotted(env);
  fail(Exit::kUsage, process.host, ": ", process.local_size, " ranks run on this node, but ",
       visible, " GPUs are visible", allotted.empty() ? "" : " (" + allotted + ")",
       ": ask for --gpus-per-node=", process.local_size, " without --gpu-bind, or start ", visible,
       " ranks on a node (--ntasks-per-node)");
}

void check_devices_differ(const at::Device& device, const ProcessInfo& process, Control& control) {
  std::string mine;
  if (device.is_cuda()) {
    GpuId id = gpu_id(device.index());
    mine = concat(id.uuid, " ", id.pci, " ", process.host);
  }
  std::string problem = shared_gpu(control.gather(mine));
  check_usage(problem.empty(), problem);
}

std::string shared_gpu(const std::vector<std::string>& gpus) {
  std::map<std::string, size_t> rank_of;
  for (size_t rank = 0; rank < gpus.size(); ++rank) {
    std::istringstream words(gpus[rank]);
    std::string uuid, pci, host;
    if (!(words >> uuid >> pci >> host)) continue;
    auto [first, is_new] = rank_of.emplace(uuid, rank);
    if (!is_new)
      return concat("ranks ", first->second, " and ", rank, " have the same GPU of ", host, ", ",
                    pci, " (", uuid,
                    "): start one task per GPU, with --ntasks-per-node and --gpus-per-node alike");
  }
  return "";
}

std::string describe_device(const at::Device& device) {
  if (!device.is_cpu()) return device.str();
  std::string instructions = at::get_cpu_capability();
#if defined(__aarch64__)
  if (instructions == "DEFAULT") instructions = "NEON";
#endif
  return concat("CPU, ", counted(at::get_num_threads(), "thread"), ", ", instructions);
}

}  // namespace neox
