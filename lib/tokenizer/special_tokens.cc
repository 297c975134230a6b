#include "tokenizer/special_tokens.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json_bounds.h"

namespace neox {
namespace {

constexpr const char* kEndOfText = "<|endoftext|>";
constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kMap = "special_tokens_map.json";

nlohmann::json object_in(const fs::path& file) {
  return file.empty() ? nlohmann::json::object() : json_object_in(file);
}

// Those of a file that are not among `found`. add_bos_token and its like are none.
void add_named(const fs::path& file, const nlohmann::json& object,
               std::map<std::string, std::string>& found) {
  for (const auto& [key, value] : object.items()) {
    if (!key.ends_with("_token") || value.is_null()) continue;
    const nlohmann::json text =
        value.is_object() ? value.value("content", nlohmann::json()) : value;
    bool wanted = key == "bos_token" || key == "eos_token";
    check_usage(text.is_string() || !wanted, file.string(), ": ", key, " is not a text");
    if (text.is_string()) found.emplace(key, text.get<std::string>());
  }
}

// "" where it is not there.
fs::path there(const fs::path& file) { return is_found(file) ? file : fs::path(); }

}  // namespace

nlohmann::json json_object_in(const fs::path& file) {
  std::string text = read_file(file), what = beyond({}, text);
  check_usage(what.empty(), file.string(), " ", what);
  nlohmann::json object = nlohmann::json::parse(text, nullptr, false);
  check_usage(object.is_object(), file.string(), " is not a JSON object");
  return object;
}

std::map<std::string, std::string> named_tokens(const fs::path& config, const fs::path& map) {
  std::map<std::string, std::string> found;
  const nlohmann::json said = object_in(config);
  add_named(config, said, found);
  if (!said.contains("added_tokens_decoder")) add_named(map, object_in(map), found);
  return found;
}

std::map<std::string, std::string> named_tokens_in(const fs::path& directory) {
  return named_tokens(there(directory / kConfig), there(directory / kMap));
}

SpecialTokens special_tokens_beside(const fs::path& vocab) {
  const fs::path directory = vocab.parent_path();
  SpecialTokens found{kEndOfText, kEndOfText, named_tokens_in(directory)};
  if (there(directory / kConfig).empty() && there(directory / kMap).empty())
    found.named = {{"bos_token", kEndOfText}, {"eos_token", kEndOfText}};
  for (auto [key, token] : {std::pair{"bos_token", &found.bos}, {"eos_token", &found.eos}})
    if (auto at = found.named.find(key); at != found.named.end()) *token = at->second;
  return found;
}

}  // namespace neox
