// Tokenizes the documents of the input on all ranks of a job and joins them to datasets.
#pragma once
#include "launch/control.h"
#include "prepare/prepare.h"

namespace neox {

// Collective. The result, without its seconds, on every rank.
PrepareResult tokenize_input(const PrepareOptions& options, const InputFiles& input,
                             const Tokenizer& tokenizer, Control& control);

}  // namespace neox
