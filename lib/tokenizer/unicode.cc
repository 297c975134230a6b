#include "tokenizer/unicode.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/utf8.h"
#include "tokenizer/unicode_tables.h"

namespace neox::unicode {
namespace {

constexpr char32_t kCodePoints = 0x110000;
constexpr char32_t kReplacement = 0xFFFD;

constexpr size_t kBlock = 128;

// Eight bytes that are not all ASCII have one of these bits.
constexpr uint64_t kHighBits = 0x8080808080808080u;

// The first position from `at` on where text is not ASCII.
size_t skip_ascii(std::string_view text, size_t at) {
  for (; at + kBlock <= text.size(); at += kBlock) {
    uint64_t words[kBlock / 8], all = 0;
    std::memcpy(words, text.data() + at, kBlock);
    for (uint64_t word : words) all |= word;
    if (all & kHighBits) break;
  }
  for (uint64_t word; at + 8 <= text.size(); at += 8) {
    std::memcpy(&word, text.data() + at, 8);
    if (word & kHighBits) break;
  }
  while (at < text.size() && static_cast<uint8_t>(text[at]) < 0x80) ++at;
  return at;
}

// The bytes of what has two or three and is valid, where that is quick to see; else 0.
size_t common_letter(std::string_view text, size_t at) {
  auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  if (text.size() - at < 3 || byte(0) < 0xC2 || byte(0) >= 0xF0) return 0;
  size_t bytes = byte(0) < 0xE0 ? 2 : 3;
  bool plain = byte(0) != 0xE0 && byte(0) != 0xED && (byte(1) & 0xC0) == 0x80 &&
               (byte(bytes - 1) & 0xC0) == 0x80;
  return plain ? bytes : 0;
}

size_t first_invalid(std::string_view text) {
  for (size_t at = skip_ascii(text, 0); at < text.size(); at = skip_ascii(text, at)) {
    do {
      Utf8Sequence next{common_letter(text, at), true};
      if (next.bytes == 0) next = utf8_sequence(text, at);
      if (!next.valid) return at;
      at += next.bytes;
    } while (at < text.size() && static_cast<uint8_t>(text[at]) >= 0x80);
  }
  return text.size();
}

}  // namespace

CodePoint read_before(std::string_view text, size_t end) {
  size_t start = end - 1;
  while (continues_character(text[start])) --start;
  return read(text, start);
}

bool is_space(char32_t code) { return Properties::get().category(code) == Class::kSpace; }

size_t skip_spaces_back(std::string_view text, size_t at) {
  while (at > 0) {
    CodePoint code = read_before(text, at);
    if (!is_space(code.value)) break;
    at -= code.bytes;
  }
  return at;
}

size_t skip_spaces(std::string_view text, size_t at) {
  while (at < text.size()) {
    CodePoint code = read(text, at);
    if (!is_space(code.value)) break;
    at += code.bytes;
  }
  return at;
}

void append(std::string& text, char32_t code) {
  auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  auto tail = [&](int shift) { put(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) return put(0xC0 | code >> 6), tail(0);
  if (code < 0x10000) return put(0xE0 | code >> 12), tail(6), tail(0);
  put(0xF0 | code >> 18), tail(12), tail(6), tail(0);
}

std::string_view repair(std::string_view text, std::string& storage) {
  size_t at = first_invalid(text);
  if (at == text.size()) return text;
  storage.assign(text.substr(0, at));
  while (at < text.size()) {
    Utf8Sequence next = utf8_sequence(text, at);
    if (next.valid)
      storage.append(text, at, next.bytes);
    else
      append(storage, kReplacement);
    at += next.bytes;
  }
  return storage;
}

const Properties& Properties::get() {
  static const Properties properties;
  return properties;
}

bool Properties::punctuation(char32_t code) const {
  auto range = std::ranges::lower_bound(unicode::punctuation, code, {}, &CodeRange::last);
  return range != unicode::punctuation.end() && range->first <= code;
}

Properties::Properties() : bits_(kCodePoints, 0) {
  auto mark = [&](const auto& ranges, int bits, int not_bits = 0) {
    for (const auto& range : ranges)
      for (char32_t code = range.first; code <= range.last; ++code)
        bits_[code] = static_cast<char>((bits_[code] | bits) & ~not_bits);
  };
  for (const CategoryRange& range : categories) {
    std::string_view name = range.category;
    std::array one{range};
    if (name[0] == 'L') mark(one, static_cast<int>(Class::kLetter) | kUpper | kLower);
    if (name[0] == 'M') mark(one, kUpper | kLower);
    if (name[0] == 'N') mark(one, static_cast<int>(Class::kNumber));
    if (name == "Lu" || name == "Lt") mark(one, 0, kLower);
    if (name == "Ll") mark(one, 0, kUpper);
  }
  mark(spaces, static_cast<int>(Class::kSpace));
  mark(newer_numbers, kNewerNumber);
  mark(word_characters, kWord);
  mark(combining, kUnstable);
  mark(hangul, kUnstable);
  for (const Decomposition& d : decompositions) {
    if (d.composes) bits_[d.second] |= kUnstable;
    if (!d.composes) bits_[d.code] |= kUnstable;
  }
  for (const Compatibility& c : compatibilities)
    mark(std::array{CodeRange{c.code, c.code}}, kCompatible);
  std::string text;
  for (char32_t code = 0x80; code < kCodePoints; ++code) {
    if (!unstable(code)) continue;
    text.clear();
    append(text, code);
    lead_unstable_[static_cast<uint8_t>(text[0])] = true;
  }
}

}  // namespace neox::unicode
