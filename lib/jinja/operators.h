// What the operators, filters, tests and methods of Jinja do with values. Pure. Each throws Failure
// where Jinja does.
#pragma once
#include <string>
#include <string_view>

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

using Filter = Value (*)(const Value& value, const Arguments& arguments);
using Test = bool (*)(const Value& value, const Arguments& arguments);
// Null where there is none of the name.
Filter filter_named(std::string_view name);
Test test_named(std::string_view name);

}  // namespace neox::jinja
