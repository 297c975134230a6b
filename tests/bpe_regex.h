// The regular expressions of bpe_split.h, tried alternative by alternative with backtracking as a
// regular expression engine does; slow, and shares nothing with the splitters but the classes of
// characters.
#pragma once
#include <algorithm>
#include <string>
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

  // Bytes of (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}|
  //  ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ at `at`; with marks [\p{L}\p{M}]+ and
  // [^\s\p{L}\p{M}\p{N}]+.
  size_t match_cl100k(size_t at, size_t digits, bool marks = false) const {
    using unicode::Class;
    if (size_t bytes = contraction(at)) return bytes;
    for (size_t before : {unicode::read(text_, at).bytes, size_t{0}}) {  // greedy: first with it
      Class kind = kind_at(at);
      bool may_be_before = kind != Class::kLetter && kind != Class::kNumber && !is_line(at);
      if (before && !may_be_before) continue;
      size_t end = repeated(at + before, [&](char32_t code) {
                     return category(code) == Class::kLetter || (marks && is_mark(code));
                   }).back();
      if (end > at + before) return end - at;
    }
    return match_signs(at, digits, "\r\n", marks);
  }

  // Bytes of [^\r\n\p{L}\p{N}]?U*L+C?|[^\r\n\p{L}\p{N}]?U+L*C?|\p{N}{1,digits}|
  //  ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+ at `at`; without contractions no C.
  size_t match_o200k(size_t at, size_t digits, bool contractions) const {
    using unicode::Class;
    const auto& classes = unicode::Properties::get();
    auto upper = [&](char32_t code) { return classes.upper(code); };
    auto lower = [&](char32_t code) { return classes.lower(code); };
    Class kind = kind_at(at);
    bool may_be_before = kind != Class::kLetter && kind != Class::kNumber && !is_line(at);
    for (size_t least : {1, 0})  // L+ behind U*, then L* behind U+
      for (size_t before : {unicode::read(text_, at).bytes, size_t{0}}) {
        if (before && !may_be_before) continue;
        std::vector<size_t> heads = repeated(at + before, upper);
        for (size_t i = heads.size(); i-- > 1 - least;) {
          std::vector<size_t> tails = repeated(heads[i], lower);
          if (tails.size() <= least) continue;
          return tails.back() - at + (contractions ? contraction(tails.back()) : 0);
        }
      }
    return match_signs(at, digits, "\r\n/");
  }

 private:
  // Of (?i:'s|'t|'re|'ve|'m|'ll|'d), or 0.
  size_t contraction(size_t at) const {
    for (std::string_view literal : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'\u017F"})
      if (folded(text_.substr(at, literal.size())) == literal) return literal.size();
    return 0;
  }
  // Bytes of \p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[taken]*|\s*[\r\n]+|\s+(?!\S)|\s+ at `at`.
  size_t match_signs(size_t at, size_t digits, const char* taken, bool marks = false) const {
    using unicode::Class;
    if (std::vector<size_t> ends = plus(at, Class::kNumber); ends.size() > 1)
      return ends[std::min(digits, ends.size() - 1)] - at;
    for (size_t blank : {1, 0}) {
      if (blank && !text_.substr(at).starts_with(' ')) continue;
      size_t end = repeated(at + blank, [&](char32_t code) {
                     return category(code) == Class::kOther && !(marks && is_mark(code));
                   }).back();
      if (end > at + blank) return std::min(text_.find_first_not_of(taken, end), text_.size()) - at;
    }
    std::vector<size_t> ends = plus(at, Class::kSpace);
    for (size_t i = ends.size(); i-- > 0;)  // \s*, giving back one by one
      if (lines(ends[i]) > ends[i]) return lines(ends[i]) - at;
    for (size_t i = ends.size(); --i > 0;)
      if (ends[i] == text_.size() || kind_at(ends[i]) == Class::kSpace) return ends[i] - at;
    return ends.back() - at;
  }
  static std::string folded(std::string_view text) {
    std::string lower(text);
    for (char& c : lower)
      if ('A' <= c && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return lower;
  }
  bool is_line(size_t at) const {
    return at < text_.size() && (text_[at] == '\r' || text_[at] == '\n');
  }
  size_t lines(size_t at) const {
    while (is_line(at)) ++at;
    return at;
  }
  static unicode::Class category(char32_t code) {
    return unicode::Properties::get().category(code);
  }
  static bool is_mark(char32_t code) {
    return category(code) == unicode::Class::kOther && unicode::Properties::get().upper(code);
  }
  unicode::Class kind_at(size_t at) const { return category(unicode::read(text_, at).value); }
  // Where the repetition of a class may end: `at` itself, then behind each character.
  std::vector<size_t> plus(size_t at, unicode::Class kind) const {
    return repeated(at, [&](char32_t code) { return category(code) == kind; });
  }
  std::vector<size_t> repeated(size_t at, auto&& belongs) const {
    std::vector<size_t> ends = {at};
    for (; at < text_.size() && belongs(unicode::read(text_, at).value); ends.push_back(at))
      at += unicode::read(text_, at).bytes;
    return ends;
  }

  std::string_view text_;
};

}  // namespace neox
