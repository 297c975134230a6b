// The decoder of a Hugging Face tokenizer.json: the steps that make a text of tokens, as its
// `tokenizers` takes them.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "tokenizer/text_pattern.h"

namespace neox {

struct DecoderStep {
  enum class Kind {
    kReplace,       // each match of the pattern by the content
    kByteFallback,  // tokens such as "<0xE2>" by their bytes; in a row that is no UTF-8, each by
                    // U+FFFD
    kByteLevel,     // GPT-2's spelling by its bytes, of all tokens together
    kFuse,          // all tokens to one
    kStrip,         // up to `start` and `stop` times the content, at the ends of each token
    kWordPiece,     // spaces between tokens, but in front of those that begin with the content
    kMetaspace,     // the content, a mark, by a space
    kSuffix,        // the content at the end of words, by a space
    kCtc,           // a token that repeats the one before is left out, and so is the content, and
                    // what is empty then
    kSpaces         // spaces between tokens
  };
  Kind kind = Kind::kSpaces;
  TextPattern pattern = {};
  std::string content = {};
  std::string delimiter = {};  // kCtc: for spaces
  size_t start = 0, stop = 0;
  bool cleanup = false;       // spaces in front of punctuation are left out, as of English
  bool strips_first = false;  // kMetaspace: the marks of the first token
};

// What they make of the tokens of a whole text.
std::string decode_tokens(std::span<const DecoderStep> steps, std::vector<std::string> tokens);
// And of one token, as bytes, which may be a part of a character: where it is the first of a text,
// or stands inside.
enum class TokenPlace { kFirst, kInside };
std::string decode_token(std::span<const DecoderStep> steps, std::string token, TokenPlace place);

}  // namespace neox
