#include "wiki/parser_functions.h"

#include <optional>
#include <unordered_map>

#include "wiki/expression.h"
#include "wiki/string_functions.h"
#include "wiki/text.h"

namespace neox::wiki {

namespace {

constexpr std::string_view kError = "<span class=\"error\"></span>";

std::string if_text(Arguments a) {
  if (a.size() < 2) return {};
  if (!strip(a[0]).empty()) return std::string(strip(a[1]));
  return std::string(strip(argument(a, 2)));
}

std::string if_equal(Arguments a) {
  if (a.size() < 3 || strip(a[1]).empty()) return {};
  return std::string(strip(strip(a[0]) == strip(a[1]) ? a[2] : argument(a, 3)));
}

std::string expression(Arguments a) {
  if (a.size() != 1) return {};
  std::optional<Number> value = evaluate(a[0]);
  return value ? to_string(*value) : std::string(kError);
}

std::string if_expression(Arguments a) {
  if (a.empty()) return {};
  std::optional<Number> value = evaluate(a[0]);
  if (!value) return std::string(kError);
  return std::string(strip(argument(a, truthy(*value) ? 1 : 2)));
}

// Behind at least one white space, or at the begin: class="... error ...".
bool has_error_class(std::string_view text, size_t at) {
  constexpr std::string_view kClass = "class=\"";
  if (text.substr(at, kClass.size()) != kClass) return false;
  at += kClass.size();
  size_t close = find_char<'"', '>'>(text, at);
  if (close == kNone || text[close] != '"') return false;
  for (bool begins = true; at < close;) {
    size_t end = at + 5;
    bool error = begins && text.substr(at, 5) == "error";
    if (error && (end == close || space_at(text, end))) return true;
    Char c = read_at(text, at);
    begins = is_space(c.code);
    at += c.bytes;
  }
  return false;
}

// Whether the text begins with a tag of the class "error", such as failing functions give.
bool is_error(std::string_view text) {
  size_t at = kNone;
  for (std::string_view tag : {"<strong", "<span", "<p", "<div"}) {
    if (text.starts_with(tag) && space_at(text, tag.size())) at = tag.size();
  }
  if (at == kNone) return false;
  while (at < text.size() && text[at] != '>') {
    Char c = read_at(text, at);
    at += c.bytes;
    if (is_space(c.code) && has_error_class(text, at)) return true;
  }
  return false;
}

std::string if_error(Arguments a) {
  if (a.empty()) return {};
  if (is_error(a[0])) return std::string(argument(a, 1));
  return std::string(strip(a.size() > 2 ? a[2] : a[0]));
}

bool is_one_of(std::string_view value, std::string_view cases) {
  while (true) {
    size_t bar = cases.find('|');
    if (value == strip(cases.substr(0, bar))) return true;
    if (bar == kNone) return false;
    cases.remove_prefix(bar + 1);
  }
}

std::string choose(Arguments a) {
  if (a.empty()) return {};
  std::string_view value = strip(a[0]), otherwise;
  bool found = false;  // a case without "=" falls through to the next result
  for (std::string_view part : a.subspan(1)) {
    size_t equals = part.find('=');
    std::string_view name = strip(part.substr(0, equals));
    if (equals == kNone) {
      found = found || name == value;
      continue;
    }
    std::string_view result = strip(part.substr(equals + 1));
    if (found || is_one_of(value, name)) return std::string(result);
    if (name == "#default") otherwise = result;
  }
  return std::string(otherwise);
}

// Of Lua modules only this one: {{convert|5|km}} is "5 km".
std::string invoke(Arguments a, const Parameters* frame) {
  if (a.size() < 2 || strip(a[0]) != "convert" || strip(a[1]) != "convert") return {};
  if (!frame || frame->size() < 2) return {};
  auto value = frame->find("1"), unit = frame->find("2");
  if (value == frame->end() || unit == frame->end()) return {};
  return value->second + " " + unit->second;
}

std::string integer(Arguments a) {
  if (a.empty()) return {};
  std::optional<int64_t> value = parse_int(a[0]);
  return value ? std::to_string(*value) : std::string();
}

using Function = std::string (*)(Arguments);

const std::unordered_map<std::string_view, Function>& functions() {
  static const std::unordered_map<std::string_view, Function> table = {
      {"#if", if_text},
      {"#ifeq", if_equal},
      {"#iferror", if_error},
      {"#ifexpr", if_expression},
      {"#expr", expression},
      {"#switch", choose},
      {"#len", length},
      {"#pos", position},
      {"#rpos", last_position},
      {"#sub", substring},
      {"#count", count},
      {"#replace", replace},
      {"#explode", explode},
      {"urlencode", encode},
      {"urldecode", decode},
      {"lc", lower},
      {"lcfirst", lower_one},
      {"uc", upper},
      {"ucfirst", upper_one},
      {"int", integer},
      {"padleft", pad_left},
      {"padright", pad_right},
      {"formatnum", format_number},
  };
  return table;
}

}  // namespace

std::string call_parser_function(std::string_view name, Arguments arguments,
                                 const Parameters* frame) {
  if (name == "#invoke") return invoke(arguments, frame);
  auto found = functions().find(name);
  return found == functions().end() ? std::string() : found->second(arguments);
}

}  // namespace neox::wiki
