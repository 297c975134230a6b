// The tokenizer that a configuration names.
#pragma once
#include <filesystem>
#include <memory>

#include "config/config.h"
#include "tokenizer/tokenizer.h"

namespace neox {

// Null where it names none. Throws where a file that it names is missing, with the line that names
// it.
std::unique_ptr<Tokenizer> load_tokenizer(const Config& config);

// Where neox-convert wrote the tokenizer into `dir`, which has another place now, the configuration
// names it there.
void follow_tokenizer(TokenizerConfig& tokenizer, const std::filesystem::path& dir);

// The vocabulary that is counted with where there is no tokenizer to ask: GPT-2's, LLaMA's of
// SentencePiece, or that of GPT-NeoX-20B, which Pythia has.
struct UsualVocabulary {
  int64_t entries;
  const char* name;
};
inline UsualVocabulary usual_vocabulary(const TokenizerConfig& config) {
  if (config.type == "GPT2BPETokenizer" || config.type == "HFGPT2Tokenizer")
    return {50257, "GPT-2"};
  if (config.type == "SPMTokenizer") return {32000, "LLaMA"};
  return {50277, "Pythia"};
}

}  // namespace neox
