#include "jinja/blocks.h"

#include <algorithm>

#include "base/error.h"
#include "jinja/operators.h"

namespace neox::jinja {

Flow run(const Block& block, Scope& scope, GrowingText& out) {
  for (const Statement& statement : block) {
    Budget::step();
    if (Flow flow = statement(scope, out); flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

void assign(Scope& scope, const Targets& targets, const Value& value) {
  if (targets.size() == 1) {
    scope.names[targets.front()] = value;
    return;
  }
  List items = items_of(value);
  if (items.size() != targets.size())
    throw Failure(concat(items.size(), " values for ", targets.size(), " names"));
  for (size_t i = 0; i < items.size(); ++i) scope.names[targets[i]] = items[i];
}

namespace {

// The variable `loop` at an item.
Value loop_at(const List& items, size_t i) {
  auto number = [](size_t n) { return Value(static_cast<int64_t>(n)); };
  size_t size = items.size();
  Map loop{.is = Map::Is::kLoop};
  loop.items = {
      {"index", number(i + 1)},
      {"index0", number(i)},
      {"first", i == 0},
      {"last", i + 1 == size},
      {"length", number(size)},
      {"revindex", number(size - i)},
      {"revindex0", number(size - i - 1)},
      {"previtem", i > 0 ? items[i - 1] : Value(Undefined{"there is no previous item"})},
      {"nextitem", i + 1 < size ? items[i + 1] : Value(Undefined{"there is no next item"})}};
  loop.set("cycle", Function([i](const Arguments& given) {
             static const Signature kTakes("first, /, *");
             kTakes.check("cycle", given);
             return given.values[i % given.values.size()];
           }));
  return loop;
}

// Of calls of macros, while one lives.
class Depth {
 public:
  explicit Depth(Scope& scope) : root_(&scope.outermost()) {
    constexpr int kDeepest = 100;
    if (++root_->depth > kDeepest) throw Failure("macros call each other without end");
  }
  ~Depth() { --root_->depth; }
  Depth(const Depth&) = delete;

 private:
  Scope* root_;
};

}  // namespace

Flow Loop::operator()(Scope& scope, GrowingText& out) const {
  List all = items_of(items(scope)), taken;
  for (const Value& item : all) {
    Budget::step();
    if (condition) {
      auto inner = inside(scope);
      assign(*inner, targets, item);
      if (!truth(condition(*inner))) continue;
    }
    taken.push_back(item);
  }
  bool ran = false;  // some item to the end of the body
  for (size_t i = 0; i < taken.size(); ++i) {
    auto inner = inside(scope);
    assign(*inner, targets, taken[i]);
    inner->names["loop"] = loop_at(taken, i);
    Flow flow = run(body, *inner, out);
    if (flow == Flow::kBreak) break;
    ran = ran || flow == Flow::kOn;
  }
  return ran ? Flow::kOn : run(otherwise, scope, out);
}

Value Macro::call(Scope& around, const Arguments& given) const {
  auto scope = inside(around);
  if (given.values.size() > parameters.size())
    throw Failure("macro " + name + " takes fewer values");
  auto known = [&](const std::string& given_name) {
    auto behind = parameters.begin() + std::ssize(given.values);  // those that have a value
    return std::ranges::find(behind, parameters.end(), given_name,
                             &std::pair<std::string, Expression>::first) != parameters.end();
  };
  for (const auto& [given_name, value] : given.named) {
    if (given_name == "caller")
      scope->names["caller"] = value;
    else if (!known(given_name))
      throw Failure("macro " + name + " has no parameter " + given_name + " without a value");
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [parameter, otherwise] = parameters[i];
    const Value* value = given.find(i, parameter);
    scope->names[parameter] = value ? *value
                              : otherwise
                                  ? otherwise(*scope)
                                  : Value(Undefined{"parameter '" + parameter + "' was not given"});
  }
  Depth depth(*scope);
  GrowingText out;
  run(body, *scope, out);
  return out.take();
}

Value callable(std::shared_ptr<const Macro> macro, Scope& around) {
  std::weak_ptr<Scope> there = around.weak_from_this();  // which holds the macro
  return Function([macro = std::move(macro), there](const Arguments& given) {
    auto scope = there.lock();
    if (!scope) throw Failure("macro " + macro->name + " is called outside of its block");
    return macro->call(*scope, given);
  });
}

}  // namespace neox::jinja
