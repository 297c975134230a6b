// Where the time of some steps went: a trace of operations and kernels in Chrome's format
// (Kineto's; open it in ui.perfetto.dev) and a short table of the costliest.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "comm/quiet_libtorch.h"
#include "config/config.h"

namespace neox {

class StepProfiler {
 public:
  // of: the rank whose steps these are, of how many, whether it works on a GPU, and the steps that
  // were taken before. Throws (64) where another rank in this process is profiled. Rank 0 warns of
  // steps and ranks that the run does not have.
  struct Of {
    int rank = 0, ranks = 1;
    bool gpu = false;
    int64_t first_iteration = 0;
  };
  StepProfiler(const Config& config, Of of);
  ~StepProfiler();
  StepProfiler(const StepProfiler&) = delete;
  StepProfiler& operator=(const StepProfiler&) = delete;

  // The same on all ranks: does one of them start or stop once `done` steps are done? Then the
  // device must have finished them.
  bool due(int64_t done) const;
  // Starts or stops where this rank does.
  void at(int64_t done);
  // Stops where it still runs.
  void finish(int64_t done);

 private:
  void start();
  void stop(int64_t done);

  ProfileConfig config_;
  fs::path directory_;
  Of of_;
  bool chosen_ = false, running_ = false;
  std::optional<QuietLibTorch> quiet_;  // while it runs
  int64_t started_at_ = 0;
};

// What took time, on one thread or stream.
struct Span {
  std::string name;
  uint64_t thread = 0, start = 0, end = 0;  // nanoseconds
};

struct SelfTime {
  std::string name;
  int64_t calls = 0;
  double seconds = 0;  // without the spans inside
};

// The time of each name without that of the spans that it encloses on its thread, largest first.
std::vector<SelfTime> self_times(std::vector<Span> spans);
// The `rows` first as a table with shares of the total, and the total.
std::string time_table(std::string_view title, const std::vector<SelfTime>& times, size_t rows);

}  // namespace neox
