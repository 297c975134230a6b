#include "convert/json.h"

#include <set>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"

namespace neox {
namespace {

using Json = nlohmann::json;

constexpr int kMostLevels = 16;
constexpr uintmax_t kMostBytes = 100'000'000;

}  // namespace

Json parse_json(std::string_view text, const std::string& where) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  auto look = [&](int depth, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start)
      check_io(depth < kMostLevels, where, " is nested in more than ", kMostLevels, " levels");
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key) {
      auto name = parsed.get<std::string>();
      check_io(keys.back().insert(name).second, where, ": the key ", name, " stands there twice");
    }
    return true;
  };
  try {
    return Json::parse(text, look);
  } catch (const Json::exception& e) {
    fail(Exit::kIo, where, " is not readable JSON: ", e.what());
  }
}

Json read_json(const fs::path& path) {
  std::error_code error;
  uintmax_t bytes = fs::file_size(path, error);
  check_io(!error, "cannot read ", path.string(), ": ", describe_errno(error.value()));
  check_io(bytes <= kMostBytes, path.string(), " has ", bytes, " bytes; more than ", kMostBytes,
           " are not read");
  return parse_json(read_file(path), path.string());
}

std::string quoted(const fs::path& path) {
  check_usage(is_utf8(path.string()), path.string(),
              " is not UTF-8, as a configuration that names it must be; give another path");
  return Json(path.string()).dump();
}

}  // namespace neox
