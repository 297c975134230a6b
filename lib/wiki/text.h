// UTF-8 text as Python's `str` and `re` treat it: characters, white space, words, case, the
// references of HTML. Pure functions; any thread may call them.
//
// Text is UTF-8; surrogates, which references such as &#xD83D; bring, are coded like other
// characters until join_surrogates().
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace neox::wiki {

inline constexpr size_t kNone = std::string_view::npos;

struct Char {
  char32_t code = 0;
  size_t bytes = 1;
};

// The character that begins at text[at], or that ends before it. A byte out of place is U+FFFD.
Char read_wide_at(std::string_view text, size_t at);
inline Char read_at(std::string_view text, size_t at) {
  auto byte = static_cast<unsigned char>(text[at]);
  return byte < 0x80 ? Char{byte, 1} : read_wide_at(text, at);
}
Char read_before(std::string_view text, size_t at);

// The byte at which the n-th character begins; the size where there are fewer.
size_t byte_of_char(std::string_view text, size_t n);

inline constexpr uint8_t kWordChar = 1, kSpaceChar = 2;
inline constexpr std::array<uint8_t, 128> kAscii = [] {
  std::array<uint8_t, 128> kinds{};
  for (int c = 0; c < 128; ++c) {
    bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    bool space = (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
    kinds[static_cast<size_t>(c)] = word || c == '_' ? kWordChar : space ? kSpaceChar : 0;
  }
  return kinds;
}();
bool is_wide_space(char32_t code);  // of what is not ASCII
bool is_wide_word(char32_t code);

inline bool is_space(char32_t code) {  // str.isspace(), \s
  return code < 128 ? kAscii[code] == kSpaceChar : is_wide_space(code);
}
inline bool is_word(char32_t code) {  // \w
  return code < 128 ? kAscii[code] == kWordChar : is_wide_word(code);
}
// At a byte of the text; false at its end.
inline bool space_at(std::string_view text, size_t at) {
  return at < text.size() && is_space(read_at(text, at).code);
}
inline bool word_at(std::string_view text, size_t at) {
  return at < text.size() && is_word(read_at(text, at).code);
}
// The first place at or behind `at` that is not white space.
size_t skip_space(std::string_view text, size_t at);

std::string_view strip(std::string_view text);
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);

std::string to_lower(std::string_view text);
std::string to_upper(std::string_view text);
std::string upper_first(std::string_view text);
std::string lower_first(std::string_view text);

inline char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
// Whether the text has the word, given in lower case, at that place, in whatever case.
inline bool has_word_at(std::string_view text, size_t at, std::string_view lower_case) {
  if (at > text.size() || text.size() - at < lower_case.size()) return false;
  for (size_t i = 0; i < lower_case.size(); ++i) {
    if (ascii_lower(text[at + i]) != lower_case[i]) return false;
  }
  return true;
}

// The first of some characters at or behind a place: much faster than find_first_of().
template <char... kChars>
size_t find_char(std::string_view text, size_t at) {
  constexpr uint64_t kOnes = 0x0101010101010101, kTops = kOnes << 7;
  for (; at + 8 <= text.size(); at += 8) {  // the highest bit of each byte that is one of them
    uint64_t word = 0;
    std::memcpy(&word, text.data() + at, sizeof word);
    auto equal = [word](char c) {
      uint64_t other = word ^ (kOnes * static_cast<unsigned char>(c));
      return (other - kOnes) & ~other;
    };
    if ((equal(kChars) | ...) & kTops) break;
  }
  for (; at < text.size(); ++at) {
    if (((text[at] == kChars) || ...)) return at;
  }
  return kNone;
}

// As replace_all(), in place; nothing is copied where there is none.
void replace_in(std::string& text, std::string_view what, std::string_view by);

// Character references (&lt; &#65; &#x41;) become characters; unknown ones stay.
std::string unescape(std::string_view text);
// & < > become references.
std::string escape(std::string_view text);

// U+FFFD for each maximal invalid part, as Python's errors="replace".
std::string repair(std::string text);
// Two surrogates that belong together become one character, others "?".
void join_surrogates(std::string& text);

}  // namespace neox::wiki
