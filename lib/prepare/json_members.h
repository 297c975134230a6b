// Where the members of a JSON object stand in its text.
#pragma once
#include <string_view>
#include <vector>

namespace neox {

struct JsonMember {
  std::string_view key;    // as it stands, without the quotes
  std::string_view value;  // as it stands
};

// In the order of the text; empty where the text does not look like an object. What is no JSON
// inside of it may go unnoticed.
std::vector<JsonMember> json_members(std::string_view text);

}  // namespace neox
