#include "tokenizer/bpe_split.h"

#include <array>
#include <limits>

namespace neox {

using unicode::Class;

namespace {

constexpr std::array<Class, 128> ascii_classes() {
  std::array<Class, 128> classes{};
  for (char c = 'a'; c <= 'z'; ++c) classes[c] = classes[c - 'a' + 'A'] = Class::kLetter;
  for (char c = '0'; c <= '9'; ++c) classes[c] = Class::kNumber;
  for (char c : {' ', '\t', '\n', '\v', '\f', '\r'}) classes[c] = Class::kSpace;
  return classes;
}

constexpr std::array<Class, 128> kAscii = ascii_classes();
constexpr size_t kAll = std::numeric_limits<size_t>::max();

}  // namespace

WordSplitter::Char WordSplitter::read(size_t at) const {
  auto byte = static_cast<uint8_t>(text_[at]);
  if (byte < 0x80) return {kAscii[byte], 1};
  unicode::CodePoint code = unicode::read(text_, at);
  Class category = properties_.category(code.value);
  if (words_ == Words::kQwen35 && category == Class::kOther && properties_.upper(code.value))
    category = Class::kLetter;  // a mark
  return {category, code.bytes};
}

bool WordSplitter::is(size_t at, Class category) const {
  return at < text_.size() && read(at).category == category;
}

// Of at most so many characters of a class.
size_t WordSplitter::end_of(Class category, size_t at, size_t most) const {
  for (; most > 0 && is(at, category); --most) at += read(at).bytes;
  return at;
}

// Behind what signs take with them.
size_t WordSplitter::end_of_lines(size_t at) const {
  bool slashes = takes_slashes(words_);
  auto taken = [&](char c) { return c == '\r' || c == '\n' || (slashes && c == '/'); };
  while (at < text_.size() && taken(text_[at])) ++at;
  return at;
}

// 2 or 3 where one of the contractions stands at `at`, else 0. Those of later expressions than
// GPT-2's are of any case, and U+017F is a small s to them.
size_t WordSplitter::contraction_bytes(size_t at) const {
  if (at == text_.size() || text_[at] != '\'') return 0;
  bool any_case = words_ != Words::kGpt2;
  auto letter = [&](size_t i) {
    char c = i < text_.size() ? text_[i] : '\0';
    return any_case && 'A' <= c && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  if (any_case && text_.substr(at + 1).starts_with("\u017F")) return 3;
  char first = letter(at + 1), second = letter(at + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  bool two = (first == 'l' && second == 'l') || ((first == 'r' || first == 'v') && second == 'e');
  return two ? 3 : 0;
}

// \s+(?!\S)|\s+ gives back the last of several spaces to what follows.
size_t WordSplitter::end_of_spaces() const {
  size_t last = at_, end = at_;
  while (end < text_.size()) {
    Char next = read(end);
    if (next.category != Class::kSpace) return last == at_ ? end : last;
    last = end;
    end += next.bytes;
  }
  return end;
}

size_t WordSplitter::end_of_gpt2() const {
  if (size_t bytes = contraction_bytes(at_)) return at_ + bytes;
  Char head = read(at_);
  if (text_[at_] == ' ' && at_ + 1 < text_.size()) head = read(at_ + 1);
  if (head.category == Class::kSpace) return end_of_spaces();
  size_t end = at_ + (text_[at_] == ' ') + head.bytes;
  for (; end < text_.size(); end += head.bytes)
    if (Class kind = head.category; (head = read(end)).category != kind) break;
  return end;
}

size_t WordSplitter::end_of_cl100k() const {
  if (size_t bytes = contraction_bytes(at_)) return at_ + bytes;
  Char head = read(at_);
  bool line = text_[at_] == '\r' || text_[at_] == '\n';
  if (head.category == Class::kLetter) return end_of(Class::kLetter, at_, kAll);
  if (!line && head.category != Class::kNumber && is(at_ + head.bytes, Class::kLetter))
    return end_of(Class::kLetter, at_ + head.bytes, kAll);
  return end_of_signs(head);
}

// What is no word of letters, `head` being the character at at_.
size_t WordSplitter::end_of_signs(const Char& head) const {
  bool single = words_ != Words::kCl100k && words_ != Words::kO200k;
  if (head.category == Class::kNumber) return end_of(Class::kNumber, at_, single ? 1 : 3);
  size_t other = at_ + (text_[at_] == ' ');
  if (is(other, Class::kOther)) return end_of_lines(end_of(Class::kOther, other, kAll));
  size_t spaces = end_of(Class::kSpace, at_, kAll);
  size_t last = text_.substr(at_, spaces - at_).find_last_of("\r\n");
  return last != text_.npos ? at_ + last + 1 : end_of_spaces();
}

size_t WordSplitter::end_of_upper(size_t at) const {
  while (at < text_.size() && properties_.upper(unicode::read(text_, at).value))
    at += read(at).bytes;
  return at;
}

// Of U*L+; `at` itself where there is none. Where no small letter follows the U, the last of them
// that is an L as well ends it.
size_t WordSplitter::end_of_lower(size_t at) const {
  size_t end = end_of_upper(at);
  auto lower = [&](size_t i) { return properties_.lower(unicode::read(text_, i).value); };
  if (end < text_.size() && lower(end)) {
    while (end < text_.size() && lower(end)) end += read(end).bytes;
    return end;
  }
  size_t last = at;
  for (; at < end; at += read(at).bytes)
    if (lower(at)) last = at + read(at).bytes;
  return last;
}

// A sign belongs to the letters behind it; a mark may also be one of them.
size_t WordSplitter::end_of_o200k() const {
  Char head = read(at_);
  bool line = text_[at_] == '\r' || text_[at_] == '\n';
  bool sign = !line && (head.category == Class::kOther || head.category == Class::kSpace);
  size_t begin = at_ + (sign ? head.bytes : 0), end = end_of_lower(begin);
  if (end == begin) end = end_of_lower(at_);
  if (size_t upper = end_of_upper(begin); end == at_ && upper > begin) end = upper;
  if (end == at_) return end_of_signs(head);
  return end + (words_ == Words::kO200k ? contraction_bytes(end) : 0);
}

std::string_view WordSplitter::next() {
  size_t start = at_;
  switch (words_) {
    case Words::kGpt2:
      at_ = end_of_gpt2();
      break;
    case Words::kO200k:
    case Words::kTekken:
      at_ = end_of_o200k();
      break;
    default:
      at_ = end_of_cl100k();
  }
  return text_.substr(start, at_ - start);
}

}  // namespace neox
