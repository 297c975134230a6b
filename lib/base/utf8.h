// What is UTF-8 (Unicode 15, table 3-7), and where a text may be cut.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace neox {

// Whether a byte is none that begins a character.
inline bool continues_character(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

// That begin in these bytes.
inline size_t count_characters(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return !continues_character(c); }));
}

struct Utf8Sequence {
  size_t bytes;
  bool valid;
};

// The sequence at text[at], or the longest part of one that starts there.
inline Utf8Sequence utf8_sequence(std::string_view text, size_t at) {
  auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  uint8_t lead = byte(0);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  size_t wanted = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;   // no overlong forms
  uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;  // no surrogates, no more planes
  for (size_t i = 1; i < wanted; ++i) {
    if (at + i == text.size() || byte(i) < low || byte(i) > high) return {i, false};
    low = 0x80, high = 0xBF;
  }
  return {wanted, true};
}

inline bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    Utf8Sequence next = utf8_sequence(text, at);
    if (!next.valid) return false;
    at += next.bytes;
  }
  return true;
}

// The first characters of the text, of at most so many bytes together.
inline std::string_view first_characters(std::string_view text, size_t bytes) {
  size_t end = bytes;
  while (end > 0 && end < text.size() && continues_character(text[end])) --end;
  return text.substr(0, end);
}

// What somebody wrote, for a sentence about it: where it is long, its beginning.
inline std::string beginning_of(std::string_view text) {
  constexpr size_t kShown = 60;
  std::string shown(first_characters(text, kShown));
  return text.size() > kShown ? shown + " ..." : shown;
}

}  // namespace neox
