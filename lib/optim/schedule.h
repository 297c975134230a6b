// Learning rates as GPT-NeoX (megatron/learning_rates.py) and Megatron-Core
// (optimizer_param_scheduler.py) compute them.
#pragma once
#include <vector>

#include "config/config.h"

namespace neox {

// The rate of the update that follows `step` successful ones.
double learning_rate(const ScheduleConfig& config, int64_t step);

// The rates of steps 0..iters - 1.
std::vector<double> learning_rates(const ScheduleConfig& config, int64_t iters);

}  // namespace neox
