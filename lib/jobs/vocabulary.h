// The size of the vocabulary that a training job will have, for estimates.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"

namespace neox {

// Entries of the tokenizer that the config names. Paths are those in the container with these
// mounts. Where it cannot be read, Pythia's number, with a note that says so; none where
// padded_vocab_size decides.
int64_t vocabulary_entries(const Config& config, const std::string& mounts,
                           std::vector<std::string>& notes);

}  // namespace neox
