// The command line of neox-prepare-data: the flags of GPT-NeoX's and of Megatron's
// preprocess_data.py in both spellings, so that scripts carry over.
#pragma once
#include <string>
#include <vector>

#include "base/program.h"
#include "prepare/prepare.h"

namespace neox {

// The arguments with one spelling for each option: --jsonl-keys for --json_keys, and so on.
std::vector<std::string> canonical_arguments(const std::vector<std::string>& arguments);

Program prepare_program();

// What stands for options that are not given.
struct PrepareDefaults {
  std::vector<std::string> inputs = {};
  std::string output_prefix = {}, vocab = {}, gpt2_vocab = {}, gpt2_merges = {}, separator = {};
  std::vector<std::string> keys = {};  // none: text
  PrepareOptions::EndOfDocument end_of_document = PrepareOptions::EndOfDocument::kNone;
  int workers = 0;  // 0: all cores that this process may use
};

// Throws Error (64) naming what is missing, contradictory, or not supported and why.
PrepareOptions read_prepare_options(const Program& program, const PrepareDefaults& defaults = {});

}  // namespace neox
