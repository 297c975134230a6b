// Turns a dataset of the old format TNTIDX (the implementations `lazy` and `cached` of GPT-NeoX and
// Megatron, from fairseq) into one that is read today. docs/dataset-tool.md has the grammar.
#pragma once
#include <string>

#include "dataset/new_dataset.h"

namespace neox {

// The tokens keep their type; lengths and documents stay as they are. Throws Error (74) where the
// files are damaged, or hold what is not sequences of integers.
Totals import_tntidx(const std::string& prefix, const std::string& output_prefix);

}  // namespace neox
