// What a run has of S3 (s3_path): copies of its checkpoints, from which it goes on where its own
// are lost.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include "config/config.h"
#include "launch/control.h"
#include "s3/checkpoint_copies.h"
#include "train/run.h"
#include "train/start.h"

namespace neox {

class RunCopies {
 public:
  // Collective over control. Where `save` holds no checkpoint and S3 does, rank 0 fetches that: the
  // newest, or `iteration`. Throws Error (74) where S3 does not answer, and (64) where it has
  // copies of an earlier run and this one is not to go on from any.
  RunCopies(const Config& config, Control& control, const RunPlace& place);

  // Begins to copy what is there already, up to what the run goes on from: what is newer was passed
  // over, as damaged. On rank 0, which has claimed the directory.
  void begin(const Start& start);
  // On rank 0, when the checkpoint of that step is whole.
  void saved(int64_t step);
  // Whether that step is still to be copied. On rank 0, from any thread.
  bool needs(int64_t step) const { return copies_ && copies_->needs(step); }
  // Collective. Waits until all is copied. Throws Error (74) on all ranks where something is not,
  // and where a stop is asked for.
  void finish();

 private:
  void fetch_lost();
  void finish_here();
  // Of rank 0, for work of any length: throws where a stop is asked for, and tells the others now
  // and then that it goes on.
  Poll poll(const char* when);
  // Collective. What rank 0 has to tell behind such work.
  std::string told_by_first(const std::string& mine);

  const Config& config_;
  Control& control_;
  const RunPlace& run_;
  std::unique_ptr<S3Directory> place_;        // none: no s3_path, or another rank
  std::unique_ptr<CheckpointCopies> copies_;  // from begin() on
  std::optional<int64_t> newest_;             // of this run's checkpoints that are whole
};

}  // namespace neox
