#include "jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"
#include "jinja/text.h"

namespace neox::jinja {
namespace {

[[noreturn]] void fail_between(std::string_view sign, const Value& a, const Value& b) {
  throw Failure(
      concat(type_of(defined(a)), " ", sign, " ", type_of(defined(b)), " has no meaning"));
}

// More than there may be where the product is.
size_t product_of(size_t size, int64_t times) {
  size_t most = static_cast<size_t>(std::max<int64_t>(times, 0)), product = 0;
  return __builtin_mul_overflow(size, most, &product) ? SIZE_MAX : product;
}

std::string repeated(const std::string& text, int64_t times) {
  check_text(product_of(text.size(), times));
  Budget::check_room(product_of(text.size(), times));
  std::string all;
  for (int64_t i = 0; i < times && !text.empty(); ++i) all += text;
  return all;
}

List repeated(const List& list, int64_t times) {
  check_list(product_of(list.size(), times));
  List all;
  for (int64_t i = 0; i < times && !list.empty(); ++i)
    all.insert(all.end(), list.begin(), list.end());
  return all;
}

// Rounded down, as Python divides; the rest has the sign of b.
int64_t floor_of(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0) ? 1 : 0);
}

int64_t power_of(int64_t a, int64_t b) {
  if (a == 1 || (a == -1 && b % 2 == 0)) return 1;
  if (a == -1) return -1;
  int64_t result = 1;
  for (int64_t i = 0; i < b && result != 0; ++i)
    if (__builtin_mul_overflow(result, a, &result)) throw Failure("a number is too large");
  return result;
}

Value of_integers(std::string_view sign, int64_t a, int64_t b) {
  int64_t result = 0;
  bool over = false;
  if ((sign == "/" || sign == "//" || sign == "%") && b == 0) throw Failure("a division by zero");
  if (sign == "/") return static_cast<double>(a) / static_cast<double>(b);
  if (sign == "**") {
    if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
    return power_of(a, b);
  }
  if ((sign == "//" || sign == "%") && b == -1)
    return sign == "%" ? Value(int64_t{0}) : of_integers("-", 0, a);
  if (sign == "//") return floor_of(a, b);
  if (sign == "%") return a - floor_of(a, b) * b;
  if (sign == "+") over = __builtin_add_overflow(a, b, &result);
  if (sign == "-") over = __builtin_sub_overflow(a, b, &result);
  if (sign == "*") over = __builtin_mul_overflow(a, b, &result);
  if (over) throw Failure("a number is too large");
  return result;
}

