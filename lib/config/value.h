// Values of a configuration file, each with the place it stands at. parse_yaml() is strict where
// yaml-cpp is lenient: a key twice, several documents, anchors, tags and bottomless nesting are
// errors, and what is a number or a truth value is decided here, without asking for a type.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace neox {

struct Place {
  std::string file;          // or "--set"
  int line = 0;              // from 1; 0: no line
  std::string text() const;  // "70M.yml:12"
};

struct Value {
  enum class Kind { kNull, kBool, kNumber, kText, kList, kMap };
  Kind kind = Kind::kNull;
  std::string text;                // of a scalar, as written
  std::vector<std::string> names;  // of a map: names[i] is the key of items[i], with _ for -
  std::vector<Value> items;        // of a list or a map
  Place place;

  const Value* find(std::string_view name) const;  // of a map; null pointer: not there
  bool is_true() const;                            // of a kBool
  std::optional<double> number() const;            // of a kNumber, if it is finite
  std::optional<int64_t> integer() const;          // of a kNumber without fraction: 5e8 is one
  // In one line: 12, "text", [1, 2], {"a": 1}; long values are cut.
  std::string show() const;
};

// Equal as a configuration: 1.0 is 1, True is true; "1" is not 1; the order of keys does not count.
bool same(const Value& a, const Value& b);

// Text and numbers as canonical YAML: plain where it is safe, else in double quotes; the shortest
// number that reads back the same.
std::string yaml_text(std::string_view text);
std::string shortest(double number);

// The one document in `text`. `name` stands in messages and places: "70M.yml" or "--set lr". An
// empty document is null. Throws Error (64).
Value parse_yaml(const std::string& text, const std::string& name);

}  // namespace neox
