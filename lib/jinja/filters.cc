// The filters of Jinja that templates of chats use; tojson is that of transformers.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "jinja/operators.h"
#include "jinja/seen.h"
#include "jinja/text.h"

namespace neox::jinja {
namespace {

constexpr size_t kByName = SIZE_MAX;  // the place of an argument that has none

bool flag(const Arguments& given, size_t place, const char* name) {
  const Value* value = given.find(place, name);
  return value && truth(*value);
}

int64_t integer(const Arguments& given, size_t place, const char* name, int64_t otherwise) {
  const Value* value = given.find(place, name);
  return value && !value->is<None>() ? integer_of(*value) : otherwise;
}

// By a path such as "function.name" or "0".
Value value_at(Value value, const Value& path) {
  if (path.is_integer()) return item_of(value, path);
  for (const std::string& name : split(words_of(path), '.')) {
    auto number = neox::number_of<int64_t>(name);
    value = number ? item_of(value, Value(*number)) : item_of(value, Value(name));
  }
  return value;
}

// By the path `by`, where one is given.
Value at_or_itself(const Value& item, const Value* by) {
  return by && !by->is<None>() ? value_at(item, *by) : item;
}

// What items are compared by: an attribute of each, texts in lower case unless cases count.
struct Order {
  Order(const Arguments& given, size_t cases, size_t attribute)
      : cases_count(flag(given, cases, "case_sensitive")), by(given.find(attribute, "attribute")) {}
  Value key(const Value& item) const {
    Value value = at_or_itself(item, by);
    return value.text() && !cases_count ? Value(lower(*value.text())) : value;
  }
  bool cases_count;
  const Value* by;
};

// key: of an item.
template <class Key>
List sorted_by(List items, const Value* reverse, Key key) {
  bool back = reverse && truth(*reverse);
  std::ranges::stable_sort(items, [&](const Value& a, const Value& b) {
    int which = compare(key(a), key(b));
    return back ? which > 0 : which < 0;
  });
  return items;
}

Value sorted(const Value& value, const Arguments& given) {
  Order order(given, 1, 2);
  return sorted_by(items_of(value), given.find(0, "reverse"),
                   [&](const Value& item) { return order.key(item); });
}

List pairs_of(const Value& map) {
  List pairs;
  if (map.is_undefined()) return pairs;
  if (!map.map()) throw Failure("a value of type " + type_of(map) + " has no pairs");
  for (const auto& [key, item] : map.map()->items) {
    List pair = {key, item};
    pair.is_tuple = true;
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

Value sorted_pairs(const Value& value, const Arguments& given) {
  Order order(given, 0, kByName);
  const Value* by = given.find(1, "by");
  size_t part = by && words_of(*by) == "value" ? 1 : 0;
  return sorted_by(pairs_of(value), given.find(2, "reverse"),
                   [&](const Value& pair) { return order.key((*pair.list())[part]); });
}

Value unique(const Value& value, const Arguments& given) {
  Order order(given, 0, 1);
  List items;
  Seen seen;
  for (const Value& item : items_of(value))
    if (seen.add(order.key(item))) items.push_back(item);
  return items;
}

template <bool largest>
Value extreme(const Value& value, const Arguments& given) {
  Order order(given, 0, 1);
  List items = items_of(value);
  if (items.empty()) return Undefined{"an empty list has no smallest and no largest item"};
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    int which = compare(order.key(items[i]), order.key(items[best]));
    if (largest ? which > 0 : which < 0) best = i;
  }
  return items[best];
}

Value sum(const Value& value, const Arguments& given) {
  const Value* by = given.find(0, "attribute");
  const Value* start = given.find(1, "start");
  Value all = start ? *start : Value(int64_t{0});
  for (const Value& item : items_of(value)) all = computed("+", all, at_or_itself(item, by));
  return all;
}

Value join_items(const Value& value, const Arguments& given) {
  const Value* between = given.find(0, "d");
  const Value* by = given.find(1, "attribute");
  return joined_texts(items_of(value), between ? text_of(*between) : "",
                      [&](const Value& item) { return text_of(at_or_itself(item, by)); });
}

Arguments from(const Arguments& given, size_t first) {
  Arguments rest{.named = given.named};
  for (size_t i = first; i < given.values.size(); ++i) rest.values.push_back(given.values[i]);
  return rest;
}

Value mapped(const Value& value, const Arguments& given) {
  List items = items_of(value), results;
  if (given.values.empty()) {
    static const Signature kTakes("attribute, default=");
    kTakes.check("map", given);
    const Value* by = given.find(kByName, "attribute");
    const Value* otherwise = given.find(kByName, "default");
    for (const Value& item : items) {
      Value found = value_at(item, *by);
      results.push_back(found.is_undefined() && otherwise ? *otherwise : found);
    }
    return results;
  }
  const Filter* filter = filter_named(words_of(given.values[0]));
  if (!filter) throw Failure("there is no filter '" + words_of(given.values[0]) + "'");
  for (const Value& item : items) results.push_back((*filter)(item, from(given, 1)));
  return results;
}

// Those items for which, or for an attribute of which, a test holds; without one those that are
// true.
template <bool wanted, bool of_attribute>
Value selected(const Value& value, const Arguments& given) {
  constexpr size_t kTest = of_attribute ? 1 : 0;
  const Test* test = nullptr;
  if (given.values.size() > kTest) {
    test = test_named(words_of(given.values[kTest]));
    if (!test) throw Failure("there is no test '" + words_of(given.values[kTest]) + "'");
  }
  List items;
  for (const Value& item : items_of(value)) {
    Value key = of_attribute ? value_at(item, given.values[0]) : item;
    if ((test ? (*test)(key, from(given, kTest + 1)) : truth(key)) == wanted) items.push_back(item);
  }
  return items;
}

Value default_of(const Value& value, const Arguments& given) {
  const Value* otherwise = given.find(0, "default_value");
  bool missing = value.is_undefined() || (flag(given, 1, "boolean") && !truth(value));
  return !missing ? value : otherwise ? *otherwise : Value("");
}

// A text, or so many blanks.
std::string indent_of(const Value& width) {
  if (width.text()) return *width.text();
  auto blanks = static_cast<size_t>(std::max<int64_t>(integer_of(width), 0));
  check_text(blanks);
  return std::string(blanks, ' ');
}

Value indented(const Value& value, const Arguments& given) {
  defined(value);
  const Value* width = given.find(0, "width");
  std::string by = indent_of(width ? *width : Value(int64_t{4}));
  GrowingText out;
  if (flag(given, 1, "first")) out += by;
  bool blank = flag(given, 2, "blank");
  std::string text = text_of(value) + '\n';  // as Jinja2: a line end at the end begins a line
  std::string_view rest = text;
  for (bool first = true; !rest.empty(); first = false) {
    Line line = take_line(rest);
    if (!first) out += "\n";
    if (!first && (blank || !line.text.empty())) out += by;
    out += line.text;
  }
  return out.take();
}

Value json(const Value& value, const Arguments& given) {
  JsonStyle style;
  const Value *indent = given.find(1, "indent"), *separators = given.find(2, "separators");
  if (indent && !indent->is<None>()) style.indent = indent_of(*indent), style.between = ",";
  if (separators && !separators->is<None>()) {
    List both = items_of(*separators);
    if (both.size() != 2) throw Failure("tojson() takes two separators");
    style.between = words_of(both[0]), style.behind_key = words_of(both[1]);
  }
  if (flag(given, 3, "sort_keys")) style.keys = JsonStyle::Keys::kSorted;
  if (flag(given, 0, "ensure_ascii")) throw Failure("tojson(ensure_ascii=True) is not known");
  return json_of(value, style);
}

Value escaped(const Value& value, const Arguments&) {
  std::string out;
  for (char c : text_of(value)) {
    constexpr std::string_view kMarks = "&<>'\"";
    constexpr const char* kNames[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    size_t at = kMarks.find(c);
    at == kMarks.npos ? out += c : out += kNames[at];
  }
  return out;
}

// %s, %d and %r of Python.
Value formatted(const Value& value, const Arguments& given) {
  GrowingText out;
  const std::string& pattern = words_of(value);
  size_t next = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      out += pattern[i];
      continue;
    }
    char kind = ++i < pattern.size() ? pattern[i] : ' ';
    if (kind == '%')
      out += '%';
    else if (next >= given.values.size())
      throw Failure("format: too few values");
    else if (kind == 's')
      out += text_of(given.values[next++]);
    else if (kind == 'r')
      out += repr_of(given.values[next++]);
    else if (kind == 'd')
      out += std::to_string(integer_of(given.values[next++]));
    else
      throw Failure(std::string("format: %") + kind + " is not known; %s, %d and %r are");
  }
  if (next < given.values.size()) throw Failure("format: too many values");
  return out.take();
}

Value integer_from(const Value& value, const Arguments& given) {
  defined(value);
  if (value.is_integer()) return integer_of(value);
  if (auto* number = std::get_if<double>(&value.data); number && std::abs(*number) < 9e18)
    return static_cast<int64_t>(*number);
  std::string text = value.text() ? std::string(strip(*value.text())) : "";
  if (text.starts_with('+')) text.erase(0, 1);
  if (auto number = neox::number_of<int64_t>(text)) return *number;
  if (auto number = neox::number_of<double>(text); number && std::abs(*number) < 9e18)
    return static_cast<int64_t>(*number);
  return integer(given, 0, "default", 0);
}

Value float_from(const Value& value, const Arguments& given) {
  defined(value);
  if (value.is_number()) return number_of(value);
  auto number =
      value.text() ? neox::number_of<double>(std::string(strip(*value.text()))) : std::nullopt;
  const Value* otherwise = given.find(0, "default");
  return number ? Value(*number) : otherwise ? *otherwise : Value(0.0);
}

// As Python's round(), which goes by the digits.
Value rounded(const Value& value, const Arguments& given) {
  int64_t digits = integer(given, 0, "precision", 0);
  const Value* method = given.find(1, "method");
  std::string how = method ? words_of(*method) : "common";
  if (how == "common" && value.is_integer() && digits >= 0) return integer_of(value);
  double number = number_of(value), power = std::pow(10.0, static_cast<double>(digits));
  if (how == "ceil") return std::ceil(number * power) / power;
  if (how == "floor") return std::floor(number * power) / power;
  if (digits < 0 || digits > 300) throw Failure("round: that many digits are not known");
  return *neox::number_of<double>(printed("%.*f", static_cast<int>(digits), number));
}

Value reversed(const Value& value, const Arguments&) {
  if (value.text()) return slice_of(value, None{}, None{}, Value(int64_t{-1}));
  List items = items_of(value);
  std::ranges::reverse(items);
  return items;
}

Value end_of(const Value& value, bool last) {
  if (value.text() && !value.text()->empty()) return item_of(value, int64_t{last ? -1 : 0});
  List items = items_of(value);
  if (items.empty()) return Undefined{"an empty list has no first and no last item"};
  return last ? items.back() : items.front();
}

Value replaced_in(const Value& value, const Arguments& given) {
  int64_t times = integer(given, 2, "count", -1);
  return replaced(text_of(value), text_of(*given.find(0, "old")), text_of(*given.find(1, "new")),
                  static_cast<size_t>(times < 0 ? INT64_MAX : times));
}

Value trimmed(const Value& value, const Arguments& given) {
  const Value* of = given.find(0, "chars");
  return std::string(
      strip(text_of(value), Side::kBoth, of && !of->is<None>() ? words_of(*of) : std::string()));
}

const std::vector<Filter>& filters_of_texts() {
  using V = const Value&;
  using A = const Arguments&;
  static const std::vector<Filter> filters = {
      {"trim", "chars=", trimmed},
      {"replace", "old, new, count=", replaced_in},
      {"indent", "width=, first=, blank=", indented},
      {"format", "*", formatted},
      {"escape", "", escaped},
      {"e", "", escaped},
      {"tojson", "ensure_ascii=, indent=, separators=, sort_keys=", json},
      {"int", "default=", integer_from},
      {"float", "default=", float_from},
      {"round", "precision=, method=", rounded},
      {"upper", "", [](V v, A) { return Value(upper(text_of(v))); }},
      {"lower", "", [](V v, A) { return Value(lower(text_of(v))); }},
      {"title", "", [](V v, A) { return Value(titled(text_of(v), Titled::kWords)); }},
      {"capitalize", "", [](V v, A) { return Value(capitalized(text_of(v))); }},
      {"string", "", [](V v, A) { return Value(text_of(v)); }},
      {"safe", "", [](V v, A) { return v; }},
      {"abs", "",
       [](V v, A) { return computed(number_of(v) < 0 ? "-" : "+", Value(int64_t{0}), v); }}};
  return filters;
}

const std::vector<Filter>& filters_of_lists() {
  using V = const Value&;
  using A = const Arguments&;
  static const std::vector<Filter> filters = {
      {"length", "", [](V v, A) { return Value(length_of(v)); }},
      {"count", "", [](V v, A) { return Value(length_of(v)); }},
      {"list", "", [](V v, A) { return Value(items_of(v)); }},
      {"first", "", [](V v, A) { return end_of(v, false); }},
      {"last", "", [](V v, A) { return end_of(v, true); }},
      {"items", "", [](V v, A) { return Value(pairs_of(v)); }},
      {"attr", "name",
       [](V v, A given) { return attribute_of(v, words_of(*given.find(0, "name"))); }},
      {"default", "default_value=, boolean=", default_of},
      {"d", "default_value=, boolean=", default_of},
      {"join", "d=, attribute=", join_items},
      {"reverse", "", reversed},
      {"sort", "reverse=, case_sensitive=, attribute=", sorted},
      {"dictsort", "case_sensitive=, by=, reverse=", sorted_pairs},
      {"unique", "case_sensitive=, attribute=", unique},
      {"min", "case_sensitive=, attribute=", extreme<false>},
      {"max", "case_sensitive=, attribute=", extreme<true>},
      {"sum", "attribute=, start=", sum},
      {"map", "*, **", mapped},
      {"select", "*, **", selected<true, false>},
      {"reject", "*, **", selected<false, false>},
      {"selectattr", "attribute, /, *, **", selected<true, true>},
      {"rejectattr", "attribute, /, *, **", selected<false, true>}};
  return filters;
}

}  // namespace

const Filter* filter_named(std::string_view name) {
  const Filter* of_texts = named(filters_of_texts(), name);
  return of_texts ? of_texts : named(filters_of_lists(), name);
}

}  // namespace neox::jinja
