#include "data/step_samples.h"

#include <algorithm>

namespace neox {

SampleRun micro_batch(const BatchPlan& plan, const DataRank& rank, int64_t first, int64_t m) {
  int64_t index = (m * rank.ranks + rank.rank) * plan.micro;
  return {first + index, std::clamp<int64_t>(plan.global - index, 0, plan.micro)};
}

SampleCounts sample_counts(const TrainConfig& train, const BatchSchedule& batches,
                           int64_t train_samples) {
  if (train.epochs > 0) {
    int64_t evaluated = train.eval_iters > 0 ? 1 : 0;
    return {.train = 1, .valid = evaluated, .test = evaluated};
  }
  int64_t iters = batches.steps_of(train_samples), full = batches.stages().back().size;
  int64_t interval = std::max<int64_t>(train.eval_interval, 1);
  return {.train = train_samples,
          .valid = (iters / interval + 1) * train.eval_iters * full,
          .test = train.eval_iters * full};
}

}  // namespace neox
