#include "tokenizer/bpe_split.h"

#include <array>

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

}  // namespace

WordSplitter::Char WordSplitter::read(size_t at) const {
  auto byte = static_cast<uint8_t>(text_[at]);
  if (byte < 0x80) return {kAscii[byte], 1};
  unicode::CodePoint code = unicode::read(text_, at);
  return {properties_.category(code.value), code.bytes};
}

// 2 or 3 where one of the contractions stands at at_, else 0.
size_t WordSplitter::contraction_bytes() const {
  if (text_[at_] != '\'' || at_ + 1 == text_.size()) return 0;
  char first = text_[at_ + 1];
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  std::string_view two = text_.substr(at_ + 1, 2);
  return two == "re" || two == "ve" || two == "ll" ? 3 : 0;
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

std::string_view WordSplitter::next() {
  size_t start = at_, end = start + contraction_bytes();
  if (end == start) {
    Char head = read(start);
    if (text_[start] == ' ' && start + 1 < text_.size()) head = read(start + 1);
    if (head.category == Class::kSpace) {
      end = end_of_spaces();
    } else {
      end = start + (text_[start] == ' ') + head.bytes;
      for (; end < text_.size(); end += head.bytes)
        if (Class kind = head.category; (head = read(end)).category != kind) break;
    }
  }
  at_ = end;
  return text_.substr(start, end - start);
}

}  // namespace neox
