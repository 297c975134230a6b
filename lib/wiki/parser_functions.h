// The parser functions that wikiextractor 3.1.0 knows: {{#if:}}, {{#switch:}}, {{#expr:}}, {{lc:}}
// and so on, with its limits: what it does not know, or calls with too few arguments, gives
// nothing.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace neox::wiki {

// Values of a template's parameters by their names; without names they are called 1, 2, ...
using Parameters = std::map<std::string, std::string, std::less<>>;

// Results longer than this are given up, and are empty.
inline constexpr int64_t kMaxFunctionResult = 2 << 20;

// `arguments` are those between the bars, not expanded but for the first, which is what follows the
// colon. `frame` holds the parameters of the template whose text has the call; null: none has.
std::string call_parser_function(std::string_view name, std::span<const std::string_view> arguments,
                                 const Parameters* frame);

}  // namespace neox::wiki
