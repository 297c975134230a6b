// What loops, macros and blocks of Jinja do.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "jinja/parser.h"
#include "jinja/template.h"

namespace neox::jinja {

using Block = std::vector<Statement>;

Flow run(const Block& block, Scope& scope, GrowingText& out);

// Names that an item is taken apart into.
using Targets = std::vector<std::string>;
void assign(Scope& scope, const Targets& targets, const Value& value);

struct Loop {
  Targets targets;
  Expression items, condition;  // the latter may be none
  Block body, otherwise;  // the latter where no item ran to the end of the body
  Flow operator()(Scope& scope, GrowingText& out) const;
};

struct Macro {
  std::string name;
  std::vector<std::pair<std::string, Expression>> parameters;  // and what they are otherwise
  Block body;
  // around: where it is defined. A block of {% call %} is its `caller`.
  Value call(Scope& around, const Arguments& given) const;
};

// A macro as a value; it must not be called when its block is left.
Value callable(std::shared_ptr<const Macro> macro, Scope& around);

}  // namespace neox::jinja
