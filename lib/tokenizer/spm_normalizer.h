// What SentencePiece does to a text before it looks for pieces (normalizer.cc of version 0.2).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/piece_trie.h"
#include "tokenizer/spm_model.h"

namespace neox {

class SpmNormalizer {
 public:
  // kept: pieces that stay as they are, which must outlive this.
  SpmNormalizer(const SpmModel& model, const PieceTrie& kept);
  // text must be valid UTF-8.
  std::string normalize(std::string_view text) const;

 private:
  struct Part {
    std::string_view text;  // what stands for the first `bytes` of the input
    size_t bytes;
  };
  Part first_part(std::string_view text) const;
  uint32_t unit(size_t i) const { return i < trie_.size() ? trie_[i] : 0; }

  const PieceTrie& kept_;
  bool dummy_prefix_, remove_extra_spaces_;
  std::string_view space_;
  std::vector<uint32_t> trie_;  // a double array (Aoe 1989), as of the library Darts-clone
  std::string normalized_;      // texts that end with zero bytes, by their offsets
};

}  // namespace neox
