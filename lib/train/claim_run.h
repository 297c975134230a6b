// The run directory, before the first step: a run has it for itself, on storage that all ranks see.
#pragma once
#include <optional>

#include "checkpoint/checkpoint.h"
#include "config/config.h"
#include "launch/control.h"
#include "train/run.h"
#include "train/start.h"

namespace neox {

// Throws Error (64) for a job that its own checkpoints would refuse once it is requeued.
void check_goes_on(const Config& config, const RunPlace& place);

// Collective over control. Rank 0 holds the claim; what it wrote is seen by all, or the storage is
// not shared: Error (64). Nothing where nothing is saved. Warns of storage that does not last or
// has no room.
std::optional<RunClaim> claim_run(const Config& config, const Start& start, const RunPlace& place,
                                  Control& control);

}  // namespace neox
