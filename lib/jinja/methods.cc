// Methods of Python's str, list and dict that change nothing.
#include <algorithm>
#include <optional>

#include "base/utf8.h"
#include "jinja/operators.h"
#include "jinja/text.h"
#include "tokenizer/unicode.h"

namespace neox::jinja {
namespace {

using Methods = std::vector<Method>;

const std::string& argument(const Arguments& given, size_t place, const char* name) {
  return words_of(*given.find(place, name));
}

// "" where none is given, or None.
std::string optional(const Arguments& given, size_t place, const char* name) {
  const Value* value = given.find(place, name);
  return value && !value->is<None>() ? words_of(*value) : "";
}

template <Side side>
Value stripped(const Value& text, const Arguments& given) {
  return std::string(strip(*text.text(), side, optional(given, 0, "chars")));
}

// Up to `size`, and from the end where it is below 0.
int64_t bound(const Value* given, int64_t otherwise, int64_t size) {
  if (!given || given->is<None>()) return otherwise;
  int64_t at = integer_of(*given);
  return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size + 1);
}

// What a second and a third argument leave of a text; nothing where it would begin behind its end.
std::optional<std::string_view> part_of(const Value& text, const Arguments& given) {
  if (given.values.size() == 1) return *text.text();
  int64_t size = length_of(text), begin = bound(given.find(1, "start"), 0, size),
          end = std::min(bound(given.find(2, "end"), size, size), size);
  if (begin > end) return std::nullopt;
  return characters_between(*text.text(), begin, end);
}

// Of a text, or of any of a tuple of them.
template <class Match>
Value any_of(const Value& text, const Arguments& given, Match match) {
  std::optional<std::string_view> part = part_of(text, given);
  auto matches = [&](const Value& one) { return match(*part, words_of(one)); };
  const Value& wanted = given.values[0];
  if (!part) return false;
  bool several = wanted.list() && wanted.list()->is_tuple;
  return several ? std::ranges::any_of(*wanted.list(), matches) : matches(wanted);
}

int64_t times_of(const Arguments& given, size_t place, const char* name) {
  const Value* value = given.find(place, name);
  int64_t times = value ? integer_of(*value) : -1;
  return times < 0 ? INT64_MAX : times;
}

// Words with white space between them; what follows the last split is the rest as it is.
List words_in(std::string_view text, int64_t times) {
  List words;
  for (text = strip(text, Side::kLeft); !text.empty(); text = strip(text, Side::kLeft)) {
    if (times-- == 0) {
      words.push_back(std::string(strip(text, Side::kRight)));
      break;
    }
    size_t end = 0;
    for (size_t n; end < text.size(); end += n) {
      n = unicode::read(text, end).bytes;
      if (is_space(text.substr(end, n))) break;
    }
    words.push_back(std::string(text.substr(0, end)));
    text.remove_prefix(end);
  }
  return words;
}

Value split_text(const Value& text, const Arguments& given) {
  std::string by = optional(given, 0, "sep");
  int64_t times = times_of(given, 1, "maxsplit");
  const Value* sep = given.find(0, "sep");
  if (!sep || sep->is<None>()) return words_in(*text.text(), times);
  if (by.empty()) throw Failure("an empty separator");
  List parts;
  std::string_view rest = *text.text();
  for (size_t at; times-- > 0 && (at = find_text(rest, by)) != rest.npos;
       rest.remove_prefix(at + by.size()))
    parts.push_back(std::string(rest.substr(0, at)));
  parts.push_back(std::string(rest));
  return parts;
}

Value split_from_right(const Value& text, const Arguments& given) {
  const Value* sep = given.find(0, "sep");
  int64_t times = times_of(given, 1, "maxsplit");
  if (times == INT64_MAX) return split_text(text, given);
  if (!sep || sep->is<None>()) throw Failure("rsplit() of white space with a number is not known");
  std::string by = words_of(*sep);
  if (by.empty()) throw Failure("an empty separator");
  List parts;
  std::string_view rest = *text.text();
  for (size_t at; times-- > 0 && (at = find_last_text(rest, by)) != rest.npos;
       rest = rest.substr(0, at))
    parts.push_back(std::string(rest.substr(at + by.size())));
  parts.push_back(std::string(rest));
  std::ranges::reverse(parts);
  return parts;
}

Value lines_in(const Value& text, const Arguments& given) {
  const Value* keep = given.find(0, "keepends");
  List lines;
  std::string_view rest = *text.text();
  while (!rest.empty()) {
    Line line = take_line(rest);
    lines.push_back(std::string(line.text).append(keep && truth(*keep) ? line.end : ""));
  }
  return lines;
}

// find(part, what): where in the part.
template <class Find>
Value place_in(const Value& text, const Arguments& given, Find find) {
  std::optional<std::string_view> part = part_of(text, given);
  size_t at = part ? find(*part, argument(given, 0, "sub")) : std::string::npos;
  if (at == std::string::npos) return int64_t{-1};
  const char* begin = text.text()->data();
  return static_cast<int64_t>(count_characters({begin, part->data() + at}));
}

template <class Is>
bool all_characters(const Value& text, Is is) {
  return !text.text()->empty() && std::ranges::all_of(*text.text(), is);
}

Value count_in(const Value& text, const Arguments& given) {
  const std::string& what = argument(given, 0, "sub");
  std::optional<std::string_view> part = part_of(text, given);
  if (!part) return int64_t{0};
  if (what.empty()) return static_cast<int64_t>(count_characters(*part)) + 1;
  int64_t times = 0;
  for (size_t at = 0; (at = find_text(*part, what, at)) != part->npos; at += what.size()) ++times;
  return times;
}

Value replace_in(const Value& text, const Arguments& given) {
  return replaced(*text.text(), argument(given, 0, "old"), argument(given, 1, "new"),
                  static_cast<size_t>(times_of(given, 2, "count")));
}

Value join_texts(const Value& text, const Arguments& given) {
  return joined_texts(items_of(given.values[0]), *text.text(), words_of);
}

Value without_prefix(const Value& text, const Arguments& given) {
  std::string_view whole = *text.text();
  std::string prefix = argument(given, 0, "prefix");
  return std::string(whole.substr(whole.starts_with(prefix) ? prefix.size() : 0));
}

Value without_suffix(const Value& text, const Arguments& given) {
  std::string_view whole = *text.text();
  std::string suffix = argument(given, 0, "suffix");
  return std::string(whole.substr(0, whole.size() - (whole.ends_with(suffix) ? suffix.size() : 0)));
}

const Methods& methods_of_texts() {
  using V = const Value&;
  using A = const Arguments&;
  static const Methods methods = {
      {"strip", "chars=, /", stripped<Side::kBoth>},
      {"lstrip", "chars=, /", stripped<Side::kLeft>},
      {"rstrip", "chars=, /", stripped<Side::kRight>},
      {"split", "sep=, maxsplit=", split_text},
      {"rsplit", "sep=, maxsplit=", split_from_right},
      {"splitlines", "keepends=", lines_in},
      {"count", "sub, start=, end=, /", count_in},
      {"replace", "old, new, /, count=", replace_in},
      {"join", "iterable, /", join_texts},
      {"startswith", "prefix, start=, end=, /",
       [](V t, A g) {
         return any_of(t, g, [](auto a, const auto& b) { return a.starts_with(b); });
       }},
      {"endswith", "suffix, start=, end=, /",
       [](V t, A g) { return any_of(t, g, [](auto a, const auto& b) { return a.ends_with(b); }); }},
      {"upper", "", [](V t, A) { return Value(upper(*t.text())); }},
      {"lower", "", [](V t, A) { return Value(lower(*t.text())); }},
      {"title", "", [](V t, A) { return Value(titled(*t.text(), Titled::kLetters)); }},
      {"capitalize", "", [](V t, A) { return Value(capitalized(*t.text())); }},
      {"find", "sub, start=, end=, /",
       [](V t, A g) {
         return place_in(t, g, [](auto in, const auto& what) { return find_text(in, what); });
       }},
      {"rfind", "sub, start=, end=, /", [](V t, A g) { return place_in(t, g, find_last_text); }},
      {"isdigit", "",
       [](V t, A) {
         return Value(all_characters(t, [](char c) { return c >= '0' && c <= '9'; }));
       }},
      {"isspace", "", [](V t, A) { return Value(!t.text()->empty() && strip(*t.text()).empty()); }},
      {"removeprefix", "prefix, /", without_prefix},
      {"removesuffix", "suffix, /", without_suffix}};
  return methods;
}

Value index_in(const Value& list, const Arguments& given) {
  auto size = std::ssize(*list.list());
  int64_t end = std::min(bound(given.find(2, "stop"), size, size), size);
  for (int64_t i = bound(given.find(1, "start"), 0, size); i < end; ++i)
    if (equal((*list.list())[static_cast<size_t>(i)], given.values[0])) return i;
  throw Failure("index(): the list has no such item");
}

const Methods& methods_of_lists() {
  static const Methods methods = {
      {"index", "value, start=, stop=, /", index_in},
      {"count", "value, /", [](const Value& list, const Arguments& given) {
         return Value(static_cast<int64_t>(std::ranges::count_if(
             *list.list(), [&](const Value& item) { return equal(item, given.values[0]); })));
       }}};
  return methods;
}

Value get_from(const Value& map, const Arguments& given) {
  const Value& key = given.values[0];
  if (const Value* found = key.text() ? map.map()->find(*key.text()) : nullptr) return *found;
  return given.values.size() > 1 ? given.values[1] : Value(None{});
}

const Methods& methods_of_maps() {
  using V = const Value&;
  using A = const Arguments&;
  static const Methods methods = {
      {"get", "key, default=, /", get_from},
      {"items", "", [](V map, A given) { return (*filter_named("items"))(map, given); }},
      {"keys", "", [](V map, A) { return Value(items_of(map)); }},
      {"values", "",
       [](V map, A) {
         List values;
         for (const auto& item : map.map()->items) values.push_back(item.second);
         return Value(std::move(values));
       }},
      {"copy", "", [](V map, A) { return Value(*map.map()); }}};
  return methods;
}

// These change what they are called for, which the sandbox of transformers does not allow.
bool changes(std::string_view name) {
  static const std::vector<std::string_view> names = {"append", "extend",     "insert",  "remove",
                                                      "pop",    "sort",       "reverse", "clear",
                                                      "update", "setdefault", "popitem"};
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

Value method_of(const Value& value, const std::string& name) {
  bool special = value.map() && value.map()->is != Map::Is::kMap;
  if (special || (!value.text() && !value.list() && !value.map())) return {};
  const Methods& methods = value.text()   ? methods_of_texts()
                           : value.list() ? methods_of_lists()
                                          : methods_of_maps();
  if (const Method* method = named(methods, name))
    return {Function([value, method](const Arguments& given) { return (*method)(value, given); }),
            value};
  if (!value.text() && changes(name) && !(value.map() && value.map()->find(name)))
    return Function([name](const Arguments&) -> Value {
      throw Failure(name + "() is not allowed: it changes a value");
    });
  return {};
}

}  // namespace neox::jinja
