#include "convert/megatron_command_line.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/terminal.h"
#include "base/utf8.h"

namespace neox {
namespace {

using Json = nlohmann::json;

// As int() and float() of Python read it, else a text.
Json value_of(const std::string& word) {
  std::string digits = word;
  std::erase(digits, '_');
  const char *from = digits.data(), *to = from + digits.size();
  int64_t whole = 0;
  if (auto [end, error] = std::from_chars(from, to, whole); error == std::errc() && end == to)
    return whole;
  double number = 0;
  if (auto [end, error] = std::from_chars(from, to, number); error == std::errc() && end == to)
    return number;
  return word;
}

}  // namespace

Json MegatronWords::value() const {
  if (words.empty()) return true;
  if (words.size() == 1) return value_of(words[0]);
  Json values = Json::array();
  for (const std::string& word : words) values.push_back(value_of(word));
  return values;
}

// Behind the last *.py; an option takes what stands in front of the next one.
std::vector<MegatronWords> split_command_line(const std::vector<std::string>& arguments) {
  auto program = std::find_if(arguments.rbegin(), arguments.rend(),
                              [](const std::string& a) { return a.ends_with(".py"); });
  std::vector<MegatronWords> given;
  for (const std::string& argument : arguments)
    check_usage(is_utf8(argument), "'", printable(argument),
                "' is not UTF-8, as what is made of it must be");
  for (auto at = program.base(); at != arguments.end(); ++at) {
    if (*at == "--") continue;
    if (at->starts_with("--")) {
      size_t equals = std::min(at->find('='), at->size());
      std::string name = at->substr(2, equals - 2);
      std::ranges::replace(name, '-', '_');
      given.push_back({at->substr(0, equals), name, {}});
      if (equals < at->size()) given.back().words.push_back(at->substr(equals + 1));
    } else {
      check_usage(!given.empty(), "'", *at,
                  "' is no option of pretrain_gpt.py; they begin with --");
      given.back().words.push_back(*at);
    }
  }
  check_usage(!given.empty(), "there are no options of pretrain_gpt.py, such as --num-layers 24");
  return given;
}

}  // namespace neox
