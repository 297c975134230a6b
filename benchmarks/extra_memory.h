// What a piece of work holds of memory while it runs.
#pragma once
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <malloc.h>

#include <fstream>
#include <functional>
#include <string>

#include "base/error.h"

namespace neox {

// Until the device has done what it was given.
inline void wait(at::Device device) {
  if (!device.is_cpu())
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

// A number of kB that Linux tells of this process.
inline double status_kilobytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name)) return std::stod(line.substr(name.size() + 1));
  fail(Exit::kInternal, "/proc/self/status has no ", name);
}

// Bytes that are held at most while it runs, beyond those before: of the device's allocator; on a
// CPU of the process, whose greatest size begins anew (Linux, clear_refs).
inline double extra_bytes(at::Device device, const std::function<void()>& run) {
  if (device.is_cpu()) {
    ::malloc_trim(0);  // what is freed but kept would be used again unseen
    std::ofstream("/proc/self/clear_refs") << 5;
    double before = status_kilobytes("VmRSS");
    run();
    return (status_kilobytes("VmHWM") - before) * 1024;
  }
  auto* allocator = at::getDeviceAllocator(device.type());
  auto held = [&] { return allocator->getDeviceStats(device.index()).allocated_bytes[0]; };
  wait(device);
  allocator->resetPeakStats(device.index());
  int64_t before = held().current;
  run();
  wait(device);
  return static_cast<double>(held().peak - before);
}

}  // namespace neox
