#include "jinja/template.h"

#include <array>
#include <ctime>

#include "base/error.h"
#include "jinja/blocks.h"
#include "jinja/operators.h"
#include "jinja/statements.h"

namespace neox::jinja {
namespace {

Value raise(const Arguments& given) { throw Raised{text_of(*given.find(0, "message"))}; }

Value time_now(const Arguments& given) {
  std::time_t now = std::time(nullptr);
  std::tm local = {};
  ::localtime_r(&now, &local);
  std::array<char, 1024> text = {};
  size_t n =
      std::strftime(text.data(), text.size(), words_of(*given.find(0, "format")).c_str(), &local);
  return std::string(text.data(), n);
}

Value range(const Arguments& given) {
  constexpr int64_t kMost = 100000;  // as Jinja's sandbox allows
  auto number = [&](size_t i, int64_t otherwise) {
    return i < given.values.size() ? integer_of(given.values[i]) : otherwise;
  };
  bool one = given.values.size() == 1;
  int64_t begin = one ? 0 : number(0, 0), end = number(one ? 0 : 1, 0), step = number(2, 1);
  if (step == 0) throw Failure("the step of range() is 0");
  List all;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    all.push_back(i);
    if (std::ssize(all) > kMost) throw Failure("range() has more than 100000 numbers");
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return all;
}

// As dict(), of a map or of pairs, and of names.
Map map_of(const Arguments& given) {
  Map map;
  const Value* of = given.values.empty() ? nullptr : &given.values[0];
  const List none, *pairs = of ? of->list() : &none;
  if (of && of->map() && of->map()->is == Map::Is::kMap) map = *of->map(), pairs = &none;
  if (!pairs)
    throw Failure("a value of type " + type_of(defined(*of)) + " is no map, nor pairs for one");
  for (const Value& item : *pairs) {
    List pair = items_of(item);
    if (pair.size() != 2) throw Failure("a map is made of pairs, not of " + type_of(item));
    map.set(words_of(pair[0]), pair[1]);
  }
  for (const auto& [name, value] : given.named) map.set(name, value);
  return map;
}

// Those of one text. Emptied at its end, since they may hold each other, or themselves.
class Namespaces {
 public:
  Namespaces() = default;
  Namespaces(const Namespaces&) = delete;
  ~Namespaces() {
    for (const Value& made : made_) made.map()->items.clear();
  }

  Value make(const Arguments& given) {
    Map map = map_of(given);
    map.is = Map::Is::kNamespace;
    return made_.emplace_back(std::move(map));
  }

 private:
  std::vector<Value> made_;
};

// The namespaces must outlive what is returned.
std::shared_ptr<Scope> globals(Namespaces& spaces) {
  auto scope = std::make_shared<Scope>();
  auto add = [&](const char* name, const Signature& takes, auto function) {
    scope->names[name] = Function([=](const Arguments& given) {
      takes.check(name, given);
      return Value(function(given));
    });
  };
  add("raise_exception", "message", raise);
  add("strftime_now", "format", time_now);
  add("range", "start, stop=, step=, /", range);
  add("dict", "of=, /, **", map_of);
  add("namespace", "of=, /, **", [&](const Arguments& given) { return spaces.make(given); });
  return scope;
}

std::string at(const std::string& name, const Failure& failure) {
  return concat(name, failure.line > 0 ? ":" + std::to_string(failure.line) : "", ": ",
                failure.what());
}

}  // namespace

Template::Template(std::string source, std::string name)
    : source_(std::move(source)), name_(std::move(name)) {
  try {
    body_ = statements_of(tokens_of(source_));
  } catch (const Failure& failure) { fail(Exit::kUsage, at(name_, failure)); }
}

std::string Template::render(const Map& values) const {
  Budget budget;
  Namespaces spaces;
  auto around = globals(spaces);
  for (const auto& [name, value] : values.items) around->names[name] = value;
  auto scope = inside(*around);
  GrowingText text;
  try {
    run(body_, *scope, text);
  } catch (const Failure& failure) {
    fail(Exit::kIo, at(name_, failure));
  } catch (const Raised& raised) { fail(Exit::kIo, name_, ": ", raised.message); }
  return text.take();
}

}  // namespace neox::jinja
