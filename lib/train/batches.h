// Micro-batches of a step for one data rank: which samples it holds, as tensors on the device.
#pragma once
#include <future>
#include <span>
#include <vector>

#include "config/batch_schedule.h"
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
  BatchPlan plan;  // of full batches
  int64_t seq = 0;
  BoundaryRules boundaries = {};
  // 2: rows 2 b and 2 b + 1 are the chosen and the rejected answer of sample b.
  int64_t rows_of_sample = 1;
  // kAhead: a thread reads the next one meanwhile, into memory from which a GPU copies by itself.
  enum class Read { kWhenAsked, kAhead } read = Read::kWhenAsked;
  BatchSchedule batches = BatchSchedule(plan.global);
};

// The first `seq` tokens of each sample.
Batch beginning(Batch batch, int64_t seq);

class Batches {
 public:
  Batches(const Sampler& sampler, Split split, const BatchForm& form, Mesh& mesh,
          at::Device device);
  Batches(const Batches&) = delete;

  // The batch of the step whose first sample is `first`.
  BatchPlan plan_at(int64_t first) const;
  // Micro-batch m of the step whose first sample is `first`, of the samples of micro_batch(). Those
  // beyond the step's batch have weight 0. What goes wrong in reading ahead is thrown by the get()
  // of that micro-batch.
  Batch get(int64_t first, int64_t m);
  // One of weight 0, which holds no samples.
  Batch none();

 private:
  struct Place {
    int64_t first, m;
    bool operator==(const Place&) const = default;
  };
  struct HostBatch {
    Tensor tokens, weights, first_sample, documents, positions, rewards;  // tokens: [B, T + 1]
  };
  HostBatch read(const Place& place) const;
  HostBatch read(const SampleRun& run) const;
  Tensor read_rewards(const SampleRun& run) const;
  Batch on_device(const HostBatch& host) const;
  Place behind(const Place& place) const;
  Tensor host_tensor(at::IntArrayRef shape, at::ScalarType type) const;
  using Rule = void (*)(std::span<const int64_t> tokens, int64_t end_of_document,
                        std::span<int64_t> found);
  Tensor by_sample(const Tensor& tokens, const std::vector<int64_t>& counts, Rule rule) const;

  const Sampler& sampler_;
  Split split_;
  BatchForm form_;
  DataRank data_rank_;
  at::Device device_;
  Place expected_{-1, -1};
  std::future<HostBatch> ahead_;  // of expected_; last, as it reads the others
};

}  // namespace neox
