#include "generate/text_stream.h"

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace neox {
namespace {

// The bytes at the end of `text` that begin a UTF-8 character without finishing it.
size_t unfinished_bytes(const std::string& text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80) return 0;
    if (byte < 0xC0) continue;
    size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    return length > back ? back : 0;
  }
  return 0;
}

}  // namespace

void check_room(const std::string& prompt, const std::vector<int32_t>& tokens,
                const ModelConfig& model) {
  auto positions = num_positions(model);
  constexpr size_t kShown = 40;
  check_usage(!tokens.empty() && std::ssize(tokens) < positions, "the prompt '",
              first_characters(prompt, kShown), prompt.size() > kShown ? " ..." : "", "' has ",
              counted(std::ssize(tokens), "token"), "; the model has ", positions,
              " positions: ", tokens.empty() ? "give at least one token" : "shorten the prompt");
}

std::vector<int32_t> prompt_tokens(const std::string& prompt, const Tokenizer& tokenizer,
                                   const ModelConfig& model) {
  std::vector<int32_t> tokens = tokenizer.encode(prompt);
  check_usage(!prompt.empty() || !tokens.empty() || tokenizer.has_end_of_document(),
              "the prompt is empty, and the tokenizer has no <|endoftext|> that such a text "
              "could begin with: give a prompt of at least one token");
  if (prompt.empty() && tokens.empty()) return {tokenizer.end_of_document()};
  check_room(prompt, tokens, model);
  return tokens;
}

std::string TextStream::add(int32_t token) {
  if (tokenizer_.is_special(token)) return "";
  std::string bytes = tokenizer_.token_bytes(token);
  if (begins_) begins_ = tokenizer_.strip_begin(token, bytes);
  kept_ += bytes;
  size_t ready = kept_.size() - unfinished_bytes(kept_);
  std::string storage, text(unicode::repair(std::string_view(kept_).substr(0, ready), storage));
  kept_.erase(0, ready);
  return text;
}

std::string TextStream::rest() {
  std::string storage, text(unicode::repair(kept_, storage));
  kept_.clear();
  return text;
}

}  // namespace neox
