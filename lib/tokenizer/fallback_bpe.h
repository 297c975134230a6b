// Byte-pair encoding of characters, where those without a token are written as tokens of their
// bytes, "<0xE2>": a tokenizer.json with byte_fallback, as of LLaMA 1 and 2, Mistral and Gemma,
// with the ids of Hugging Face's `tokenizers`. Immutable, so any number of threads may encode.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/bpe.h"

namespace neox {

class FallbackBpe {
 public:
  // Of equal merges the last counts. Throws Error where a byte has no token.
  FallbackBpe(const std::vector<std::string>& tokens, const std::vector<BpeMerge>& merges);
  // Appends the ids of a text, which must be valid UTF-8, its spaces written as U+2581.
  void encode(std::string_view text, std::vector<int32_t>& ids) const;

 private:
  void encode_word(std::string_view word, std::vector<int32_t>& ids) const;

  struct Merge {
    float urgency;
    int32_t whole;
  };
  std::unordered_map<uint64_t, Merge> merges_;        // of two ids
  std::unordered_map<uint32_t, int32_t> characters_;  // by the bytes of their UTF-8
  std::array<int32_t, 256> bytes_;
  bool by_words_;
  uint64_t number_;
};

// The byte that "<0x0A>" stands for, or -1.
int byte_of_token(std::string_view token);

}  // namespace neox
