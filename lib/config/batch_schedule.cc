#include "config/batch_schedule.h"

#include <algorithm>
#include <iterator>

namespace neox {
namespace {

// How often the batch has grown when so many samples are consumed; in double, as in Megatron.
int64_t growths(int64_t consumed, double samples_each) {
  return static_cast<int64_t>(static_cast<double>(consumed) / samples_each);
}

// The least number of steps behind which the batch has grown more than `times`.
int64_t steps_to_grow(int64_t consumed, int64_t size, int64_t times, double samples_each) {
  double left = static_cast<double>(times + 1) * samples_each - static_cast<double>(consumed);
  auto steps = std::max<int64_t>(1, static_cast<int64_t>(left / static_cast<double>(size)) - 1);
  while (growths(consumed + steps * size, samples_each) <= times) ++steps;
  return steps;
}

}  // namespace

BatchSchedule::BatchSchedule(int64_t full, const std::optional<BatchRampUp>& ramp_up) {
  Stage next{.size = full};
  if (ramp_up) {
    auto [start, increment, samples] = *ramp_up;
    double each = static_cast<double>(samples) / static_cast<double>((full - start) / increment);
    while (next.samples_before <= samples) {
      int64_t times = growths(next.samples_before, each);
      next.size = start + times * increment;
      if (next.size >= full) break;
      stages_.push_back(next);
      int64_t steps = steps_to_grow(next.samples_before, next.size, times, each);
      next.steps_before += steps;
      next.samples_before += steps * next.size;
    }
    next.size = full;
  }
  stages_.push_back(next);
}

int64_t BatchSchedule::size_at(int64_t consumed) const {
  auto behind = std::ranges::upper_bound(stages_, consumed, {}, &Stage::samples_before);
  return std::prev(behind)->size;
}

int64_t BatchSchedule::samples_of(int64_t steps) const {
  auto behind = std::ranges::upper_bound(stages_, steps, {}, &Stage::steps_before);
  const Stage& stage = *std::prev(behind);
  return stage.samples_before + (steps - stage.steps_before) * stage.size;
}

int64_t BatchSchedule::steps_of(int64_t samples) const {
  auto behind = std::ranges::upper_bound(stages_, samples, {}, &Stage::samples_before);
  const Stage& stage = *std::prev(behind);
  return stage.steps_before + (samples - stage.samples_before) / stage.size;
}

double BatchSchedule::full_batches(int64_t steps) const {
  return static_cast<double>(samples_of(steps)) / static_cast<double>(stages_.back().size);
}

int64_t samples_of_run(const Config& config, const BatchSchedule& schedule) {
  return config.train.samples > 0 ? config.train.samples : schedule.samples_of(config.train.iters);
}

int64_t tokens_of_run(const Config& config, const BatchSchedule& schedule, int64_t after,
                      int64_t until) {
  int64_t tokens = 0, end = until;
  for (auto stage = schedule.stages().rbegin(); stage != schedule.stages().rend(); ++stage) {
    int64_t begin = std::max(after, stage->steps_before);
    if (begin >= end) continue;
    tokens += stage->size * tokens_of_steps(config, begin, end);
    end = begin;
  }
  return tokens * rows_of_sample(config);
}

}  // namespace neox
