// Byte-pair encoding of characters, with the ids of Hugging Face's `tokenizers`: as of LLaMA 1 and
// 2, Mistral and Gemma, where characters without a token are written as tokens of their bytes
// ("<0xE2>", byte_fallback), or with a token for what is unknown. Immutable, so any number of
// threads may encode.
#pragma once
#include <array>
#include <unordered_map>

#include "tokenizer/bpe.h"
#include "tokenizer/byte_tokens.h"
#include "tokenizer/word_model.h"

namespace neox {

struct CharacterBpeRules {
  std::string prefix, suffix;  // of all characters of a word but the first; of the last one
  std::string unknown;         // the token for characters without one; "": they are left out
  bool fuses_unknown = false;  // of neighbours one
  bool byte_fallback = false;  // in front of that, where all bytes have tokens
  bool whole_words = false;    // a word that is a token is that token
};

class CharacterBpe : public WordModel {
 public:
  // Of equal merges the last counts. Throws Error where the unknown has no token.
  CharacterBpe(const std::vector<std::string>& tokens, const std::vector<BpeMerge>& merges,
               CharacterBpeRules rules);
  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;
  std::string loss() const override;

 private:
  struct Merge {
    float urgency;
    int32_t whole;
  };
  struct Chain;
  using Characters = std::unordered_map<uint32_t, int32_t>;
  bool stand_alone(const std::vector<std::string>& tokens,
                   const std::vector<BpeMerge>& merges) const;
  std::string_view character_of(std::string_view token, bool inside, bool last) const;
  void add_unknown(std::string_view character, Chain& chain) const;
  void encode_word(std::string_view word, std::vector<int32_t>& ids) const;

  CharacterBpeRules rules_;
  int32_t unknown_ = -1;
  std::unordered_map<uint64_t, Merge> merges_;  // of two ids
  // By the bytes of their UTF-8, [with the prefix][with the suffix].
  std::array<std::array<Characters, 2>, 2> characters_;
  ByteTokens bytes_;
  std::unordered_map<std::string, int32_t> words_;  // with whole_words only
  bool by_words_;  // whether words behind U+2581 are encoded one by one
  uint64_t number_;
};

}  // namespace neox
