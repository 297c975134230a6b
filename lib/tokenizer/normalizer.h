// The steps that a tokenizer.json makes a text of before words are looked for, as Hugging Face's
// `tokenizers` takes them.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tokenizer/charsmap.h"
#include "tokenizer/text_pattern.h"
#include "tokenizer/unicode.h"

namespace neox {

struct Normalizer {
  enum class Kind {
    kForm,
    kReplace,  // each match of the pattern by the content
    kPrepend,  // the content in front of a text that begins, if it is not empty
    kLowercase,
    kStripLeft,  // of white space
    kStripRight,
    kStripAccents,
    kDropNonspacing,
    kCleanControls,   // BERT's: controls are left out, white space is a space
    kSpaceIdeograms,  // BERT's: spaces around each
    kNmt,             // the controls and spaces of SentencePiece's nmt
    kPrecompiled,     // SentencePiece's table of characters
    kSpellBytes       // GPT-2's spelling of the bytes
  };
  Kind kind = Kind::kForm;
  unicode::Form form = unicode::Form::kNfc;
  TextPattern pattern = {};
  std::string content = {};
  std::shared_ptr<const Charsmap> charsmap = {};
};

// Goes through all steps. The text itself, or a part of it, where none changes more, otherwise what
// they make of it in `storage`. begins: whether something may be put in front. text must be valid
// UTF-8.
std::string_view normalize(std::span<const Normalizer> steps, std::string_view text, bool begins,
                           std::string& storage);

}  // namespace neox
