// Added tokens: texts that stand for one id wherever they occur, cut out before a tokenizer's words
// are formed. Matching is leftmost-longest with the conditions of Hugging Face's AddedToken.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/piece_trie.h"

namespace neox {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;      // decoding may leave it out
  bool normalized = false;   // looked for in the normalized text
  bool single_word = false;  // not next to a word character
  bool lstrip = false;       // takes the white space on its left with it
  bool rstrip = false;       // and on its right
};

// Finds a fixed set of added tokens. Immutable.
class AddedTokenMatcher {
 public:
  // Throws Error where two tokens have the same content, or one is empty.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  // Calls token(id) for each match and piece(text) for what lies between, in order. text must be
  // valid UTF-8.
  void split(std::string_view text, const std::function<void(int32_t)>& token,
             const std::function<void(std::string_view)>& piece) const;

 private:
  struct Match {
    size_t start, end;
    const AddedToken* token;  // null where there is none
  };
  size_t next_start(std::string_view text, size_t from) const;
  Match next_match(std::string_view text, size_t from) const;

  std::vector<AddedToken> tokens_;
  PieceTrie contents_;      // with the places in tokens_
  bool starts_[256] = {};   // bytes that start some token
  std::string start_ = {};  // two bytes that start all tokens, or empty
};

}  // namespace neox
