#include "jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "base/text.h"
#include "base/utf8.h"
#include "jinja/text.h"

namespace neox::jinja {

namespace {

void check_level(int64_t level) {
  if (level > kDeepest) throw Failure("a value is nested too deep");
}

// Of a list or map that has these.
template <class Items, class Item>
int depth_over(const Items& items, Item item) {
  int most = 0;
  for (const auto& one : items) most = std::max(most, std::invoke(item, one).depth);
  check_level(most + 1);
  return most + 1;
}

}  // namespace

void check_text(size_t bytes) {
  if (bytes > kLongest) throw Failure("the text is too long: more than 64 MiB");
}

void check_list(size_t items) {
  if (items > kLongest) throw Failure("the list is too long");
  Budget::check_room(items * sizeof(Value));
  Budget::step(items);
}

Value::Value(std::string v) {
  check_text(v.size());
  Budget::text(v.size());
  size_t bytes = v.size() + sizeof v;
  data = std::shared_ptr<const std::string>(held(std::move(v), bytes));
}

Value::Value(List v) {
  depth = depth_over(v, std::identity());
  size_t bytes = v.size() * sizeof(Value) + sizeof v;
  data = std::shared_ptr<const List>(held(std::move(v), bytes));
}

Value::Value(Map v) {
  if (v.is != Map::Is::kNamespace)
    depth = depth_over(v.items, &std::pair<std::string, Value>::second);
  size_t bytes = v.items.size() * sizeof v.items[0] + sizeof v;
  for (const auto& item : v.items) bytes += item.first.size();
  data = held(std::move(v), bytes);
}

namespace {

template <class Items>
auto place_of(Items& items, std::string_view key) {
  constexpr size_t kAtOnce = 16;  // are looked at in about the time of a step
  Budget::step(items.size() / kAtOnce);
  return std::ranges::find(items, key, &std::pair<std::string, Value>::first);
}

}  // namespace

const Value* Map::find(std::string_view key) const {
  auto at = place_of(items, key);
  return at == items.end() ? nullptr : &at->second;
}

void Map::set(const std::string& key, Value value) {
  auto at = place_of(items, key);
  if (at == items.end())
    items.emplace_back(key, std::move(value));
  else
    at->second = std::move(value);
}

const Value* Arguments::find(size_t place, std::string_view name) const {
  if (place < values.size()) return &values[place];
  auto at = std::ranges::find(named, name, &std::pair<std::string, Value>::first);
  return at == named.end() ? nullptr : &at->second;
}

const std::string* Value::text() const {
  auto* held = std::get_if<std::shared_ptr<const std::string>>(&data);
  return held ? held->get() : nullptr;
}

const List* Value::list() const {
  auto* held = std::get_if<std::shared_ptr<const List>>(&data);
  return held ? held->get() : nullptr;
}

Map* Value::map() const {
  auto* held = std::get_if<std::shared_ptr<Map>>(&data);
  return held ? held->get() : nullptr;
}

const Function* Value::function() const {
  auto* held = std::get_if<std::shared_ptr<const Function>>(&data);
  return held ? held->get() : nullptr;
}

Value value_of(const nlohmann::ordered_json& json) {
  constexpr uint64_t kGreatest = std::numeric_limits<int64_t>::max();
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned() && json.get<uint64_t>() > kGreatest)
    throw Failure("the whole number " + json.dump() + " is not within 64 bits");
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number_float()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    List list;
    for (const auto& item : json) list.push_back(value_of(item));
    return list;
  }
  if (!json.is_object()) return None{};
  Map map;
  for (const auto& [key, item] : json.items()) map.set(key, value_of(item));
  return map;
}

bool truth(const Value& value) {
  if (value.is_undefined() || value.is<None>()) return false;
  if (value.is_number()) return number_of(value) != 0;
  if (value.text()) return !value.text()->empty();
  if (value.list()) return !value.list()->empty();
  if (value.map()) return !value.map()->items.empty() || value.map()->is != Map::Is::kMap;
  return true;
}

