// Layouts of a training run on an allocation: which of them fit the memory of its GPUs, and what
// each costs. By arithmetic; nothing is run.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/estimate.h"
#include "jobs/gpu_sizes.h"

namespace neox {

// Ranks that a run would have: one for each GPU.
struct Gpus {
  int64_t nodes = 1, per_node = 1;
  double room = 0;  // bytes of each
  GpuRates rates;
};

// What a step of a configuration costs. Ranks are as in Mesh: those of tp are neighbours, and
// stages lie farthest apart.
struct LayoutCost {
  Estimate estimate;
  double idle = 0;  // of a step, what stages wait for each other with one sequence of micro-batches
                    // (Narayanan et al. 2021, arXiv 2104.04473, section 2.2)
  double link_bytes = 0, network_bytes = 0;  // that a rank sends within its node, and to others
  double seconds = 0;                        // work at half the GPU's peak, and waiting
};
// Throws Error (64) where the layout or the batch does not fit the ranks.
LayoutCost layout_cost(const Config& config, const Gpus& gpus, int64_t vocab);

struct LayoutChoice {
  Config config;  // with its keys
  LayoutCost cost;
};

// Those that fit, of each number of tensor-parallel ranks and stages the quickest, the quickest
// first. The global batch is that of `config`. entries: of the vocabulary.
std::vector<LayoutChoice> find_layouts(const Config& config, const Gpus& gpus, int64_t entries);

// "key=value" of what is not the same in both.
std::vector<std::string> layout_keys(const LayoutChoice& layout, const Config& base);

// The table, with the configuration's own layout in it, and how to take the first. accepts: whether
// a configuration with these keys can be read.
std::string layout_table(const Config& config, const Gpus& gpus, int64_t entries,
                         const std::function<bool(const std::vector<std::string>& keys)>& accepts);

// The highest zero_optimization.stage that its optimizer and enable_cuda_graph allow.
int64_t most_zero_stage(const Config& config);

}  // namespace neox
