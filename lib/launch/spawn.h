// Ranks as processes of this machine, started by the program itself: for a machine without a
// launcher, and for jobs of one task per node.
#pragma once
#include <atomic>
#include <string>
#include <vector>

#include "base/error.h"
#include "launch/process_info.h"

namespace neox {

// The environment of the i-th of `ranks` processes that `parent` starts: NEOX_RANK and the like.
Environment spawned_environment(const ProcessInfo& parent, int ranks, int i);

// Runs `command` (the program and its arguments; --spawn is left out) `ranks` times and waits for
// all. A signal that `stop` receives is passed on. Returns kDone where all did, else the code of
// the first that ended badly; the others notice by themselves. Throws (64) where the launcher of
// several parents does not tell where ranks meet (mpirun).
Exit spawn_ranks(const std::vector<std::string>& command, const ProcessInfo& parent, int ranks,
                 const std::atomic<int>& stop);

}  // namespace neox
