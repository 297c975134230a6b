#include "config/check.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "config/keys.h"

namespace neox {
namespace {

using Kind = Value::Kind;

bool is_word(const std::string& text, const char* words) {
  for (const std::string& word : split(words, '|'))
    if (!word.empty() && equal_words(text, word)) return true;
  return false;
}

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::kNull:
      return "nothing";
    case Kind::kBool:
      return "a truth value";
    case Kind::kNumber:
      return "a number";
    case Kind::kText:
      return "text";
    case Kind::kList:
      return "a list";
    case Kind::kMap:
      return "a dictionary";
  }
  return "";
}

bool all_of_kind(const Value& list, Kind kind) {
  return std::all_of(list.items.begin(), list.items.end(),
                     [&](const Value& item) { return item.kind == kind; });
}

bool fits(const KeyRow& row, const Value& value) {
  bool list = value.kind == Kind::kList;
  switch (row.type) {
    case KeyType::kBool:
      return value.kind == Kind::kBool;
    case KeyType::kInt:
      return value.integer().has_value();
    case KeyType::kNumber:
      return value.number().has_value();
    case KeyType::kText:
      return value.kind == Kind::kNumber || (value.kind == Kind::kText && value.text != "None");
    case KeyType::kChoice:
      return value.kind == Kind::kText;
    case KeyType::kInts:
      return list && std::all_of(value.items.begin(), value.items.end(),
                                 [](const Value& item) { return item.integer().has_value(); });
    case KeyType::kNumbers:
      return list && std::all_of(value.items.begin(), value.items.end(),
                                 [](const Value& item) { return item.number().has_value(); });
    case KeyType::kTexts:
      return list && all_of_kind(value, Kind::kText);
    case KeyType::kPattern:
      return list;
    case KeyType::kDict:
      return value.kind == Kind::kMap;
    case KeyType::kAny:
      return true;
  }
  return false;
}

// "TRAIN_BATCH_SIZE", "$LR", "{{lr}}"
bool is_placeholder(const std::string& text) {
  auto fits = [](unsigned char c) { return std::isupper(c) || std::isdigit(c) || c == '_'; };
  bool upper = text.size() > 1 && std::isupper(static_cast<unsigned char>(text[0]));
  return (upper && std::ranges::all_of(text, fits)) || text.starts_with('$') ||
         text.starts_with("{{");
}

// What turns the value into the one that was meant, where that can be told.
std::string type_cure(const KeyRow& row, const Value& value) {
  bool number = row.type == KeyType::kInt || row.type == KeyType::kNumber;
  if (value.kind == Kind::kText && value.text == "None")
    return "; write null, or leave the key out";
  if (value.kind == Kind::kText && value.text == "auto")
    return "; \"auto\" is for transformers' Trainer to fill in: leave the key out";
  if (value.kind == Kind::kText && is_placeholder(value.text))
    return "; it looks like a placeholder that a script should have filled in";
  if (number && value.kind == Kind::kText) {
    Value plain = parse_yaml(value.text, "");
    if (plain.kind == Kind::kNumber) return "; write it without quotes";
    const std::string& digits = value.text;
    if (digits.size() > 1 && digits[0] == '0' &&
        std::isdigit(static_cast<unsigned char>(digits[1])))
      return "; write it without the leading 0";
    if (digits.size() > 2 && digits[0] == '0' && std::strchr("xXoObB", digits[1]) &&
        digits.find_first_not_of("0123456789abcdefABCDEF", 2) == digits.npos)
      return "; write it in decimal";
  }
  if (row.type == KeyType::kInt && value.kind == Kind::kNumber)
    return value.number() ? "; it has a fraction or is too large" : "; it is too large";
  if (row.type == KeyType::kNumber && value.kind == Kind::kNumber) return "; it is out of range";
  if (row.type == KeyType::kText && value.kind == Kind::kBool)
    return "; put it in quotes if it is text";
  if (row.type == KeyType::kTexts && value.kind == Kind::kText)
    return concat("; write [", yaml_text(value.text), "]");
  return "";
}

