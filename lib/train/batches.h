// Micro-batches of a step for one data rank: which samples it holds, as tensors on the device.
#pragma once
#include "config/config.h"
#include "data/sampler.h"
#include "data/step_samples.h"
#include "model/gpt_neox.h"

namespace neox {

class Batches {
 public:
  Batches(const Sampler& sampler, Split split, const BatchPlan& plan, int64_t seq, Mesh& mesh,
          at::Device device);

  // Micro-batch m of the step whose first sample is `first`, of the samples of micro_batch(). Those
  // beyond the step's batch have weight 0.
  Batch get(int64_t first, int64_t m) const;

 private:
  const Sampler& sampler_;
  Split split_;
  BatchPlan plan_;
  int64_t seq_;
  DataRank data_rank_;
  at::Device device_;
};

}  // namespace neox
