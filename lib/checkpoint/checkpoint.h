// Checkpoints that load at any layout. Each rank writes the boxes it owns into one HDF5 file; a
// reader asks for the boxes it wants. docs/formats.md has the grammar of the files. HDF5 calls are
// serialised by one mutex of this module.
#pragma once
#include <ATen/core/Tensor.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/train_state.h"
#include "launch/control.h"
#include "shard/box.h"

namespace neox {

// A flat tensor of one state ("param", "adam_m", "adam_v") of one parameter buffer, and the boxes
// that lie in it.
struct StateChunk {
  std::string buffer;  // name of the buffer: a dataset is called <buffer>/<state>
  std::string state;
  at::Tensor data;                    // flat; on any device; contiguous
  std::vector<Placement> placements;  // into data, ascending offsets
};

// Its elements [range.first, range.second).
StateChunk elements_of(const StateChunk& chunk, std::pair<int64_t, int64_t> range);

// Beside the checkpoints of a model that was converted: the files that came along with it.
inline constexpr const char* kCompanionDir = "hf";
// And the keys of its configuration.
inline constexpr const char* kModelConfigFile = "model.yml";

// Where checkpoints of a run lie and how old ones are dropped.
struct SaveOptions {
  std::filesystem::path
      dir;  // the run's `save` directory; the checkpoint is <dir>/global_step<iteration>
  std::string life = "0";  // job, step and restart count: part of the temporary name
  int64_t keep_last = 0;   // 0: keep all
  // Of those that would be dropped, which stay for now. From the thread that saves.
  std::function<bool(int64_t step)> needed = [](int64_t) { return false; };
};

// From now on this life of the job alone may publish checkpoints in the run directory: an older one
// whose processes still run, on a node that the scheduler lost, is refused by save_checkpoint().
// Held by one rank from the start of the run to its end. What earlier lives have left of saves and
// removals that were cut off goes now.
class RunClaim {
 public:
  // Throws Error (64) where another run is at work there, as far as the file system has locks. The
  // same Slurm job, restarted or in another step, takes the directory over.
  RunClaim(const std::filesystem::path& run_dir, const std::string& life);
  RunClaim(RunClaim&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  RunClaim& operator=(RunClaim&&) = delete;
  ~RunClaim();

 private:
  int file_;
};

// Throws Error (64) where a later life has claimed the run directory.
void check_claim(const std::filesystem::path& run_dir, const std::string& life);

// Whether this rank sees the claim of another rank of its life; waits a while for a file system
// that shows other nodes' files late.
bool sees_claim(const std::filesystem::path& run_dir, const std::string& life,
                std::chrono::seconds patience);

// Collective over control. Writes <dir>/global_step<N>.tmp-<life>/, makes sure, by another rank's
// look at each rank file, that it is what was written, and that every element of every tensor was
// written exactly once, then renames it, updates `latest` and drops old checkpoints. A checkpoint
// of that name is replaced only after the new one is whole. Rank 0's train state is written, its
// save_seconds being those of this save. Throws on every rank where one failed, naming rank and
// reason, with that rank's exit code; what was there before then still is.
void save_checkpoint(const SaveOptions& options, std::span<const StateChunk> chunks,
                     const TrainState& state, Control& control);

// Writes a checkpoint part by part, alone: memory is that of one part. Nothing stands under the
// final name before finish(), and nothing is left of a writer that did not finish.
class CheckpointWriter {
 public:
  CheckpointWriter(const SaveOptions& options, int64_t iteration);
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  ~CheckpointWriter();

  // One more rank file, with these chunks.
  void add(std::span<const StateChunk> chunks);
  // Throws unless every element of every tensor was added exactly once.
  void finish(const TrainState& state);

 private:
  SaveOptions options_;
  int64_t iteration_;
  std::filesystem::path temporary_;
  std::vector<std::string> replies_;  // of the files so far
};

// Whether the sizes of all rank files are looked at, or another rank has done so: n ranks that look
// at n files each ask the storage n^2 times.
enum class RankFiles { kLookAt, kLookedAt };

// What the system does not give may be whole, and is Unreadable: of exit code 76 where this node
// has lost the storage.
class Checkpoint {
 public:
  // Opens dir, a global_step<N>. Throws unless it is complete and undamaged in its index and train
  // state, and has its rank files at their size.
  explicit Checkpoint(const std::filesystem::path& dir, RankFiles files = RankFiles::kLookAt);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;

  const TrainState& state() const;
  const std::filesystem::path& dir() const;
  int64_t num_files() const;  // of ranks that have something to write
  struct TensorInfo {
    std::string state, name;
    Dims shape;
    at::ScalarType dtype;
  };
  std::vector<TensorInfo> tensors() const;
  // Of the names, places and checksums of all parameters; that of another model is another one.
  std::string parameters_hash() const;

  // Fills every placement of every chunk, converting the type where it differs; reads each stored
  // box at most once and checks its checksum, and that of a file's other bytes at the first read of
  // the file. Throws naming tensor, box and file for what is missing, of another shape, or damaged.
  // Each rank begins with another file, since many that hold copies of one state would all read the
  // same file at the same time.
  void read(std::span<StateChunk> chunks, int rank = 0) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The newest complete checkpoint of a run directory, or that of an iteration; nothing where there
// is none. It is an error where all are damaged, where `latest` names one that is not there, and
// where the directory holds a checkpoint of another program, which it names.
std::optional<std::filesystem::path> find_checkpoint(const std::filesystem::path& run_dir,
                                                     std::optional<int64_t> iteration = {});

// What the file `latest` of a run directory names; "" where there is none.
std::string latest_in(const std::filesystem::path& run_dir);

// What a user means by a directory: a checkpoint itself, or the newest complete one of a run
// directory. Throws where there is none.
std::filesystem::path checkpoint_in(const std::filesystem::path& dir);

}  // namespace neox
