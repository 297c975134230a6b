// JSON from outside: broken text, keys that stand twice and deep nesting are errors (74) that name
// the file.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/file.h"

namespace neox {

nlohmann::json parse_json(std::string_view text, const std::string& where);
nlohmann::json read_json(const fs::path& path);  // of at most 100 MB
// A path in quotes, as JSON and YAML have it. Throws (64) for one that is not UTF-8, as both are.
std::string quoted(const fs::path& path);

}  // namespace neox
