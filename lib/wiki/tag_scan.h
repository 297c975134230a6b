// What stands behind a "<".
#pragma once
#include <algorithm>
#include <string_view>

#include "wiki/tags.h"
#include "wiki/text.h"

namespace neox::wiki {

// < / name
struct TagHead {
  bool blank = false;    // white space behind the "<"
  bool closing = false;  // "/" before the name
  std::string_view name = {};
  size_t end = 0;  // behind the name
};

// `at` is that of the "<". The name is empty where none follows, or other letters follow it.
inline TagHead read_tag_head(std::string_view text, size_t at) {
  TagHead head;
  size_t begin = skip_space(text, at + 1);
  head.blank = begin > at + 1;
  head.closing = begin < text.size() && text[begin] == '/';
  if (head.closing) begin = skip_space(text, begin + 1);
  size_t end = begin;
  while (end < text.size() && static_cast<unsigned char>(text[end]) < 0x80 && word_at(text, end)) {
    ++end;
  }
  head.end = end;
  if (!word_at(text, end)) head.name = text.substr(begin, end - begin);
  return head;
}

inline bool is_name(std::string_view name, std::string_view lower_case) {
  return name.size() == lower_case.size() && has_word_at(name, 0, lower_case);
}

// The ">" of </name >, from behind the name; kNone where something else follows.
inline size_t end_of_closing(std::string_view text, const TagHead& head) {
  size_t end = skip_space(text, head.end);
  return end < text.size() && text[end] == '>' ? end : kNone;
}

// The first ">" that is not in quotes; quotes that do not close are text.
inline size_t end_of_opening(std::string_view text, size_t at) {
  text = text.substr(0, std::min(text.size(), at + kMaxTag));
  if (text.find('>', at) == kNone) return kNone;
  while ((at = find_char<'>', '"', '\''>(text, at)) != kNone && text[at] != '>') {
    size_t quote = text.find(text[at], at + 1);
    at = (quote == kNone ? at : quote) + 1;
  }
  return at;
}

}  // namespace neox::wiki
