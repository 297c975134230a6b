// The tokenizer that a configuration names.
#pragma once
#include <memory>

#include "config/config.h"
#include "tokenizer/tokenizer.h"

namespace neox {

// Null where it names none. Throws where a file that it names is missing, with the line that names
// it.
std::unique_ptr<Tokenizer> load_tokenizer(const Config& config);

// Entries of the vocabulary that are taken where there is no tokenizer to ask: GPT-2's, or of the
// tokenizer of GPT-NeoX-20B, which Pythia has.
inline int64_t usual_entries(const TokenizerConfig& config) {
  return config.type == "GPT2BPETokenizer" ? 50257 : 50277;
}
inline const char* usual_vocabulary(const TokenizerConfig& config) {
  return config.type == "GPT2BPETokenizer" ? "GPT-2" : "Pythia";
}

}  // namespace neox
