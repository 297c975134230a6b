// The configuration of a model for GPT-NeoX.
#pragma once
#include <string>

#include "config/config.h"

namespace neox {

struct NeoxLayout {
  int64_t tensor = 1, pipe = 1;
};

// The keys of GPT-NeoX that describe the model and its files, as YAML. Throws (64) for what it does
// not have.
std::string neox_yaml(const Config& config, const NeoxLayout& layout, int64_t vocab_multiple);

}  // namespace neox