namespace {

std::string digits_of(int64_t value) { return std::to_string(value); }

// The shortest digits that are this number, as Python's repr().
std::string digits_of(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char text[400];
  auto written = [&](std::chars_format format) {
    return std::string(text, std::to_chars(text, text + sizeof text, value, format).ptr);
  };
  std::string digits = written(std::chars_format::scientific);
  int exponent = std::stoi(digits.substr(digits.find('e') + 1));
  if (exponent < -4 || exponent >= 16) return digits;
  digits = written(std::chars_format::fixed);
  return digits.find('.') == digits.npos ? digits + ".0" : digits;
}

std::string repr_at(int64_t level, const Value& value);

// A namespace may hold itself.
std::string repr_at(int64_t level, const Value& value) {
  check_level(level);
  if (value.is_undefined()) return "Undefined";
  if (value.is<None>()) return "None";
  if (auto* flag = std::get_if<bool>(&value.data)) return *flag ? "True" : "False";
  if (auto* number = std::get_if<int64_t>(&value.data)) return digits_of(*number);
  if (auto* number = std::get_if<double>(&value.data)) return digits_of(*number);
  if (value.text()) return in_quotes(*value.text());
  if (value.list()) {
    const List& list = *value.list();
    std::string all =
        joined_texts(list, ", ", [&](const Value& item) { return repr_at(level + 1, item); });
    if (!list.is_tuple) return "[" + all + "]";
    return "(" + all + (list.size() == 1 ? ",)" : ")");
  }
  if (!value.map()) throw Failure("a function has no text");
  return "{" +
         joined_texts(value.map()->items, ", ",
                      [&](const auto& item) {
                        return in_quotes(item.first) + ": " + repr_at(level + 1, item.second);
                      }) +
         "}";
}

bool equal_at(int64_t level, const Value& a, const Value& b) {
  check_level(level);
  Budget::step();
  if (a.is_integer() && b.is_integer()) return integer_of(a) == integer_of(b);
  if (a.is_number() && b.is_number()) return number_of(a) == number_of(b);
  if (a.data.index() != b.data.index()) return false;
  if (a.is_undefined() || a.is<None>()) return true;
  if (a.text()) {
    Budget::text(std::min(a.text()->size(), b.text()->size()));
    return *a.text() == *b.text();
  }
  if (a.list() && a.list() == b.list()) return true;
  auto deeper = [&](const Value& x, const Value& y) { return equal_at(level + 1, x, y); };
  if (a.list())
    return a.list()->is_tuple == b.list()->is_tuple &&
           std::ranges::equal(*a.list(), *b.list(), deeper);
  if (!a.map()) return a.function() == b.function();
  if (a.map() == b.map()) return true;
  const auto& of_a = a.map()->items;
  return of_a.size() == b.map()->items.size() && std::ranges::all_of(of_a, [&](const auto& item) {
           const Value* other = b.map()->find(item.first);
           return other && deeper(item.second, *other);
         });
}

}  // namespace

std::string type_of(const Value& value) {
  if (value.list() && value.list()->is_tuple) return "tuple";
  constexpr const char* kNames[] = {"undefined", "NoneType", "bool", "int",     "float",
                                    "str",       "list",     "dict", "function"};
  return kNames[value.data.index()];
}

std::string repr_of(const Value& value) { return repr_at(0, value); }

std::string text_of(const Value& value) {
  if (value.is_undefined()) return "";
  return value.text() ? *value.text() : repr_of(value);
}

bool equal(const Value& a, const Value& b) { return equal_at(0, a, b); }

int compare(const Value& a, const Value& b) {
  auto order = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  Budget::step();
  if (a.is_integer() && b.is_integer()) return order(integer_of(a), integer_of(b));
  if (a.is_number() && b.is_number()) return order(number_of(a), number_of(b));
  if (a.text() && b.text()) {
    Budget::text(std::min(a.text()->size(), b.text()->size()));
    return order(*a.text(), *b.text());
  }
  if (!a.list() || !b.list())
    throw Failure(type_of(a) + " and " + type_of(b) + " cannot be compared");
  for (size_t i = 0; i < std::min(a.list()->size(), b.list()->size()); ++i)
    if (!equal((*a.list())[i], (*b.list())[i])) return compare((*a.list())[i], (*b.list())[i]);
  return order(a.list()->size(), b.list()->size());
}

