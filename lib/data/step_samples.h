// Which samples a step of training takes, and which of them a data rank has: the arithmetic that
// the trainer and the tool that shows samples share. Pure functions.
#pragma once
#include <cstdint>

#include "config/batch_schedule.h"
#include "config/config.h"
#include "data/sampler.h"

namespace neox {

// Samples first .. first + size - 1 of a split.
struct SampleRun {
  int64_t first = 0, size = 0;
};

// A rank among those that hold different samples.
struct DataRank {
  int64_t rank = 0, ranks = 1;
};

// Of micro-batch m of the step whose first sample is `first`. As in GPT-NeoX, each run of micro x
// ranks samples is one micro-step, of which rank r takes the r-th part. Where the step's batch ends
// within the micro-batch, size is below micro.
SampleRun micro_batch(const BatchPlan& plan, const DataRank& rank, int64_t first, int64_t m);

// What is asked of each split, as GPT-NeoX counts it: it enters the shuffle of the samples. Of
// train_epochs it is one sample, which one epoch has, whose samples then come again and again.
// train_samples: those of the run, as its first start counted them.
SampleCounts sample_counts(const TrainConfig& train, const BatchSchedule& batches,
                           int64_t train_samples);

}  // namespace neox
