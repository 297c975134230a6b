// What DeepSpeed adds to the checkpoints of every program: `latest`, the names of its files, and
// what its engine looks for in those of states.
#pragma once
#include <cstdint>
#include <optional>

#include "base/file.h"
#include "torchfile/torch_writer.h"

namespace neox {

// For numbered(): by layer and rank, and by rank.
inline constexpr const char* kLayerName = "layer_%02d-model_%02d-model_states.pt";
inline constexpr const char* kStateName = "mp_rank_%02d_model_states.pt";

// Of a model without the optimizer's state after that many steps (runtime/engine.py of DeepSpeed
// 0.10 to 0.16). model_ranks: those that share the model.
torchfile::Item::Entries deepspeed_state(torchfile::Item module, int64_t iteration,
                                         int64_t model_ranks);

// The directory that the file `latest` of a save directory names; nothing where there is no such
// file, or it names none that is there.
std::optional<fs::path> named_by_latest(const fs::path& dir);
// Throws (74) where the file is there and names no directory.
void check_latest(const fs::path& dir);

}  // namespace neox