const Value& defined(const Value& value) {
  if (auto* undefined = std::get_if<Undefined>(&value.data)) throw Failure(undefined->what);
  return value;
}

int64_t length_of(const Value& value) {
  if (value.text()) {
    Budget::text(value.text()->size());
    return static_cast<int64_t>(count_characters(*value.text()));
  }
  if (value.list()) return static_cast<int64_t>(value.list()->size());
  if (value.map()) return static_cast<int64_t>(value.map()->items.size());
  if (value.is_undefined()) return 0;
  throw Failure("a value of type " + type_of(value) + " has no length");
}

List items_of(const Value& value) {
  if (value.list()) {
    check_list(value.list()->size());
    return *value.list();
  }
  List items;
  if (value.text()) {
    check_list(count_characters(*value.text()));
    for (std::string_view c : characters(*value.text())) items.push_back(std::string(c));
  } else if (value.map()) {
    for (const auto& item : value.map()->items) items.push_back(item.first);
  } else if (!value.is_undefined()) {
    throw Failure("a value of type " + type_of(value) + " cannot be gone through");
  }
  return items;
}

bool contains(const Value& in, const Value& what) {
  if (in.text()) return find_text(*in.text(), words_of(what)) != std::string::npos;
  if (in.map()) return what.text() && in.map()->find(*what.text());
  if (!in.list() && !in.is_undefined())
    throw Failure("a value of type " + type_of(in) + " contains nothing");
  return in.list() &&
         std::ranges::any_of(*in.list(), [&](const Value& item) { return equal(item, what); });
}

int64_t integer_of(const Value& value) {
  if (auto* flag = std::get_if<bool>(&value.data)) return *flag ? 1 : 0;
  if (auto* number = std::get_if<int64_t>(&value.data)) return *number;
  throw Failure("a value of type " + type_of(defined(value)) + " is no int");
}

double number_of(const Value& value) {
  auto* number = std::get_if<double>(&value.data);
  return number ? *number : static_cast<double>(integer_of(value));
}

const std::string& words_of(const Value& value) {
  if (value.text()) return *value.text();
  throw Failure("a value of type " + type_of(defined(value)) + " stands where a str must");
}

namespace {

// Writes JSON as Python's json.dumps.
class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  GrowingText out;
  void write(const Value& value, int64_t depth) {
    check_level(depth);
    if (value.text())
      out += nlohmann::json(*value.text()).dump();
    else if (value.is<None>())
      out += "null";
    else if (auto* flag = std::get_if<bool>(&value.data))
      out += *flag ? "true" : "false";
    else if (value.is_number())
      out += number(value);
    else if (value.list())
      write_all('[', ']', *value.list(), depth, [&](const Value& item) { write(item, depth + 1); });
    else if (value.map())
      write_all('{', '}', keys_of(*value.map()), depth, [&](const auto& item) {
        out += nlohmann::json(item.first).dump() + style_.behind_key;
        write(item.second, depth + 1);
      });
    else
      throw Failure("a value of type " + type_of(value) + " has no JSON");
  }

 private:
  static std::string number(const Value& value) {
    std::string digits = repr_of(value);
    if (digits == "nan") return "NaN";
    if (digits.ends_with("inf")) return digits == "inf" ? "Infinity" : "-Infinity";
    return digits;
  }

  std::vector<std::pair<std::string, Value>> keys_of(const Map& map) const {
    auto items = map.items;
    if (style_.keys == JsonStyle::Keys::kSorted)
      std::ranges::sort(items, {}, &std::pair<std::string, Value>::first);
    return items;
  }

  template <class Items, class Write>
  void write_all(char open, char close, const Items& items, int64_t depth, Write write_item) {
    out += open;
    bool first = true;
    for (const auto& item : items) {
      if (!std::exchange(first, false)) out += style_.between;
      new_line(depth + 1);
      write_item(item);
    }
    if (!items.empty()) new_line(depth);
    out += close;
  }

  void new_line(int64_t depth) {
    if (style_.indent) out += "\n";
    for (int64_t i = 0; style_.indent && i < depth; ++i) out += *style_.indent;
  }

  const JsonStyle& style_;
};

}  // namespace

std::string json_of(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value, 0);
  return writer.out.take();
}

}  // namespace neox::jinja
