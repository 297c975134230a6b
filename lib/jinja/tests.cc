// What may stand behind `is`.
#include "jinja/operators.h"
#include "jinja/text.h"

namespace neox::jinja {
namespace {

template <int rest>
bool even_or_odd(const Value& value, const Arguments&) {
  return std::abs(integer_of(value) % 2) == rest;
}

bool divisible(const Value& value, const Arguments& given) {
  int64_t by = integer_of(*given.find(0, "num"));
  if (by == 0) throw Failure("a division by zero");
  return by == -1 || integer_of(value) % by == 0;
}

bool is_lower(const Value& v, const Arguments&) {
  return lower(text_of(v)) == text_of(v) && upper(text_of(v)) != text_of(v);
}
bool is_upper(const Value& v, const Arguments&) {
  return upper(text_of(v)) == text_of(v) && lower(text_of(v)) != text_of(v);
}

using V = const Value&;
using A = const Arguments&;

const std::vector<Test>& all_tests() {
  static const std::vector<Test> tests = {
      {"defined", "", [](V v, A) { return !v.is_undefined(); }},
      {"undefined", "", [](V v, A) { return v.is_undefined(); }},
      {"none", "", [](V v, A) { return v.is<None>(); }},
      {"boolean", "", [](V v, A) { return v.is<bool>(); }},
      {"true", "", [](V v, A) { return v.is<bool>() && truth(v); }},
      {"false", "", [](V v, A) { return v.is<bool>() && !truth(v); }},
      {"integer", "", [](V v, A) { return v.is<int64_t>(); }},
      {"float", "", [](V v, A) { return v.is<double>(); }},
      {"number", "", [](V v, A) { return v.is_number(); }},
      {"string", "", [](V v, A) { return v.text() != nullptr; }},
      {"mapping", "", [](V v, A) { return v.map() && v.map()->is == Map::Is::kMap; }},
      {"iterable", "", [](V v, A) { return v.text() || v.list() || v.map() || v.is_undefined(); }},
      {"sequence", "", [](V v, A) { return v.text() || v.list() || v.map() || v.is_undefined(); }},
      {"callable", "", [](V v, A) { return v.function() != nullptr; }},
      {"even", "", even_or_odd<0>},
      {"odd", "", even_or_odd<1>},
      {"divisibleby", "num", divisible},
      {"lower", "", is_lower},
      {"upper", "", is_upper},
      {"in", "seq", [](V v, A given) { return contains(*given.find(0, "seq"), v); }},
      {"sameas", "other",
       [](V v, A given) {
         return v.data.index() == given.find(0, "other")->data.index() &&
                equal(v, *given.find(0, "other"));
       }},
      {"eq", "other, /", [](V v, A given) { return equal(v, given.values[0]); }},
      {"equalto", "other, /", [](V v, A given) { return equal(v, given.values[0]); }},
      {"==", "other, /", [](V v, A given) { return equal(v, given.values[0]); }},
      {"ne", "other, /", [](V v, A given) { return !equal(v, given.values[0]); }},
      {"!=", "other, /", [](V v, A given) { return !equal(v, given.values[0]); }},
      {"lt", "other, /", [](V v, A given) { return compared("<", v, given.values[0]); }},
      {"lessthan", "other, /", [](V v, A given) { return compared("<", v, given.values[0]); }},
      {"le", "other, /", [](V v, A given) { return compared("<=", v, given.values[0]); }},
      {"gt", "other, /", [](V v, A given) { return compared(">", v, given.values[0]); }},
      {"greaterthan", "other, /", [](V v, A given) { return compared(">", v, given.values[0]); }},
      {"ge", "other, /", [](V v, A given) { return compared(">=", v, given.values[0]); }}};
  return tests;
}

}  // namespace

const Test* test_named(std::string_view name) { return named(all_tests(), name); }

}  // namespace neox::jinja
