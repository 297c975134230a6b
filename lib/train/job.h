// A training run over the processes of a job: they meet, compare what must agree, choose devices,
// and a rank that is lost ends all of them.
#pragma once
#include <string>
#include <vector>

#include "base/error.h"
#include "config/config.h"
#include "launch/process_info.h"
#include "train/signals.h"

namespace neox {

// Collective over the processes of the job. spawn > 1: that many ranks for each process, as threads
// on the CPU of a job of one process, as processes started with `arguments` on GPUs. Returns kDone
// or kRequeue. Throws what a rank threw, with rank and node before it where there are several.
Exit train(const Config& config, const ProcessInfo& process, const Environment& env, int spawn,
           const std::vector<std::string>& arguments, const StopFlag& stop);

// The text of --dry-run: what the run will need, without building the model.
std::string dry_run(const Config& config, int64_t ranks);

}  // namespace neox
