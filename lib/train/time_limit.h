// When a run must stop by itself: at the end of its allocation, or after exit_duration_in_mins. It
// stops early enough to save, by the time that a save and a step have taken so far.
#pragma once
#include <chrono>
#include <optional>
#include <span>
#include <string>

#include "launch/control.h"
#include "launch/environment.h"

namespace neox {

class TimeLimit {
 public:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;

  // allocation_left: seconds until the scheduler ends the job, where that is known. duration:
  // seconds of this run, 0: unlimited. guess: seconds that a save may take, until one was measured.
  TimeLimit(std::optional<double> allocation_left, double duration, double guess,
            Clock::time_point start = Clock::now());

  void measured_save(double seconds) { save_ = seconds; }
  // A save is being written, which the last one has to wait for.
  void save_under_way(bool under_way) { under_way_ = under_way; }
  void measured_step(double seconds) { step_ = seconds; }
  // Why the run must stop now, or "".
  std::string due(Clock::time_point now = Clock::now()) const;

 private:
  Clock::time_point start_;
  std::optional<double> allocation_;  // both in seconds after start_
  double duration_;
  double save_, step_ = 0;
  bool under_way_ = false;
};

// Seconds until the job's end by NEOX_JOB_END_TIME or SLURM_JOB_END_TIME (Unix time).
std::optional<double> allocation_left(const Environment& env);

// The end of the allocation as all ranks take it.
struct SharedEnd {
  std::optional<double> left;  // seconds from the rank's own start on, by rank 0's clock
  std::string warning;         // of nodes whose clock is more than a minute off, or ""
};
// Collective. A stop of any rank stops all, so that by each rank's own clock the one that is most
// ahead would hold. left: seconds from `start` on, by this rank's clock. hosts: by rank.
SharedEnd share_end(Control& control, std::span<const std::string> hosts,
                    TimeLimit::Clock::time_point start, std::optional<double> left);

}  // namespace neox
