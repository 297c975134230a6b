// Checkpoints that are written while training goes on: training waits for a copy of the state in
// memory at most, and a thread of this writes it. What is committed, how, and what a crash leaves
// behind are those of save_checkpoint(). One thread of each rank calls these.
#pragma once
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <span>

#include "checkpoint/checkpoint.h"

namespace neox {

class Snapshot;

class BackgroundSave {
 public:
  // control: for the saves alone. ranks_here: those that share this machine's memory.
  BackgroundSave(SaveOptions options, std::unique_ptr<Control> control, int ranks_here);
  // Waits for the save that is under way. An error that nobody has asked for is logged.
  ~BackgroundSave();

  // Begins to take the memory for copies of these chunks, as large as they are. Where a rank
  // finds too little of it, it says so, and all save from then on without a copy: start() returns
  // when its part is written.
  void prepare(std::span<const StateChunk> chunks);

  // Collective. Saves the chunks as they are now. They may be changed after release(). Waits for
  // the save before this one, if need be; throws what that one threw.
  void start(std::span<const StateChunk> chunks, const TrainState& state);
  // Waits until the copy is whole; a device's stream does that for what follows on it.
  void release();

  bool under_way() const { return saving_.valid(); }
  // The seconds that a save took which has ended since the last call, from start() on. Throws what
  // it threw, once: on every rank the same.
  std::optional<double> poll();
  // The same, after waiting for it.
  std::optional<double> wait();
  // The same, before that step is saved; how long training waited is said.
  std::optional<double> wait_to_save(int64_t iteration);

 private:
  using Clock = std::chrono::steady_clock;
  double save(std::span<const StateChunk> chunks, const TrainState& state, Clock::time_point start);
  bool busy() const;  // a save is being written
  void agree_on_snapshots();

  SaveOptions options_;
  std::unique_ptr<Control> control_;
  int ranks_here_;
  std::unique_ptr<Snapshot> snapshot_;  // none: a rank had no memory for it, or not asked for
  std::future<std::unique_ptr<Snapshot>> preparing_;
  std::future<double> saving_;
  std::optional<double> ended_;  // not yet told
  int64_t iteration_ = 0;        // of the save that is under way
  bool advised_ = false;         // on saves that training waits for
};

}  // namespace neox
