// GPT-2's regular expression, tried alternative by alternative with backtracking as a regular
// expression engine does; slow, and shares nothing with the splitters but the classes of
// characters.
#pragma once
#include <string_view>
#include <vector>

#include "tokenizer/unicode.h"

namespace neox {

class BpeRegex {
 public:
  explicit BpeRegex(std::string_view text) : text_(text) {}

  // Bytes of 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ at `at`.
  size_t match(size_t at) const {
    using unicode::Class;
    for (std::string_view literal : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
      if (text_.substr(at).starts_with(literal)) return literal.size();
    for (Class kind : {Class::kLetter, Class::kNumber, Class::kOther})
      for (size_t blank : {1, 0}) {  // greedy: first with the blank
        if (blank && !text_.substr(at).starts_with(' ')) continue;
        if (size_t end = plus(at + blank, kind).back(); end > at + blank) return end - at;
      }
    std::vector<size_t> ends = plus(at, Class::kSpace);
    for (size_t i = ends.size(); --i > 0;)  // greedy, giving back one by one
      if (ends[i] == text_.size() || kind_at(ends[i]) == Class::kSpace) return ends[i] - at;
    return ends.back() - at;
  }

 private:
  unicode::Class kind_at(size_t at) const {
    return unicode::Properties::get().category(unicode::read(text_, at).value);
  }
  // Where the repetition of a class may end: `at` itself, then behind each character.
  std::vector<size_t> plus(size_t at, unicode::Class kind) const {
    std::vector<size_t> ends = {at};
    for (; at < text_.size() && kind_at(at) == kind; ends.push_back(at))
      at += unicode::read(text_, at).bytes;
    return ends;
  }

  std::string_view text_;
};

}  // namespace neox
