// What names mean while a template is rendered.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "jinja/value.h"

namespace neox::jinja {

// Names of a block; others are looked up in the blocks around it. For one thread.
struct Scope : std::enable_shared_from_this<Scope> {
  std::map<std::string, Value, std::less<>> names = {};
  std::shared_ptr<Scope> around = {};
  int depth = 0;  // of the outermost scope: calls of macros within each other

  Scope& outermost() {
    Scope* scope = this;
    while (scope->around) scope = scope->around.get();
    return *scope;
  }

  const Value* find(std::string_view name) const {
    constexpr size_t kAtOnce = 4;  // blocks are looked through in about the time of a step
    size_t blocks = 0;
    for (const Scope* scope = this; scope; scope = scope->around.get(), ++blocks)
      if (auto at = scope->names.find(name); at != scope->names.end()) {
        Budget::step(1 + blocks / kAtOnce);
        return &at->second;
      }
    Budget::step(1 + blocks / kAtOnce);
    return nullptr;
  }
};

inline std::shared_ptr<Scope> inside(Scope& around) {
  auto scope = std::make_shared<Scope>();
  scope->around = around.shared_from_this();
  scope->depth = around.depth;
  return scope;
}

}  // namespace neox::jinja
