// How many samples each step of a run takes.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "config/config.h"

namespace neox {

// The full batch in each step, or, where the batch is ramped up, first smaller ones, which depend
// on the samples that the run has consumed as in Megatron (num_microbatches_calculator.py of
// Megatron-Core 0.16).
class BatchSchedule {
 public:
  // full: samples of a step; those of the last stage.
  explicit BatchSchedule(int64_t full, const std::optional<BatchRampUp>& ramp_up = std::nullopt);

  // Steps of one size, until the next stage begins; the last one never ends.
  struct Stage {
    int64_t steps_before = 0, samples_before = 0, size = 0;
  };
  std::span<const Stage> stages() const { return stages_; }

  // Of the step that begins when the run has consumed so many samples.
  int64_t size_at(int64_t consumed) const;
  // Of the first steps, together.
  int64_t samples_of(int64_t steps) const;
  // Whole steps that so many samples make.
  int64_t steps_of(int64_t samples) const;
  // Of the first steps, together, in full batches: what learning rates are counted in.
  double full_batches(int64_t steps) const;

 private:
  std::vector<Stage> stages_;  // never empty
};

// Of the run of a configuration whose full batch is `global`.
inline BatchSchedule batch_schedule(const Config& config, int64_t global) {
  return BatchSchedule(global, config.batch.ramp_up);
}

// Training samples of the whole run: train_samples, or those of train_iters steps.
int64_t samples_of_run(const Config& config, const BatchSchedule& schedule);

// Tokens of the steps after + 1 to until, over all ranks.
int64_t tokens_of_run(const Config& config, const BatchSchedule& schedule, int64_t after,
                      int64_t until);

}  // namespace neox
