// The options of neox-prepare-data that are about labels for fine-tuning: the flags of GPT-NeoX's
// preprocess_data_with_mask.py and preprocess_data_with_chat_template.py.
#pragma once
#include "base/program.h"
#include "prepare/prepare.h"

namespace neox {

void add_label_options(Program& program);

// Reads them into options, whose tokenizer and rules are there already. Throws Error (64).
void read_label_options(const Program& program, PrepareOptions& options);

}  // namespace neox
