// SentencePiece's encoding of texts: byte-pair encoding of characters (Sennrich et al. 2016; LLaMA,
// Mistral) and the likeliest pieces of a unigram model (Kudo 2018), with the ids that its version
// 0.2.3 gives (earlier ones weigh user-defined pieces otherwise, and round long sums otherwise).
// Immutable, so any number of threads may encode.
#pragma once
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/piece_trie.h"
#include "tokenizer/spm_model.h"
#include "tokenizer/spm_normalizer.h"

namespace neox {

class Spm {
 public:
  // Throws Error where pieces are missing that the model needs.
  explicit Spm(SpmModel model);
  Spm(const Spm&) = delete;
  // Appends the ids of a text, which must be valid UTF-8.
  void encode(std::string_view text, std::vector<int32_t>& ids) const;

  const SpmModel& model() const { return model_; }
  // The text that a piece stands for; several ids may each have a part of a character.
  std::string text_of(int32_t id) const;
  // Takes the space that encode() put there from the text of the first piece. Whether the same is
  // to be done with the next piece.
  bool strip(int32_t id, std::string_view& text) const;

 private:
  using Ids = std::vector<int32_t>;
  const SpmPiece& piece(int32_t id) const { return model_.pieces[static_cast<size_t>(id)]; }
  int32_t id_of(std::string_view text) const;
  void read_pieces();
  bool words_stand_alone() const;
  void encode_bpe(std::string_view text, Ids& ids) const;
  void encode_unigram(std::string_view text, Ids& ids) const;
  void add(int32_t id, std::string_view text, Ids& ids) const;
  PieceTrie trie_of(bool user_defined_only) const;

  SpmModel model_;
  std::unordered_map<std::string_view, int32_t> reserved_, found_;  // found_: those that texts have
  int32_t unknown_ = -1;
  Ids bytes_;                     // of each byte, or -1
  float least_ = 0;               // score
  PieceTrie user_defined_, all_;  // all_: with unigram models only
  SpmNormalizer normalizer_;
  bool by_words_;
  uint64_t number_;  // of this model in the process
};

}  // namespace neox
