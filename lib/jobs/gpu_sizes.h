// Memory and rates of GPUs by the names that Slurm has for them.
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

// As published: dense products of bf16 (V100, T4: fp16), TFLOP/s; what a GPU sends to others of its
// node, and its share of the network of the largest instance of AWS with it, GB/s.
struct GpuRates {
  double tflops = 0, link = 0, network = 0;
};
// Nothing where the type is not known.
std::optional<GpuRates> gpu_rates(const std::string& type);

}  // namespace neox
