// A whole training run on the ranks of a world: from the config to the exit code.
#pragma once
#include "base/error.h"
#include "comm/communicator.h"
#include "config/config.h"
#include "launch/control.h"
#include "launch/environment.h"
#include "train/signals.h"

namespace neox {

// The layout of `world` ranks. Throws where pipe x tensor x shard does not fill it.
struct Layout;
Layout layout_of(const LayoutConfig& config, int world);

// Trains on `ranks` ranks of this machine: one, or several as threads on the CPU.
Exit train_here(const Config& config, int ranks, const Environment& env, const StopFlag& stop);

// One rank of a run. Collective over world.
Exit train_rank(Config config, Communicator& world, Control& control, const Environment& env,
                const StopFlag& stop);

// The text of --dry-run: what the run will need, without building the model.
std::string dry_run(const Config& config, int ranks);

}  // namespace neox
