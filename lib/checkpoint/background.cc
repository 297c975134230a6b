#include "checkpoint/background.h"

#include <new>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "checkpoint/layout.h"
#include "checkpoint/snapshot.h"

namespace neox {
namespace {

// Of the memory that is free, for the rest of the machine's work.
constexpr double kShare = 0.9;
// Seconds that training waited.
constexpr double kWorthSaying = 0.1;

std::unique_ptr<Snapshot> no_snapshot(double needed, double there) {
  log_warning(
      "a copy of the state, to save it in the background, takes ", human_bytes(needed),
      " of memory on this rank, and ", human_bytes(there),
      " are free for it: training waits while this rank saves. Give the job more memory, or "
      "set async_save: false, which is the same without this warning.");
  return nullptr;
}

std::unique_ptr<Snapshot> make_snapshot(std::span<const StateChunk> chunks, int ranks_here) {
  auto needed = static_cast<double>(Snapshot::bytes_of(chunks));
  double there = kShare * static_cast<double>(available_memory()) / ranks_here;
  if (needed > there) return no_snapshot(needed, there);
  try {
    return std::make_unique<Snapshot>(chunks);
  } catch (const std::bad_alloc&) { return no_snapshot(needed, there); }
}

}  // namespace

BackgroundSave::BackgroundSave(SaveOptions options, std::unique_ptr<Control> control,
                               int ranks_here)
    : options_(std::move(options)), control_(std::move(control)), ranks_here_(ranks_here) {}

BackgroundSave::~BackgroundSave() {
  try {
    wait();
  } catch (const std::exception& e) { log_warning(e.what()); }
}

void BackgroundSave::prepare(std::span<const StateChunk> chunks) {
  std::vector<StateChunk> held(chunks.begin(), chunks.end());
  preparing_ = std::async(std::launch::async, [held = std::move(held), this] {
    set_log_rank(control_->rank(), control_->size());
    return make_snapshot(held, ranks_here_);
  });
}

double BackgroundSave::save(std::span<const StateChunk> chunks, const TrainState& state,
                            Clock::time_point start) {
  save_checkpoint(options_, chunks, state, *control_);
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void BackgroundSave::start(std::span<const StateChunk> chunks, const TrainState& state) {
  auto start = Clock::now();
  ended_ = wait_to_save(state.iteration);
  if (preparing_.valid()) agree_on_snapshots();
  iteration_ = state.iteration;
  if (!snapshot_) {
    ended_ = save(chunks, state, start);
    return;
  }
  snapshot_->start(chunks);
  saving_ = std::async(std::launch::async, [this, state, start] {
    set_log_rank(control_->rank(), control_->size());
    return save(snapshot_->finish(), state, start);
  });
}

// A rank without a copy is in the save until all have written, while the others would train on and
// wait for it where nobody may be so late.
void BackgroundSave::agree_on_snapshots() {
  snapshot_ = preparing_.get();
  size_t without = 0;
  for (const std::string& has : control_->gather(snapshot_ ? "1" : "")) without += has.empty();
  if (without == 0) return;
  snapshot_.reset();
  if (control_->rank() == 0 && control_->size() > 1)
    log_warning("all ranks wait while one saves: ", counted(static_cast<int64_t>(without), "rank"),
                " had no memory for a copy");
}

void BackgroundSave::release() {
  if (saving_.valid()) snapshot_->release();
}

bool BackgroundSave::busy() const {
  return saving_.valid() && saving_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

std::optional<double> BackgroundSave::poll() { return busy() ? std::nullopt : wait(); }

std::optional<double> BackgroundSave::wait() {
  if (saving_.valid()) ended_ = saving_.get();
  return std::exchange(ended_, std::nullopt);
}

std::optional<double> BackgroundSave::wait_to_save(int64_t iteration) {
  auto start = Clock::now();
  bool waits = busy();
  std::optional<double> seconds = wait();
  double waited = std::chrono::duration<double>(Clock::now() - start).count();
  if (waits && waited >= kWorthSaying && control_->rank() == 0)
    log_warning("step ", iteration, " is to be saved while step ", iteration_,
                " was still being written: training waited ", human_duration(waited),
                std::exchange(advised_, true)
                    ? ""
                    : "; fewer saves (checkpoint_factor, extra_save_iters) or a faster file system "
                      "avoid that");
  return seconds;
}

}  // namespace neox
