#include "base/json_bounds.h"

#include <vector>

#include "base/error.h"

namespace neox {

std::string beyond(const JsonBounds& most, std::string_view json) {
  std::vector<size_t> keys;  // so far, of each object or list that is open
  size_t all_keys = 0;
  bool in_string = false;
  for (size_t at = 0; at < json.size(); ++at) {
    char c = json[at];
    if (c == '"') in_string = !in_string;
    if (in_string) {
      if (c == '\\') ++at;
    } else if (c == '{' || c == '[') {
      if (keys.size() == most.levels)
        return concat("is nested in more than ", most.levels, " levels");
      keys.push_back(0);
    } else if ((c == '}' || c == ']') && !keys.empty()) {
      keys.pop_back();
    } else if (c == ':' && !keys.empty()) {
      if (++keys.back() > most.keys)
        return concat("has an object of more than ", most.keys, " keys");
      if (++all_keys > most.all_keys) return concat("has more than ", most.all_keys, " keys");
    }
  }
  return "";
}

}  // namespace neox
