// What may stand behind `is`.
#include <map>

#include "jinja/operators.h"
#include "jinja/text.h"

namespace neox::jinja {
namespace {

const Value& other(const Arguments& given) {
  if (given.values.empty()) throw Failure("a test lacks what it compares with");
  return given.values.front();
}

template <int rest>
bool even_or_odd(const Value& value, const Arguments&) {
  return std::abs(integer_of(value) % 2) == rest;
}

bool divisible(const Value& value, const Arguments& given) {
  int64_t by = integer_of(other(given));
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

const std::map<std::string_view, Test> kTests = {
    {"defined", [](V v, A) { return !v.is_undefined(); }},
    {"undefined", [](V v, A) { return v.is_undefined(); }},
    {"none", [](V v, A) { return v.is<None>(); }},
    {"boolean", [](V v, A) { return v.is<bool>(); }},
    {"true", [](V v, A) { return v.is<bool>() && truth(v); }},
    {"false", [](V v, A) { return v.is<bool>() && !truth(v); }},
    {"integer", [](V v, A) { return v.is<int64_t>(); }},
    {"float", [](V v, A) { return v.is<double>(); }},
    {"number", [](V v, A) { return v.is_number(); }},
    {"string", [](V v, A) { return v.text() != nullptr; }},
    {"mapping", [](V v, A) { return v.map() && v.map()->is == Map::Is::kMap; }},
    {"iterable", [](V v, A) { return v.text() || v.list() || v.map() || v.is_undefined(); }},
    {"sequence", [](V v, A) { return v.text() || v.list() || v.map() || v.is_undefined(); }},
    {"callable", [](V v, A) { return v.function() != nullptr; }},
    {"even", even_or_odd<0>},
    {"odd", even_or_odd<1>},
    {"divisibleby", divisible},
    {"lower", is_lower},
    {"upper", is_upper},
    {"in", [](V v, A given) { return contains(other(given), v); }},
    {"sameas",
     [](V v, A given) {
       return v.data.index() == other(given).data.index() && equal(v, other(given));
     }},
    {"eq", [](V v, A given) { return equal(v, other(given)); }},
    {"equalto", [](V v, A given) { return equal(v, other(given)); }},
    {"==", [](V v, A given) { return equal(v, other(given)); }},
    {"ne", [](V v, A given) { return !equal(v, other(given)); }},
    {"!=", [](V v, A given) { return !equal(v, other(given)); }},
    {"lt", [](V v, A given) { return compared("<", v, other(given)); }},
    {"lessthan", [](V v, A given) { return compared("<", v, other(given)); }},
    {"le", [](V v, A given) { return compared("<=", v, other(given)); }},
    {"gt", [](V v, A given) { return compared(">", v, other(given)); }},
    {"greaterthan", [](V v, A given) { return compared(">", v, other(given)); }},
    {"ge", [](V v, A given) { return compared(">=", v, other(given)); }}};

}  // namespace

Test test_named(std::string_view name) {
  auto found = kTests.find(name);
  return found == kTests.end() ? nullptr : found->second;
}

}  // namespace neox::jinja
