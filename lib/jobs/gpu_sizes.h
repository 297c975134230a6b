// Memory of GPUs by the names that Slurm has for them.
#pragma once
#include <optional>
#include <string>

namespace neox {

struct GpuSizes {
  std::optional<double> most;  // GB; nothing where the type is not known
  double least = 0;            // GB, where the type has a smaller size too; else 0
};

// Of "h100", "H100", "nvidia_h100_80gb_hbm3", "a100-sxm4-40gb": a size in the name wins.
GpuSizes gpu_sizes(const std::string& type);

}  // namespace neox
