// The files of a run and its overrides, merged into one map of values that know their places.
#pragma once
#include <string>

#include "config/config.h"
#include "config/value.h"

namespace neox {

// "70M" in directory d is d/70M.yml; names that end in .yml, .yaml or .json stay as they are.
// Throws Error (64) naming the nearest file where there is none.
std::filesystem::path find_config(const std::string& name, const std::filesystem::path& directory);

// Left to right: a key may stand in several files only with equal values (a dictionary counts as
// one value); then DeepSpeed's file, whose keys win; then the overrides, of which the last one
// wins; then the defaults, for keys that nobody mentioned. The result is a kMap.
Value merge_config(const ConfigOptions& options);

}  // namespace neox
