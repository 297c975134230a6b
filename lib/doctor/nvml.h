// The GPUs of this node as NVIDIA's management library tells, which is loaded where it is there.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace neox {

struct Gpu {
  std::string name;
  int64_t memory_bytes = 0;
  int64_t ecc_errors = 0;           // not corrected, since the driver was loaded
  bool remap_pending = false;       // a damaged row is replaced at the next reset
  bool remap_failed = false;        // no spare rows are left
  bool slowed_by_hardware = false;  // clocks are down for heat or power
  int temperature = 0;              // degrees Celsius
};

// Nothing without the library or without a driver.
std::optional<std::vector<Gpu>> list_gpus();

}  // namespace neox
