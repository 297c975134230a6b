// What stands behind a value: members, keys, calls, filters and tests.
#include <algorithm>

#include "jinja/operators.h"
#include "jinja/parser.h"

namespace neox::jinja {

using Kind = Token::Kind;

Expression Parser::postfix(Expression value) {
  for (;;) {
    if (skip_sign(".")) {
      if (is(Kind::kInteger)) {
        value = [of = std::move(value), key = number()](Scope& s) {
          Budget::step();
          return item_of(of(s), key(s));
        };
        continue;
      }
      std::string name = take(Kind::kName, "a name");
      value = [of = std::move(value), name](Scope& s) {
        Budget::step();
        return attribute_of(of(s), name);
      };
    } else if (skip_sign("[")) {
      value = subscript(std::move(value));
    } else if (is_sign("(")) {
      value = [function = std::move(value), given = arguments()](Scope& s) {
        Value of = function(s);
        Budget::step();
        return call(of, given.of(s));
      };
    } else {
      return value;
    }
  }
}

Expression Parser::subscript(Expression value) {
  Expression parts[3];
  int colons = 0;
  while (!is_sign("]")) {
    if (colons < 2 && skip_sign(":")) {
      ++colons;
      continue;
    }
    if (parts[colons]) take_sign("]");
    parts[colons] = expression();
  }
  take_sign("]");
  if (colons == 0) {
    if (!parts[0]) fail("a key must stand in []");
    return [value = std::move(value), key = parts[0]](Scope& s) {
      Value of = value(s);
      return item_of(of, key(s));
    };
  }
  return [value = std::move(value), from = parts[0], to = parts[1], step = parts[2]](Scope& s) {
    auto part = [&](const Expression& e) { return e ? e(s) : Value(None{}); };
    Value of = value(s);
    return slice_of(of, part(from), part(to), part(step));
  };
}

CallArguments Parser::arguments() {
  CallArguments all;
  take_sign("(");
  for (bool first = true; !skip_sign(")"); first = false) {
    if (!first) take_sign(",");
    if (skip_sign(")")) break;
    if (is_sign("*") || is_sign("**")) fail("* and ** are not read in calls");
    bool has_name =
        is(Kind::kName) && tokens_[at_ + 1].kind == Kind::kSign && tokens_[at_ + 1].text == "=";
    if (has_name) {
      std::string name = take(Kind::kName, "");
      if (std::ranges::count(all.named, name, &std::pair<std::string, Expression>::first) > 0)
        fail("a call gives its " + name + " twice");
      take_sign("=");
      all.named.emplace_back(name, expression());
      continue;
    }
    if (!all.named.empty()) fail("a value without a name stands behind one with a name");
    all.values.push_back(expression());
  }
  return all;
}

Expression Parser::filters(Expression value) {
  for (;;) {
    if (skip_sign("|"))
      value = filter(std::move(value));
    else if (skip_name("is"))
      value = test(std::move(value));
    else if (is_sign("("))
      value = postfix(std::move(value));
    else
      return value;
  }
}

Expression Parser::filter(Expression value) {
  const Filter* filter = filter_named(token().text);
  if (!filter) fail("there is no filter '" + token().text + "'");
  take(Kind::kName, "the name of a filter");
  CallArguments given = is_sign("(") ? arguments() : CallArguments();
  return [filter, value = std::move(value), given = std::move(given)](Scope& s) {
    Value of = value(s);
    Budget::step();
    return (*filter)(of, given.of(s));
  };
}

bool Parser::begins_value() const {
  if (is(Kind::kName)) {
    static const std::vector<std::string> words = {"else", "or", "and", "is",
                                                   "if",   "in", "not", "recursive"};
    return std::ranges::find(words, token().text) == words.end();
  }
  return is(Kind::kString) || is(Kind::kInteger) || is(Kind::kFloat) || is_sign("(") ||
         is_sign("[") || is_sign("{");
}

Expression Parser::test(Expression value) {
  bool is_not = skip_name("not");
  const Test* test = test_named(token().text);
  if (!test) fail("there is no test '" + token().text + "'");
  ++at_;
  CallArguments given;
  if (is_sign("("))
    given = arguments();
  else if (begins_value())
    given.values.push_back(postfix(primary()));
  return [test, is_not, value = std::move(value), given = std::move(given)](Scope& s) {
    Value of = value(s);
    Budget::step();
    return Value((*test)(of, given.of(s)) != is_not);
  };
}

}  // namespace neox::jinja
