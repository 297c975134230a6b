// The pre-tokenizers of a tokenizer.json in front of the words: each cuts the pieces of the one
// before, as Hugging Face's `tokenizers` does it.
#pragma once
#include <functional>
#include <span>
#include <string_view>

#include "tokenizer/bpe_split.h"
#include "tokenizer/text_pattern.h"

namespace neox {

struct PreTokenizer {
  enum class Matches { kNumbers, kPunctuation, kPattern, kByteLevel };
  // What becomes of a match, between what is beside it.
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  Matches matches = Matches::kNumbers;
  Behavior behavior = Behavior::kIsolated;
  bool inverted = false;  // matches are what lies between them
  TextPattern pattern = {};
  // kByteLevel, where others follow: they see GPT-2's spelling of bytes.
  bool prefix_space = false;
  Words words = Words::kWhole;

  // Whether it only cuts out each number, which leaves words as they are beside them.
  bool only_digits() const {
    return matches == Matches::kNumbers && behavior == Behavior::kIsolated && !inverted;
  }
};

// Calls piece for each, in order, none empty; after a kByteLevel as the bytes that it spells. text
// must be valid UTF-8, a piece may be any part of it.
void pre_tokenize(std::span<const PreTokenizer> steps, std::string_view text,
                  const std::function<void(std::string_view)>& piece);

}  // namespace neox
