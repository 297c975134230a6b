// What the operators, filters, tests and methods of Jinja do with values. Pure. Each throws Failure
// where Jinja does.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.h"

namespace neox::jinja {

// + - * / // % ** ~
Value computed(std::string_view sign, const Value& a, const Value& b);
// == != < <= > >=
bool compared(std::string_view sign, const Value& a, const Value& b);

// a.name and a[key], undefined where there is none.
Value attribute_of(const Value& value, const std::string& name);
Value item_of(const Value& value, const Value& key);
// a[from:to:step], each of which may be None.
Value slice_of(const Value& value, const Value& from, const Value& to, const Value& step);
Value call(const Value& function, const Arguments& arguments);

// A method of Python's str, list or dict; undefined where it has none of the name.
Value method_of(const Value& value, const std::string& name);

// What may be given to a function, as Python writes it: "old, new, /, count=". What has a = may be
// left out, what stands before / goes by its place alone; * are any more values, ** any more names.
class Signature {
 public:
  Signature(const char* written);
  // Throws Failure, with the name of the function, where more is given, or less.
  void check(std::string_view function, const Arguments& given) const;

 private:
  std::vector<std::string> names_;
  size_t needed_ = 0, without_names_ = 0;  // of the first
  bool more_values_ = false, more_names_ = false;
};

// A filter, a test or a method: what it does with a value and what may be given to it.
template <class Result>
struct Operation {
  std::string_view name;
  Signature takes;
  Result (*apply)(const Value& value, const Arguments& given);

  Result operator()(const Value& value, const Arguments& given) const {
    takes.check(name, given);
    return apply(value, given);
  }
};
using Filter = Operation<Value>;
using Method = Operation<Value>;
using Test = Operation<bool>;

// Null where there is none of the name.
template <class Result>
const Operation<Result>* named(const std::vector<Operation<Result>>& all, std::string_view name) {
  auto found = std::ranges::find(all, name, &Operation<Result>::name);
  return found == all.end() ? nullptr : &*found;
}
const Filter* filter_named(std::string_view name);
const Test* test_named(std::string_view name);

}  // namespace neox::jinja
