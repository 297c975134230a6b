// Prompts as tokens, and tokens as text.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "tokenizer/tokenizer.h"

namespace neox {

inline int64_t num_positions(const ModelConfig& model) {
  return std::max(model.positions, model.seq);
}

// The tokens of a prompt for a model. Of an empty one they are those that the tokenizer puts in
// front, or the end of a document, behind which the next begins, as in GPT-NeoX. An error where no
// position is left for a token behind it.
std::vector<int32_t> prompt_tokens(const std::string& prompt, const Tokenizer& tokenizer,
                                   const ModelConfig& model);
// The error alone.
void check_room(const std::string& prompt, const std::vector<int32_t>& tokens,
                const ModelConfig& model);

// Turns tokens into text as they come: keeps back bytes until they are whole UTF-8 characters.
// Bytes that do not form UTF-8 become U+FFFD. Without special tokens, as GPT-NeoX has it.
class TextStream {
 public:
  // kText: no prompt is in front, so a space that the tokenizer puts there is left out.
  enum class Begin { kBehindPrompt, kText };
  TextStream(const Tokenizer& tokenizer, Begin begin)
      : tokenizer_(tokenizer), begins_(begin == Begin::kText) {}
  std::string add(int32_t token);
  std::string rest();  // what is kept back

 private:
  const Tokenizer& tokenizer_;
  bool begins_;
  std::string kept_;
};

}  // namespace neox
