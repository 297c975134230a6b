// The command line of neox-prepare-data: the flags of GPT-NeoX's and of Megatron's
// preprocess_data.py in both spellings, so that scripts carry over.
#pragma once
#include <string>
#include <vector>

#include "base/program.h"
#include "data/prepare.h"

namespace neox {

// The arguments with one spelling for each option: --jsonl-keys for --json_keys, and so on.
std::vector<std::string> canonical_arguments(const std::vector<std::string>& arguments);

Program prepare_program();

// Throws Error (64) naming what is missing, contradictory, or not supported and why.
PrepareOptions read_prepare_options(const Program& program);

}  // namespace neox
