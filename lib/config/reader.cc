#include "config/reader.h"

#include <algorithm>

#include "base/text.h"
#include "config/keys.h"

namespace neox {
namespace {

using Kind = Value::Kind;

// One spelling for one value: True and yes are true, 1.0 is 1.
std::string canonical(const Value& value) {
  switch (value.kind) {
    case Kind::kNull:
      return "null";
    case Kind::kBool:
      return value.is_true() ? "true" : "false";
    case Kind::kText:
      return yaml_text(value.text);
    case Kind::kNumber:
      if (auto whole = value.integer()) return std::to_string(*whole);
      return shortest(value.number().value_or(0));
    default:
      break;
  }
  std::vector<std::string> parts;
  for (size_t i = 0; i < value.items.size(); ++i)
    parts.push_back(
        concat(value.kind == Kind::kMap ? value.names[i] + ": " : "", canonical(value.items[i])));
  return value.kind == Kind::kMap ? "{" + join(parts, ", ") + "}" : "[" + join(parts, ", ") + "]";
}

}  // namespace

const Value* KeyReader::given(const std::string& key) const {
  const Value* at = &root_;
  for (const std::string& name : split(key, '.')) {
    at = at->kind == Kind::kMap ? at->find(name) : nullptr;
    if (!at) return nullptr;
  }
  return at->kind == Kind::kNull ? nullptr : at;
}

bool KeyReader::overridden(const std::string& key) const {
  const Value* value = given(key);
  return value && value->place.file == "--set";
}

std::string KeyReader::where(const std::string& key) const {
  if (const Value* value = given(key)) return value->place.text();
  auto derived = settings_.find(key);
  return derived == settings_.end() ? "default" : derived->second.source;
}

Value KeyReader::effective(const std::string& key) const {
  if (const Value* value = given(key)) return *value;
  const KeyRow* row = find_key(key);
  check(row != nullptr, "no row for the key ", key);
  return parse_yaml(row->fallback, key);
}

void KeyReader::record(const std::string& key, const std::string& value) {
  settings_[key] = {key, value, where(key), Effect::kUsed};
}

void KeyReader::record_given(const std::string& key, const Value& value) {
  record(key, canonical(value));
}

void KeyReader::record_input(const std::string& key) {
  record_given(key, effective(key));
  mark(key, Effect::kInput);
}

void KeyReader::derive(const std::string& key, const std::string& value, const std::string& from) {
  settings_[key] = {key, value, "derived from " + from, Effect::kDerived};
}

void KeyReader::mark(const std::string& key, Effect effect) {
  auto at = settings_.find(key);
  if (at != settings_.end()) at->second.effect = effect;
}

bool KeyReader::flag(const std::string& key) {
  Value value = effective(key);
  record_given(key, value);
  return value.kind == Kind::kBool && value.is_true();
}

std::optional<int64_t> KeyReader::maybe_integer(const std::string& key) {
  Value value = effective(key);
  record_given(key, value);
  return value.integer();
}

std::optional<double> KeyReader::maybe_number(const std::string& key) {
  Value value = effective(key);
  record_given(key, value);
  return value.number();
}

int64_t KeyReader::integer(const std::string& key) {
  auto value = maybe_integer(key);
  check_usage(value.has_value(), key, " is missing; give it in a configuration file, such as ", key,
              ": 1");
  return *value;
}

double KeyReader::number(const std::string& key) {
  auto value = maybe_number(key);
  check_usage(value.has_value(), key, " is missing; give it in a configuration file");
  return *value;
}

std::string KeyReader::text(const std::string& key) {
  Value value = effective(key);
  if (value.kind != Kind::kNull) value.kind = Kind::kText;
  record_given(key, value);
  return value.text;
}

std::string KeyReader::choice(const std::string& key) {
  Value value = effective(key);
  const KeyRow* row = find_key(key);
  for (const std::string& word : split(row->allowed, '|'))
    if (equal_words(word, value.text)) value.text = word;
  record_given(key, value);
  return value.text;
}

std::vector<int64_t> KeyReader::integers(const std::string& key) {
  std::vector<int64_t> list;
  Value value = effective(key);
  for (const Value& item : value.items) list.push_back(*item.integer());
  record_given(key, value);
  return list;
}

std::vector<double> KeyReader::numbers(const std::string& key) {
  std::vector<double> list;
  Value value = effective(key);
  for (const Value& item : value.items) list.push_back(*item.number());
  record_given(key, value);
  return list;
}

std::vector<std::string> KeyReader::texts(const std::string& key) {
  std::vector<std::string> list;
  Value value = effective(key);
  for (const Value& item : value.items) list.push_back(item.text);
  record_given(key, value);
  return list;
}

int64_t KeyReader::integer_from(const std::string& key, int64_t least, int64_t most) {
  int64_t value = integer(key);
  require(value >= least, key, key, " is ", value, "; it must be at least ", least);
  require(value <= most, key, key, " is ", value, "; it must be at most ", most);
  return value;
}

double KeyReader::number_in(const std::string& key, double least, double most) {
  double value = number(key);
  require(value >= least && value <= most, key, key, " is ", shortest(value),
          "; it must lie between ", shortest(least), " and ", shortest(most));
  return value;
}

double KeyReader::positive(const std::string& key) {
  double value = number(key);
  check_positive(key, value);
  return value;
}

void KeyReader::check_positive(const std::string& key, double value) const {
  require(value > 0, key, key, " is ", shortest(value), "; it must be positive");
}

void KeyReader::add_idle(const Value& map, const std::string& parent,
                         std::vector<std::string>& idle) {
  for (size_t i = 0; i < map.items.size(); ++i) {
    std::string key = parent.empty() ? map.names[i] : parent + '.' + map.names[i];
    const Value& value = map.items[i];
    const KeyRow* row = find_key(key);
    bool inner = value.kind == Kind::kMap && row && !row->children.empty();
    if (inner) {
      add_idle(value, key, idle);
    } else if (!settings_.contains(key)) {
      Effect effect = row && row->fate == Fate::kRefused ? Effect::kInput : Effect::kNone;
      settings_[key] = {key, canonical(value), value.place.text(), effect};
    }
    auto at = settings_.find(key);
    bool idles = at != settings_.end() && at->second.effect == Effect::kNone;
    if (idles && value.kind != Kind::kNull) idle.push_back(key);
  }
}

void KeyReader::finish(Config& config) {
  std::vector<std::string> idle;
  add_idle(root_, "", idle);
  std::sort(idle.begin(), idle.end());
  config.notes = std::move(notes_);
  if (!idle.empty())
    config.notes.push_back("keys without effect here (--explain says why): " + join(idle, ", "));
  for (auto& [key, setting] : settings_) config.settings.push_back(std::move(setting));
}

}  // namespace neox
