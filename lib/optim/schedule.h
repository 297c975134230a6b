// Learning rates as GPT-NeoX (megatron/learning_rates.py) and Megatron-Core
// (optimizer_param_scheduler.py) compute them.
#pragma once
#include <vector>

#include "config/batch_schedule.h"
#include "config/config.h"

namespace neox {

// The rate of the update that follows `step` successful ones of the full batch.
double learning_rate(const ScheduleConfig& config, double step);

// The rates of steps 0..iters - 1, by the samples before each of them as in Megatron.
std::vector<double> learning_rates(const ScheduleConfig& config, int64_t iters,
                                   const BatchSchedule& batches);

}  // namespace neox
