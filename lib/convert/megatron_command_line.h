// A command line of Megatron's programs, word by word.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/text.h"

namespace neox {

// An option with what stands behind it.
struct MegatronWords {
  std::string spelled, name;  // "--num-layers", "num_layers"
  std::vector<std::string> words;
  std::string shown() const { return words.empty() ? spelled : spelled + ' ' + join(words, " "); }
  // true without words; a number, as Python reads it, or a text; a list of several.
  nlohmann::json value() const;
};

// The options behind the last *.py; each takes what stands in front of the next one. Throws Error
// (64) where there are none.
std::vector<MegatronWords> split_command_line(const std::vector<std::string>& arguments);

}  // namespace neox