Value of_numbers(std::string_view sign, double a, double b) {
  if ((sign == "/" || sign == "//" || sign == "%") && b == 0) throw Failure("a division by zero");
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  if (sign == "/") return a / b;
  if (sign == "**") return std::pow(a, b);
  double rest = std::fmod(a, b);  // as Python has it
  if (rest == 0) rest = std::copysign(0.0, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (sign == "%") return rest;
  double times = (a - rest) / b, down = std::floor(times);
  return times - down > 0.5 ? down + 1 : down;
}

Value joined(const List& a, const List& b) {
  check_list(a.size() + b.size());
  List all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

// Where in a sequence of so many an index is; -1: nowhere.
int64_t place_of(const Value& key, int64_t size) {
  int64_t index = integer_of(key);
  if (index < 0) index += size;
  return index >= 0 && index < size ? index : -1;
}

Value undefined_item(const Value& of, const Value& key) {
  constexpr size_t kShown = 100;  // bytes of the name
  std::string what = of.map() ? "dict object" : of.list() ? "list object" : type_of(of) + " object";
  return Undefined{"'" + what + "' has no " +
                   (key.text() ? concat("attribute '", first_characters(*key.text(), kShown), "'")
                               : "item " + text_of(key))};
}

}  // namespace

Value computed(std::string_view sign, const Value& a, const Value& b) {
  if (sign == "~") return text_of(a) + text_of(b);
  if (a.is_integer() && b.is_integer()) return of_integers(sign, integer_of(a), integer_of(b));
  if (a.is_number() && b.is_number()) return of_numbers(sign, number_of(a), number_of(b));
  if (sign == "+" && a.text() && b.text()) return *a.text() + *b.text();
  if (sign == "+" && a.list() && b.list() && a.list()->is_tuple == b.list()->is_tuple)
    return joined(*a.list(), *b.list());
  if (sign == "*" && b.is_integer() && a.text()) return repeated(*a.text(), integer_of(b));
  if (sign == "*" && b.is_integer() && a.list()) return repeated(*a.list(), integer_of(b));
  if (sign == "*" && a.is_integer() && (b.text() || b.list())) return computed(sign, b, a);
  if (sign == "%" && a.text()) {
    Arguments given{.values = b.list() && b.list()->is_tuple ? *b.list() : List{b}};
    return (*filter_named("format"))(a, given);
  }
  fail_between(sign, a, b);
}

bool compared(std::string_view sign, const Value& a, const Value& b) {
  if (sign == "==") return equal(a, b);
  if (sign == "!=") return !equal(a, b);
  bool nan =
      a.is_number() && b.is_number() && (std::isnan(number_of(a)) || std::isnan(number_of(b)));
  if (nan) return false;
  if (a.is_undefined() || b.is_undefined()) fail_between(sign, a, b);
  int order = compare(a, b);
  return sign == "<" ? order < 0 : sign == "<=" ? order <= 0 : sign == ">" ? order > 0 : order >= 0;
}

Value attribute_of(const Value& value, const std::string& name) {
  defined(value);
  Value method = method_of(value, name);
  if (!method.is_undefined() || !value.map())
    return method.is_undefined() ? undefined_item(value, name) : method;
  const Value* found = value.map()->find(name);
  return found ? *found : undefined_item(value, name);
}

Value item_of(const Value& value, const Value& key) {
  defined(value);
  if (value.map()) {
    const Value* found = key.text() ? value.map()->find(*key.text()) : nullptr;
    if (found) return *found;
  } else if (key.is_integer() && (value.list() || value.text())) {
    int64_t place = place_of(key, length_of(value));
    if (place < 0) return undefined_item(value, key);
    if (value.list()) return (*value.list())[static_cast<size_t>(place)];
    return std::string(characters_between(*value.text(), place, place + 1));
  }
  Value method = key.text() ? method_of(value, *key.text()) : Value();
  return method.is_undefined() ? undefined_item(value, key) : method;
}

Value slice_of(const Value& value, const Value& from, const Value& to, const Value& step) {
  defined(value);
  if (!value.list() && !value.text())
    throw Failure("a value of type " + type_of(value) + " has no parts");
  int64_t size = length_of(value), by = step.is<None>() ? 1 : integer_of(step);
  if (by == 0) throw Failure("the step of a slice is 0");
  int64_t low = by > 0 ? 0 : -1, high = by > 0 ? size : size - 1;
  auto bound = [&](const Value& given, int64_t otherwise) {
    if (given.is<None>()) return otherwise;
    int64_t index = integer_of(given);
    return std::clamp(index < 0 ? index + size : index, low, high);
  };
  int64_t begin = bound(from, by > 0 ? low : high), end = bound(to, by > 0 ? high : low);
  if (value.text() && by == 1) return std::string(characters_between(*value.text(), begin, end));
  check_list(static_cast<size_t>(size));
  auto take = [&](const auto& items, auto add) {
    for (int64_t i = begin; by > 0 ? i < end : i > end;) {
      add(items[static_cast<size_t>(i)]);
      if (__builtin_add_overflow(i, by, &i)) break;
    }
  };
  if (value.list()) {
    List taken;
    take(*value.list(), [&](const Value& item) { taken.push_back(item); });
    taken.is_tuple = value.list()->is_tuple;
    return taken;
  }
  std::string text;
  take(characters(*value.text()), [&](std::string_view character) { text += character; });
  return text;
}

Signature::Signature(const char* written) {
  for (const std::string& part : *written ? split(written, ',') : std::vector<std::string>()) {
    std::string name = part.substr(part.starts_with(' ') ? 1 : 0);
    if (name == "/") {
      without_names_ = names_.size();
    } else if (name == "*") {
      more_values_ = true;
    } else if (name == "**") {
      more_names_ = true;
    } else {
      bool may_be_left_out = name.ends_with('=');
      if (may_be_left_out) name.pop_back();
      names_.push_back(std::move(name));
      if (!may_be_left_out) needed_ = names_.size();
    }
  }
}

void Signature::check(std::string_view function, const Arguments& given) const {
  size_t places = given.values.size();
  if (places > names_.size() && !more_values_)
    throw Failure(concat(function, "() takes ", counted(std::ssize(names_), "value"),
                         " at most, but ", places, places == 1 ? " is" : " are", " given"));
  for (const auto& [name, value] : given.named) {
    auto place = static_cast<size_t>(std::ranges::find(names_, name) - names_.begin());
    bool known = place >= without_names_ && place < names_.size();
    if (!known && !more_names_)
      throw Failure(concat(function, "() takes nothing by the name ", name));
    if (known && place < places)
      throw Failure(concat(function, "() is given its ", name, " twice"));
  }
  for (size_t i = places; i < needed_; ++i)
    if (i < without_names_ || !given.find(i, names_[i]))
      throw Failure(concat(function, "() lacks its ", names_[i]));
}

Value call(const Value& function, const Arguments& arguments) {
  if (function.function()) return (*function.function())(arguments);
  throw Failure("a value of type " + type_of(defined(function)) + " cannot be called");
}

}  // namespace neox::jinja
