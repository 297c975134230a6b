// The expressions of {{#expr:}}, as wikiextractor evaluates them: with the syntax and the numbers
// of Python, on whole numbers of 64 bits and doubles.
#pragma once
#include <optional>
#include <string_view>

#include "wiki/number.h"

namespace neox::wiki {

// None where the expression is malformed, divides by zero or leaves the range of its numbers.
std::optional<Number> evaluate(std::string_view expression);

}  // namespace neox::wiki
