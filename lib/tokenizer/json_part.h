// Parts of a JSON file, read with messages that say where they stand.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"

namespace neox {

// A JSON object with the words that name it in messages: file and place.
struct JsonPart {
  const nlohmann::json& value;
  std::string where;

  template <class... Text>
  [[noreturn]] void refuse(const Text&... text) const {
    fail(Exit::kIo, where, ": ", text...);
  }
  bool has(const char* key) const {
    return value.is_object() && value.contains(key) && !value[key].is_null();
  }
  JsonPart at(const char* key) const {
    if (!value.is_object()) refuse("expected a JSON object, found ", value.type_name());
    if (!has(key)) refuse("\"", key, value.contains(key) ? "\" is null" : "\" is missing");
    return {value[key], concat(where, ", ", key)};
  }
  std::vector<JsonPart> items() const {
    if (!value.is_array()) refuse("expected a JSON list, found ", value.type_name());
    std::vector<JsonPart> parts;
    for (const nlohmann::json& item : value)
      parts.push_back({item, concat(where, "[", parts.size(), "]")});
    return parts;
  }
  bool flag() const {
    if (!value.is_boolean()) refuse("expected true or false, found ", value.dump());
    return value.get<bool>();
  }
  std::string text() const {
    if (!value.is_string()) refuse("expected a string, found ", value.type_name());
    return value.get<std::string>();
  }
  // Exactly one.
  std::string character() const {
    std::string one = text();
    if (count_characters(one) != 1) refuse("expected one character, found \"", one, "\"");
    return one;
  }
  size_t number(int64_t least) const {
    bool fits = value.is_number_integer() && value.get<int64_t>() >= least;
    if (!fits) refuse("expected a whole number from ", least, " on, found ", value.dump());
    return value.get<size_t>();
  }
  std::string type() const { return at("type").text(); }
};

}  // namespace neox
