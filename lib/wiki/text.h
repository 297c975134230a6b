// UTF-8 text as Python's `str` and `re` treat it: characters, white space, words, case, the
// references of HTML. Pure functions; any thread may call them.
//
// Text is UTF-8; surrogates, which references such as &#xD83D; bring, are coded like other
// characters until join_surrogates().
#pragma once
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
Char read_at(std::string_view text, size_t at);
Char read_before(std::string_view text, size_t at);

void append_char(std::string& text, char32_t code);
size_t count_chars(std::string_view text);
// The byte at which the n-th character begins; the size where there are fewer.
size_t byte_of_char(std::string_view text, size_t n);

bool is_space(char32_t code);  // str.isspace(), \s
bool is_word(char32_t code);   // \w
// At a byte of the text; false at its end.
bool space_at(std::string_view text, size_t at);
bool word_at(std::string_view text, size_t at);
// The first place at or behind `at` that is not white space.
size_t skip_space(std::string_view text, size_t at);

std::string_view strip(std::string_view text);
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);

std::string to_lower(std::string_view text);
std::string to_upper(std::string_view text);
std::string upper_first(std::string_view text);
std::string lower_first(std::string_view text);

char ascii_lower(char c);
// Whether the text has the word, given in lower case, at that place, in whatever case.
bool has_word_at(std::string_view text, size_t at, std::string_view lower_case);

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

// Each occurrence from left to right, as str.replace().
std::string replace_all(std::string_view text, std::string_view what, std::string_view by);
// The same in place; nothing is copied where there is none.
void replace_in(std::string& text, std::string_view what, std::string_view by);

// Character references (&lt; &#65; &#x41;) become characters; unknown ones stay.
std::string unescape(std::string_view text);
// & < > become references.
std::string escape(std::string_view text);

// U+FFFD for each maximal invalid part, as Python's errors="replace".
std::string repair(std::string_view text);
// Two surrogates that belong together become one character, others "?".
void join_surrogates(std::string& text);

}  // namespace neox::wiki
