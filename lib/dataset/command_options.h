// What the subcommands of neox-data have in common: options, and the words for what they found.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/program.h"
#include "config/config.h"
#include "dataset/new_dataset.h"
#include "tokenizer/tokenizer.h"

namespace neox {

// The option --dataset, which is all that stands alone on the command line.
void add_dataset(Program& program);
// Its prefixes, at least one. One of the two files, or both (as of data/*), stand for the prefix.
std::vector<std::string> prefixes(const Program& program);
std::string one_prefix(const Program& program);
std::string output_prefix(const Program& program);

// The options --vocab-file and --merge-file.
void add_tokenizer(Program& program);
std::unique_ptr<Tokenizer> read_tokenizer(const Program& program);  // null: not given
// --eod, or the tokenizer's.
std::optional<int64_t> end_of_document(const Program& program, const Tokenizer* tokenizer);

// "3 documents, 3 sequences, 9 tokens, 18 B".
std::string amounts(const Totals& totals);

}  // namespace neox
