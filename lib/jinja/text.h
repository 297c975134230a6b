// Texts as Python's str has them: in characters, with its white space and cases. UTF-8; pure.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace neox::jinja {

std::vector<std::string_view> characters(std::string_view text);
// From one that it has up to another one or its end; none where they are in another order.
std::string_view characters_between(std::string_view text, int64_t begin, int64_t end);

// Where it first stands from a byte on, and where it stands last; npos: nowhere.
size_t find_text(std::string_view text, std::string_view what, size_t from = 0);
size_t find_last_text(std::string_view text, std::string_view what);

// As str.isspace() of one character.
bool is_space(std::string_view character);

// As str.strip(), lstrip() and rstrip(): of white space, or of any of the characters in `of`.
enum class Side { kBoth, kLeft, kRight };
std::string_view strip(std::string_view text, Side side = Side::kBoth, std::string_view of = {});

// As str.replace(), the first so many times: an empty text stands before each character and behind
// the last. Throws Failure where that is longer than texts may be.
std::string replaced(std::string_view text, std::string_view what, std::string_view by,
                     size_t times);

// The first line of a text, which is taken off it, and what ends it of what str.splitlines() knows.
struct Line {
  std::string_view text, end;
};
Line take_line(std::string_view& text);

// As repr() of a str: in the quotes that Python takes, the characters that it does not print by
// their numbers.
std::string in_quotes(std::string_view text);

// Character by character, in the Unicode of the C library.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalized(std::string_view text);  // the first letter upper, the rest lower
// So in each word, which follow what is no letter (str.title()), or white space, -, ( and the like
// (the filter title).
enum class Titled { kLetters, kWords };
std::string titled(std::string_view text, Titled which);

}  // namespace neox::jinja
