// Where training goes on from a checkpoint of GPT-NeoX: progress, batch and loss scale.
#pragma once
#include <cstdint>
#include <optional>

#include "convert/model_files.h"
#include "convert/neox_files.h"
#include "convert/neox_optimizer.h"
#include "torchfile/torch_file.h"

namespace neox {

// Fills model.train from the files and the optimizer, whose state is there. Throws (74) for a run
// in fp16 without a loss scale.
void add_train_state(ModelFiles& model, const NeoxFiles& files, const NeoxOptimizer& optimizer);

// An integer of a file of states; nothing where there is none.
std::optional<int64_t> neox_integer(const torchfile::TorchFile& file, const char* path);

}  // namespace neox
