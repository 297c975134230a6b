// What a step of a tokenizer.json looks for in a text: another text, or a regular expression, which
// Oniguruma reads and finds as it does in Hugging Face's `tokenizers`. Immutable; any thread may
// search.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

struct re_pattern_buffer;  // of oniguruma.h

namespace neox {

class TextPattern {
 public:
  static TextPattern literal(std::string text);
  // Throws Error with Oniguruma's reason where it is no regular expression.
  static TextPattern expression(const std::string& regex);

  // Calls found(begin, end) for each match, from left to right; they do not overlap, and may be
  // empty. text must be valid UTF-8. Throws Error where Oniguruma gives up (its limit of steps).
  void find(std::string_view text, const std::function<void(size_t, size_t)>& found) const;
  // With the content in the place of each match: the text itself where there is none, otherwise in
  // `storage`.
  std::string_view replaced(std::string_view text, std::string_view content,
                            std::string& storage) const;

 private:
  std::string text_;  // the literal, or the expression for messages
  std::shared_ptr<re_pattern_buffer> regex_;
};

}  // namespace neox
