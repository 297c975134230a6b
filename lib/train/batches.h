// Micro-batches of a step for one data rank: which samples it holds, as tensors on the device.
#pragma once
#include "config/config.h"
#include "data/sampler.h"
#include "data/step_samples.h"
#include "model/gpt_neox.h"

namespace neox {

// What a batch says of the documents in its samples.
struct BoundaryRules {
  int64_t end_of_document = -1;  // the token
  enum class At { kIgnored, kRespected } attention = At::kIgnored, positions = At::kIgnored;
};

struct BatchForm {
  BatchPlan plan;
  int64_t seq = 0;
  BoundaryRules boundaries = {};
};

class Batches {
 public:
  Batches(const Sampler& sampler, Split split, const BatchForm& form, Mesh& mesh,
          at::Device device);

  // Micro-batch m of the step whose first sample is `first`, of the samples of micro_batch(). Those
  // beyond the step's batch have weight 0.
  Batch get(int64_t first, int64_t m) const;

 private:
  const Sampler& sampler_;
  Split split_;
  BatchForm form_;
  DataRank data_rank_;
  at::Device device_;
};

}  // namespace neox
