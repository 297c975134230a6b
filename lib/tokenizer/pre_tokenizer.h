// The pre-tokenizers of a tokenizer.json in front of the words: each cuts the pieces of the one
// before, as Hugging Face's `tokenizers` does it.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "tokenizer/bpe_split.h"
#include "tokenizer/text_pattern.h"

namespace neox {

// Of a piece: the first of the whole text, behind an added token, or behind other text.
enum class PiecePlace { kFirst, kLater, kInside };

struct PreTokenizer {
  enum class Matches {
    kNumbers,
    kPunctuation,
    kPattern,
    kSpaces,   // characters of white space
    kRuns,     // of word characters, or of what is neither these nor white space
    kLength,   // so many characters
    kScripts,  // runs of one script
    kByteLevel,
    kMetaspace
  };
  // What becomes of a match, between what is beside it.
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  Matches matches = Matches::kNumbers;
  Behavior behavior = Behavior::kIsolated;
  bool inverted = false;  // matches are what lies between them
  TextPattern pattern = {};
  size_t length = 0;
  // kByteLevel and kMetaspace: a space, or the mark, in front of pieces that have none; kFirst:
  // only of what begins the whole text.
  enum class Prefix { kNone, kAlways, kFirst };
  Prefix prefix = Prefix::kNone;
  Words words = Words::kWhole;  // kByteLevel; where others follow: they see GPT-2's spelling
  std::string mark = {};        // kMetaspace: for spaces
  bool splits = false;          // kMetaspace: in front of the marks

  // Whether it only cuts out each number, which leaves words as they are beside them.
  bool only_digits() const {
    return matches == Matches::kNumbers && behavior == Behavior::kIsolated && !inverted;
  }
};

// Calls piece for each, in order, none empty. Spelling: whether pieces behind a kByteLevel are the
// bytes that they spell. text must be valid UTF-8; such bytes may be any part of it.
enum class Spelling { kBytes, kKept };
void pre_tokenize(std::span<const PreTokenizer> steps, std::string_view text, PiecePlace place,
                  Spelling spelling, const std::function<void(std::string_view)>& piece);

}  // namespace neox
