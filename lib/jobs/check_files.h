// Does a training job find what it needs, and may it write where it saves? By looking at files.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "jobs/check_job.h"

namespace neox {

// Data, tokenizer, and what `save` and `load` hold: a run refuses as it starts what this refuses.
// Throws Error (64), or notes what is wrong, by options.files.
void check_files(const Config& config, const CheckOptions& options,
                 std::vector<std::string>& notes);

// The batch of the run that `load` holds, where this one goes on with it.
std::optional<FrozenBatch> kept_batch(const Config& config, const CheckOptions& options);

}  // namespace neox
