// Statements of Jinja.
#pragma once
#include <string>
#include <vector>

#include "jinja/parser.h"
#include "jinja/template.h"

namespace neox::jinja {

// Of a whole template. Throws Failure with a line.
std::vector<Statement> statements_of(const std::vector<Token>& tokens);

// What a template says by raise_exception().
struct Raised {
  std::string message;
};

}  // namespace neox::jinja
