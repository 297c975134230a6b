// Counts the words of many documents, with several threads where asked for. The words are those of
// GPT-2's splitter.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/bpe_trainer.h"

namespace neox {

// (word, how often) in the order of the words.
std::vector<std::pair<std::string, int64_t>> count_words(const BpeTrainerConfig& config,
                                                         const NextDocument& next_document);

}  // namespace neox
