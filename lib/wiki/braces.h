// {{calls}}, {{{parameters}}} and [[links]] that enclose each other, as wikiextractor finds them.
// Linear in the text; pure functions.
#pragma once
#include <string_view>
#include <vector>

namespace neox::wiki {

struct Span {
  size_t begin = 0, end = 0;
};

// What findMatchingBraces() of wikiextractor 3.1.0 looks for: {{ }}, {{{ }}}, or these and [[ ]].
enum class Braces { kAll = 0, kCalls = 2, kParameters = 3 };

// Outermost spans that are closed, in order. Of several opening braces the last three belong to a
// parameter, where three close; what is never closed ends the search.
std::vector<Span> match_braces(std::string_view text, Braces which);

// The parts of a call or parameter: between the "|" that no braces or brackets enclose. At least
// one.
std::vector<std::string_view> split_parts(std::string_view text);

}  // namespace neox::wiki
