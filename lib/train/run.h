// A whole training run on the ranks of a world: from the config to the exit code.
#pragma once
#include <ATen/core/Tensor.h>

#include <exception>
#include <functional>
#include <optional>
#include <string>

#include "base/error.h"
#include "comm/communicator.h"
#include "config/config.h"
#include "launch/control.h"
#include "train/signals.h"
#include "train/time_limit.h"

namespace neox {

class Pace;

// What a rank finds where it runs.
struct RunPlace {
  at::Device device;
  const StopFlag& stop;
  std::string life;                       // of the job; names temporary files
  std::optional<double> allocation_left;  // seconds, from `started` on
  int ranks_here = 1;                     // that share this machine's memory
  std::string failures_file = {};         // $NEOX_FAILURES_FILE: of the script that started the job
  TimeLimit::Clock::time_point started = TimeLimit::Clock::now();
  int num_nodes = 1;     // of the ranks that train
  Pace* pace = nullptr;  // of the ranks that are processes
  // Tells the job of an error before this rank waits for what it still has under way.
  std::function<void(const std::exception&)> failed = [](const std::exception&) {};
};

// Counted from when `place` was made: what comes before the first step takes its time.
// last_save: TrainState::save_seconds of what the life goes on from.
TimeLimit time_limit_of(const RunPlace& place, const Config& config, double last_save = 0);
// What is to be said where a life begins with less time than a save may take; "" where it has more.
std::string little_time(const RunPlace& place, const Config& config, double last_save = 0);

// One rank of a run. Collective over world, which the layout must fill.
Exit train_rank(Config config, Communicator& world, Control& control, const RunPlace& place);

// Trains on `ranks` ranks of this process: threads on the CPU.
Exit train_threads(const Config& config, int ranks, const RunPlace& place);

}  // namespace neox
