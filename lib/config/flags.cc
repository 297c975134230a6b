#include "config/flags.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"
#include "config/keys.h"

namespace neox {
namespace {

// "--num-layers=12" is num_layers.
std::string key_of(const std::string& option) {
  std::string key = option.substr(2, std::min(option.find('='), option.size()) - 2);
  std::replace(key.begin(), key.end(), '-', '_');
  return name_of_today(key);
}

bool is_truth(const std::string& text) {
  return std::ranges::any_of(std::array{"true", "false", "yes", "no", "on", "off"},
                             [&](const char* word) { return equal_words(text, word); });
}

// The key that an option without a value sets to true; "" where it needs one.
std::string switched_on(const std::string& key, const KeyRow& row) {
  if (row.type == KeyType::kBool) return key;
  bool enabled = row.type == KeyType::kDict && find_key(key + ".enabled");
  return enabled ? key + ".enabled" : "";
}

// The truth value that "no_KEY" makes false, as argparse's switches do; "" where there is none.
std::string switched_off(const std::string& key) {
  if (!key.starts_with("no_")) return "";
  const KeyRow* row = find_key(key.substr(3));
  return row && row->type == KeyType::kBool ? key.substr(3) : "";
}

}  // namespace

std::string take_key_flag(std::vector<std::string>& arguments) {
  const std::string option = arguments.front();
  if (!option.starts_with("--")) return "";
  std::string key = key_of(option);
  const KeyRow* row = find_key(key);
  if (!row) {
    std::string off = option.find('=') == option.npos ? switched_off(key) : "";
    if (off.empty()) return "";
    arguments.erase(arguments.begin());
    return off + "=false";
  }
  arguments.erase(arguments.begin());
  if (size_t equals = option.find('='); equals != option.npos) return key + option.substr(equals);
  std::string on = switched_on(key, *row);
  bool value = !arguments.empty() && !arguments.front().starts_with("--") &&
               (on.empty() || is_truth(arguments.front()));
  check_usage(value || !on.empty(), option, ": the value is missing, ", describe_type(*row));
  if (!value) return on + "=true";
  std::string assignment = concat(on.empty() ? key : on, "=", arguments.front());
  arguments.erase(arguments.begin());
  return assignment;
}

std::string suggest_key_flag(const std::string& option, std::vector<std::string> options) {
  // Of GPT-NeoX's deepy.py.
  if (option == "-H") return "; leave it out: Slurm or mpirun know the hosts";
  if (option == "-i") return "; prompts are answered by neox-generate --file";
  if (option == "-o") return "; neox-generate writes to standard output";
  if (!option.starts_with("--")) return did_you_mean(nearest(option, options));
  std::string key = key_of(option);
  if (std::string words = translate_key(key); !words.empty()) return words;
  auto add = [&](std::span<const KeyRow> rows) {
    for (const KeyRow& row : rows) {
      std::string name = row.name;
      std::replace(name.begin(), name.end(), '_', '-');
      options.push_back("--" + name);
    }
  };
  for (const KeyGroup& group : neox_keys()) add(group.rows);
  add(own_keys());
  return did_you_mean(nearest(option, options), suggest_key(key, ""));
}

}  // namespace neox
