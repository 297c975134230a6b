// How a run starts: fresh, or from the newest checkpoint; and what is frozen from then on.
#pragma once
#include <chrono>
#include <optional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "config/config.h"
#include "tokenizer/tokenizer.h"

namespace neox {

// Of reading a checkpoint, by one rank: storage may be much slower to one of them, for which the
// communicators' deadline is no measure.
inline constexpr std::chrono::hours kMostReading(2);

struct Start {
  std::optional<Checkpoint> checkpoint;  // empty: a fresh start
  Resume resume = Resume::kWhole;        // what of it counts
  TrainState state;                      // of the checkpoint, or of a fresh start
  BatchPlan batch;
  std::string changed;  // keys that the checkpoint's run gave other values
  std::optional<Checkpoint>
      reference;       // of preference optimization: what answers are compared with
  std::string latest;  // of rank 0: what `latest` in save named before it looked there
};

// Collective over control. Finds what `load` names, or, of a run that began from another's, what
// `save` holds already, checks that it fits the config, and completes
// config.model.vocab. `load` that holds nothing is an error unless it is also `save`. tokenizer may
// be null. data_ranks: ranks that hold different samples. The state's save_seconds are what these
// ranks may take for such a save; 0: not known.
Start find_start(Config& config, const Tokenizer* tokenizer, int64_t data_ranks, Control& control);

}  // namespace neox
