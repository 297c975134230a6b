#include "doctor/nvml.h"

#include <dlfcn.h>

#include <array>

namespace neox {
namespace {

// The few of nvml.h that are called; its interface is kept stable by its versioned names.
using Device = struct NvmlDevice*;
struct Memory {
  unsigned long long total, free, used;
};
constexpr int kUncorrected = 1, kVolatile = 0, kGpuSensor = 0;
constexpr unsigned long long kSlowdown = 0x8 | 0x40 | 0x80;  // hardware, its heat, its power brake

class Nvml {
 public:
  Nvml() : library_(::dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL)) {
    ready_ = library_ && call("nvmlInit_v2") == 0;
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() {
    if (ready_) call("nvmlShutdown");
    if (library_) ::dlclose(library_);
  }
  bool ready() const { return ready_; }

  // 0: it worked. An older library without the function, and a GPU without the property, do not.
  template <class... Args>
  int call(const char* name, Args... args) const {
    auto* function = reinterpret_cast<int (*)(Args...)>(::dlsym(library_, name));
    return function ? function(args...) : -1;
  }

 private:
  void* library_;
  bool ready_ = false;
};

Gpu describe(const Nvml& nvml, Device device) {
  Gpu gpu;
  std::array<char, 96> name{};
  if (nvml.call("nvmlDeviceGetName", device, name.data(), 96u) == 0) gpu.name = name.data();
  Memory memory{};
  if (nvml.call("nvmlDeviceGetMemoryInfo", device, &memory) == 0)
    gpu.memory_bytes = static_cast<int64_t>(memory.total);
  unsigned long long errors = 0, reasons = 0;
  if (nvml.call("nvmlDeviceGetTotalEccErrors", device, kUncorrected, kVolatile, &errors) == 0)
    gpu.ecc_errors = static_cast<int64_t>(errors);
  unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0, degrees = 0;
  if (nvml.call("nvmlDeviceGetRemappedRows", device, &corrected, &uncorrected, &pending, &failed) ==
      0) {
    gpu.remap_pending = pending != 0;
    gpu.remap_failed = failed != 0;
  }
  if (nvml.call("nvmlDeviceGetCurrentClocksThrottleReasons", device, &reasons) == 0)
    gpu.slowed_by_hardware = (reasons & kSlowdown) != 0;
  if (nvml.call("nvmlDeviceGetTemperature", device, kGpuSensor, &degrees) == 0)
    gpu.temperature = static_cast<int>(degrees);
  return gpu;
}

}  // namespace

std::optional<std::vector<Gpu>> list_gpus() {
  Nvml nvml;
  unsigned count = 0;
  if (!nvml.ready() || nvml.call("nvmlDeviceGetCount_v2", &count) != 0) return std::nullopt;
  std::vector<Gpu> gpus;
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    if (nvml.call("nvmlDeviceGetHandleByIndex_v2", i, &device) == 0)
      gpus.push_back(describe(nvml, device));
  }
  return gpus;
}

}  // namespace neox