// What is wrong with the value's type, or "".
std::string type_fault(const std::string& path, const KeyRow& row, const Value& value) {
  bool none = row.fate == Fate::kNoEffect && value.kind == Kind::kText && value.text == "None";
  if (none || fits(row, value)) return "";
  return concat(path, " is ", value.show(), " (", kind_name(value.kind), "); allowed is ",
                describe_type(row), type_cure(row, value));
}

// Whether a dictionary of DeepSpeed's is switched off: by its `enabled`, or in all of its parts
// that have one. Nothing: there is no switch.
std::optional<bool> is_off(const Value& map) {
  const Value* enabled = map.find("enabled");
  if (enabled && enabled->kind == Kind::kBool && !enabled->is_true()) return true;
  bool any = false, all = true;
  for (const Value& part : map.items)
    if (auto off = part.kind == Kind::kMap ? is_off(part) : std::nullopt)
      any = true, all = all && *off;
  return any ? std::optional(all) : enabled ? std::optional(false) : std::nullopt;
}

bool is_harmless(const KeyRow& row, const Value& value) {
  if (row.type == KeyType::kDict) return value.items.empty() || is_off(value).value_or(false);
  if (row.type == KeyType::kChoice && is_word(value.text, row.allowed)) return true;
  if (value.kind == Kind::kList) return value.items.empty();
  if (value.kind == Kind::kText && value.text.empty()) return true;
  return same(value, parse_yaml(row.fallback, row.name));
}

std::string refusal_cure(const KeyRow& row) {
  if (*row.allowed) return concat("; supported is ", join(split(row.allowed, '|'), ", "));
  bool has_default = row.type != KeyType::kDict && std::string(row.fallback) != "null";
  return has_default ? concat("; remove the key, or set it to ", row.fallback) : "; remove the key";
}

// What is not supported of it, or "".
std::string fate_fault(const std::string& path, const KeyRow& row, const Value& value) {
  bool choice = row.type == KeyType::kChoice;
  if (choice && is_word(value.text, row.allowed)) return "";
  if (choice && !is_word(value.text, row.later))
    return concat(path, " is ", value.show(), "; allowed is ", describe_type(row));
  bool later = choice || (row.fate == Fate::kRefused && !is_harmless(row, value));
  if (!later) return "";
  std::string why = row.fate == Fate::kRefused && *row.words ? concat(" (", row.words, ")") : "";
  return concat(path, ": ", value.show(), " is not supported yet", why, refusal_cure(row));
}

void find_faults(const Value& map, const std::string& parent, std::vector<std::string>& faults) {
  for (size_t i = 0; i < map.items.size(); ++i) {
    const std::string& name = map.names[i];
    const Value& value = map.items[i];
    std::string path = parent.empty() ? name : parent + '.' + name;
    const KeyRow* row = name.find('.') == name.npos ? find_key(path) : nullptr;
    std::string fault;
    if (!row)
      fault = concat("unknown key '", path, "'", suggest_key(name, parent));
    else if (value.kind != Kind::kNull)
      fault = type_fault(path, *row, value);
    if (fault.empty() && row && value.kind != Kind::kNull) fault = fate_fault(path, *row, value);
    if (!fault.empty())
      faults.push_back(concat(value.place.text(), ": ", fault));
    else if (row && !row->children.empty())
      find_faults(value, path, faults);
  }
}

}  // namespace

void check_keys(const Value& root) {
  constexpr size_t kMost = 20;
  std::vector<std::string> faults;
  find_faults(root, "", faults);
  if (faults.empty()) return;
  size_t more = faults.size() - std::min(faults.size(), kMost);
  faults.resize(faults.size() - more);
  fail(Exit::kUsage, join(faults, "\n"), more ? concat("\nand ", more, " more") : "");
}

}  // namespace neox
