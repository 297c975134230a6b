// The steps of writing a checkpoint, in their order: what save_checkpoint(), whose ranks take them
// together, and CheckpointWriter, which takes them alone, have in common.
#pragma once
#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"

namespace neox {

using SaveClock = std::chrono::steady_clock;

// An empty directory of temporary_name() in the run directory. Throws where the step's checkpoint
// is there and another program's.
fs::path start_directory(const SaveOptions& options, int64_t iteration);

// HDF5 lays the file out, the payload is written at the places it gave, HDF5 adds the catalog.
// Returns what read_index_part() compares with the file that it finds: "<bytes> <checksum of all
// that belongs to no box>", or "" where there is nothing to write.
std::string write_rank_file(const fs::path& path, std::span<const StateChunk> chunks);

// Reads a rank file again, all but its payload, on rank `reader`: on another node it comes from the
// storage, and not out of the memory that it was written through. reply: what write_rank_file()
// returned. Returns the bytes of an index.h5 of that file alone, "" where there is no file. Throws
// unless it is visible, its tables agree with each other, and it is what the writer said.
std::string read_index_part(const fs::path& dir, int writer, const std::string& reply, int reader);

// Index, train state, COMPLETE. parts: what read_index_part() returned for each of the files.
// Returns the bytes of the rank files. Throws unless every element was written exactly once.
int64_t finish_directory(const fs::path& dir, const std::vector<std::string>& parts,
                         const TrainState& state);

// The final name, and `latest`.
void publish_whole(const SaveOptions& options, const fs::path& temporary, int64_t iteration);

// After a save of `iteration`: removes the oldest complete checkpoints beyond keep_last (0: none),
// and what earlier lives left behind. Never throws; what cannot be removed is logged.
void prune(const SaveOptions& options, int64_t iteration);

void log_saved(const fs::path& dir, int64_t bytes, SaveClock::time_point start);

}  // namespace neox
