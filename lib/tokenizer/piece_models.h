// Models of a Hugging Face tokenizer.json but byte-pair encoding: the likeliest pieces (Unigram,
// Kudo 2018), the longest pieces from the left (WordPiece, as BERT's), and whole words (WordLevel).
// Immutable, so any number of threads may encode.
#pragma once
#include <unordered_map>

#include "tokenizer/byte_tokens.h"
#include "tokenizer/piece_trie.h"
#include "tokenizer/word_model.h"

namespace neox {

// Sums and ties as in `tokenizers`; SentencePiece's own (spm.h) are rounded otherwise.
class UnigramModel : public WordModel {
 public:
  struct Rules {
    int32_t unknown = -1;  // -1: text without a piece is an error
    bool byte_fallback = false;
  };
  // Of equal tokens the last counts.
  UnigramModel(const std::vector<std::string>& tokens, std::vector<double> scores, Rules rules);
  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;
  std::string loss() const override;

 private:
  void encode_piece(std::string_view piece, std::vector<int32_t>& ids) const;
  void add(std::string_view part, std::vector<int32_t>& ids) const;

  Rules rules_;
  std::vector<double> scores_;
  double least_;
  PieceTrie trie_;
  std::unordered_map<std::string, int32_t> ids_;
  ByteTokens bytes_;
  std::string unknown_text_;
  uint64_t number_;
};

// What both of these have: words, and a token for the unknown.
class VocabularyModel : public WordModel {
 public:
  VocabularyModel(const std::vector<std::string>& tokens, const std::string& unknown);
  std::string loss() const override;

 protected:
  using Ids = std::unordered_map<std::string_view, int32_t>;
  std::vector<std::string> tokens_;
  Ids ids_;  // of tokens_
  int32_t unknown_;
};

class WordLevelModel : public VocabularyModel {
 public:
  using VocabularyModel::VocabularyModel;
  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;
};

class WordPieceModel : public VocabularyModel {
 public:
  struct Rules {
    std::string prefix = "##";     // of pieces inside words
    size_t most_characters = 100;  // of a word that is known
  };
  WordPieceModel(const std::vector<std::string>& tokens, const std::string& unknown, Rules rules);
  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;

 private:
  void encode_word(std::string_view word, std::vector<int32_t>& ids) const;

  Rules rules_;
  PieceTrie first_, inside_;  // inside_: behind the prefix
  uint64_t number_;
};

}  // namespace neox
