// The configuration of a model for GPT-NeoX.
#pragma once
#include <string>

#include "config/config.h"

namespace neox {

struct NeoxLayout {
  int64_t tensor = 1, pipe = 1;
};

// make_vocab_size_divisible_by with which GPT-NeoX pads the same vocabulary to the same rows.
int64_t neox_vocab_multiple(const Config& config, const NeoxLayout& layout);

// The keys of GPT-NeoX that describe the model and its files, as YAML. Throws (64) for what it does
// not have.
std::string neox_yaml(const Config& config, const NeoxLayout& layout);

}  // namespace neox
