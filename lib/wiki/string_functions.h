// The parser functions on strings: lengths, parts, case, padding, numbers, addresses. Positions and
// lengths count characters.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace neox::wiki {

using Arguments = std::span<const std::string_view>;

inline std::string_view argument(Arguments a, size_t i) {
  return i < a.size() ? a[i] : std::string_view();
}

std::string length(Arguments a);         // {{#len: text}}
std::string position(Arguments a);       // {{#pos: text | what | from}}
std::string last_position(Arguments a);  // {{#rpos: text | what}}
std::string substring(Arguments a);      // {{#sub: text | begin | length}}
std::string count(Arguments a);          // {{#count: text | what}}
std::string replace(Arguments a);        // {{#replace: text | what | by | times}}
std::string explode(Arguments a);        // {{#explode: text | between | which | parts}}
std::string encode(Arguments a);         // {{urlencode: text}}
std::string decode(Arguments a);         // {{urldecode: text}}
std::string lower(Arguments a);          // {{lc: text}}
std::string lower_one(Arguments a);      // {{lcfirst: text}}
std::string upper(Arguments a);          // {{uc: text}}
std::string upper_one(Arguments a);      // {{ucfirst: text}}
std::string pad_left(Arguments a);       // {{padleft: text | length | by}}
std::string pad_right(Arguments a);      // {{padright: text | length | by}}
std::string format_number(Arguments a);  // {{formatnum: number | R}}

}  // namespace neox::wiki
