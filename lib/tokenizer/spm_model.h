// SentencePiece's tokenizer.model (Kudo and Richardson 2018): sentencepiece_model.proto of version
// 0.2, the parts that encoding and decoding need.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace neox {

struct SpmPiece {
  enum Type { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };
  std::string text;
  float score = 0;
  int64_t type = kNormal;
  bool in_texts() const { return type == kNormal || type == kUserDefined || type == kUnused; }
};

struct SpmModel {
  enum Kind { kUnigram = 1, kBpe = 2 };
  std::string name;  // for error messages
  std::vector<SpmPiece> pieces;
  int64_t kind = kUnigram;
  bool byte_fallback = false;  // a character without a piece is written as those of its bytes
  std::string unknown_text = " \xE2\x81\x87 ";
  std::string begin_of_text = "<s>", end_of_text = "</s>";
  // Of the normalizer.
  std::string charsmap;  // precompiled; empty: characters stay as they are
  bool dummy_prefix = true, remove_extra_spaces = true, escape_spaces = true;

  // The id of the control piece of that text, or -1.
  int32_t control_piece(std::string_view text) const;
};

// Whether a file begins with a line of tiktoken's instead: a token in base64 and its rank.
bool holds_ranks(std::string_view text);

// Throws Error with the path for what is no such model, or one that is not supported.
SpmModel read_spm_model(const std::filesystem::path& path);

}  // namespace neox
