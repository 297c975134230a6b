// What a run says of itself: log lines, a live bar on a terminal, metrics. Rank 0's speaks, the
// others' are silent.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/progress.h"
#include "config/batch_schedule.h"
#include "config/config.h"
#include "metrics/metrics.h"
#include "train/step.h"

namespace neox {

struct ReportOptions {
  bool speaks = true;
  int64_t first_iteration = 0;  // steps taken before
  at::Device device = at::kCPU;
  BatchPlan batch = {};
  BatchSchedule batches = BatchSchedule(batch.global);
  int64_t ranks = 1;
};

class Report {
 public:
  Report(const Config& config, const ReportOptions& options);

  void begin();  // just before the first step
  // After each step, in order. seconds: that it took a device, where that has a clock; the host
  // hears of it later where it is busy, such as while it records the next one.
  void step(int64_t iteration, const StepReport& step, std::optional<double> seconds = {});
  // What was measured beside it.
  void measured(int64_t iteration, const Scalars& scalars);
  void evaluation(int64_t iteration, const char* split, const Evaluation& means);
  void samples(int64_t iteration, const std::string& text);
  void saved(int64_t iteration, double seconds);  // that training stood for it
  // What holds this rank's memory, by the greatest there was so far.
  void memory(const TrainStep::Memory& parts);
  // Time that is no training: evaluation, saving.
  void pause();
  void resume();
  void finish();

  static std::filesystem::path metrics_dir(const Config& config);

 private:
  using Clock = std::chrono::steady_clock;
  // Means of the steps since the last line.
  struct Rates {
    double seconds;                 // of a step
    double samples, tokens, flops;  // of a second
    std::optional<double> used;     // of the devices' peak, in %
  };
  Rates rates(int64_t iteration) const;
  void log_interval(int64_t iteration, const StepReport& step);
  std::string line(int64_t iteration, const StepReport& step, const Rates& rates) const;
  void begin_interval(int64_t iteration);
  int64_t batch_of(int64_t iteration) const;             // its samples
  double tokens_of(int64_t after, int64_t until) const;  // of those steps, of all samples
  void keep(const std::function<void()>& write);
  double seconds_since_mark() const;

  const Config& config_;
  ReportOptions options_;
  std::optional<Metrics> metrics_;
  std::unique_ptr<Progress> progress_;
  Clock::time_point mark_ = Clock::now(), paused_;
  double paused_seconds_ = 0, device_seconds_ = 0;
  int64_t marked_iteration_;  // of mark_
  int64_t device_steps_ = 0;  // since then, in device_seconds_
  int64_t skipped_ = 0;       // steps since the last line that changed nothing
  double losses_ = 0;         // sum over the others since then
  double tokens_;             // of all steps so far
  bool loses_metrics_ = false, learns_nothing_ = false;
};

// "peak memory 1.2 GB, on the GPU 30.4 GB"; the latter where there is one.
std::string peak_memory_text(int64_t bytes, int64_t gpu_bytes);

}  // namespace neox
