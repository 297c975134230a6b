// What SentencePiece does to a text before it looks for pieces (normalizer.cc of version 0.2).
#pragma once
#include <string>
#include <string_view>

#include "tokenizer/charsmap.h"
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

  const PieceTrie& kept_;
  bool dummy_prefix_, remove_extra_spaces_;
  std::string_view space_;
  Charsmap charsmap_;
};

}  // namespace neox
