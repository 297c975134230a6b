#include "jinja/parser.h"

#include <algorithm>

#include "base/text.h"
#include "jinja/operators.h"

namespace neox::jinja {

using Kind = Token::Kind;

Arguments CallArguments::of(Scope& scope) const {
  Arguments all;
  for (const Expression& value : values) all.values.push_back(value(scope));
  for (const auto& [name, value] : named) all.named.emplace_back(name, value(scope));
  return all;
}

void Parser::fail(const std::string& what) const { throw Failure(what, token().line); }

bool Parser::is_sign(std::string_view sign) const {
  return is(Kind::kSign) && token().text == sign;
}
bool Parser::is_name(std::string_view name) const {
  return is(Kind::kName) && token().text == name;
}

bool Parser::skip_sign(std::string_view sign) {
  bool here = is_sign(sign);
  if (here) ++at_;
  return here;
}

bool Parser::skip_name(std::string_view name) {
  bool here = is_name(name);
  if (here) ++at_;
  return here;
}

std::string Parser::take(Kind kind, const char* what) {
  if (!is(kind)) {
    bool ends = is(Kind::kEnd) || is(Kind::kBlockEnd) || is(Kind::kPrintEnd);
    fail(std::string(what) + " must stand here" +
         (ends ? "" : ", not '" + token().text.substr(0, 40) + "'"));
  }
  return tokens_[at_++].text;
}

void Parser::take_sign(std::string_view sign) {
  if (!skip_sign(sign)) take(Kind::kEnd, ("'" + std::string(sign) + "'").c_str());
}

void Parser::take_name(std::string_view name) {
  if (!skip_name(name)) take(Kind::kEnd, ("'" + std::string(name) + "'").c_str());
}

Expression Parser::expression() {
  Level level(*this);
  Expression value = either();
  while (skip_name("if")) {
    Expression condition = either();
    Expression other = [](Scope&) { return Value(Undefined{"a value that has no else"}); };
    if (skip_name("else")) other = expression();
    value = [condition = std::move(condition), value = std::move(value), other = std::move(other)](
                Scope& s) { return truth(condition(s)) ? value(s) : other(s); };
  }
  return value;
}

namespace {

Expression constant(Value value) {
  return [value = std::move(value)](Scope&) {
    Budget::step();
    return value;
  };
}

enum class Kinds { kList, kTuple };
Expression list_of(std::vector<Expression> all, Kinds kind) {
  return [all = std::move(all), kind](Scope& s) {
    List list;
    Budget::step();
    for (const Expression& value : all) list.push_back(value(s));
    list.is_tuple = kind == Kinds::kTuple;
    return Value(std::move(list));
  };
}

}  // namespace

Expression Parser::values(Condition condition) {
  auto one = [&] { return condition == Condition::kNone ? either() : expression(); };
  Expression first = one();
  if (!is_sign(",")) return first;
  std::vector<Expression> all = {std::move(first)};
  while (skip_sign(",") && begins_value()) all.push_back(one());
  return list_of(std::move(all), Kinds::kTuple);
}

Expression Parser::either() {
  Expression value = both();
  while (skip_name("or"))
    value = [a = std::move(value), b = both()](Scope& s) {
      Value first = a(s);
      return truth(first) ? first : b(s);
    };
  return value;
}

Expression Parser::both() {
  Expression value = negation();
  while (skip_name("and"))
    value = [a = std::move(value), b = negation()](Scope& s) {
      Value first = a(s);
      return truth(first) ? b(s) : first;
    };
  return value;
}

Expression Parser::negation() {
  if (!skip_name("not")) return comparison();
  Level level(*this);
  return [value = negation()](Scope& s) { return Value(!truth(value(s))); };
}

// a < b < c is a < b and b < c.
Expression Parser::comparison() {
  Expression first = sum();
  std::vector<std::pair<std::string, Expression>> others;
  for (;;) {
    static const std::vector<std::string> signs = {"==", "!=", "<", "<=", ">", ">="};
    std::string sign = is(Kind::kSign) ? token().text : "";
    bool is_not_in =
        is_name("not") && tokens_[at_ + 1].kind == Kind::kName && tokens_[at_ + 1].text == "in";
    if (is_not_in)
      at_ += 2, sign = "not in";
    else if (skip_name("in"))
      sign = "in";
    else if (std::ranges::find(signs, sign) != signs.end())
      ++at_;
    else
      break;
    others.emplace_back(sign, sum());
  }
  if (others.empty()) return first;
  return [first = std::move(first), others = std::move(others)](Scope& s) {
    Value left = first(s);
    for (const auto& [sign, expression] : others) {
      Value right = expression(s);
      bool in = sign == "in" || sign == "not in";
      if (!(in ? contains(right, left) == (sign == "in") : compared(sign, left, right)))
        return Value(false);
      left = right;
    }
    return Value(true);
  };
}

namespace {

Expression computing(std::string sign, Expression a, Expression b) {
  return [sign = std::move(sign), a = std::move(a), b = std::move(b)](Scope& s) {
    Value left = a(s);
    Budget::step();
    return computed(sign, left, b(s));
  };
}

}  // namespace

Expression Parser::sum() {
  Expression value = joined();
  while (is_sign("+") || is_sign("-")) {
    std::string sign = take(Kind::kSign, "");
    value = computing(sign, std::move(value), joined());
  }
  return value;
}

Expression Parser::joined() {
  Expression value = product();
  while (skip_sign("~")) value = computing("~", std::move(value), product());
  return value;
}

Expression Parser::product() {
  Expression value = power();
  while (is_sign("*") || is_sign("/") || is_sign("//") || is_sign("%")) {
    std::string sign = take(Kind::kSign, "");
    value = computing(sign, std::move(value), power());
  }
  return value;
}

Expression Parser::power() {
  Expression value = unary(Filters::kMayFollow);
  while (skip_sign("**")) value = computing("**", std::move(value), unary(Filters::kMayFollow));
  return value;
}

Expression Parser::unary(Filters may) {
  Expression value;
  if (is_sign("-") || is_sign("+")) {
    Level level(*this);
    bool minus = take(Kind::kSign, "") == "-";
    value = unary(Filters::kNone);
    value = [minus, value = std::move(value)](Scope& s) {
      return computed(minus ? "-" : "+", Value(int64_t{0}), value(s));
    };
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return may == Filters::kMayFollow ? filters(std::move(value)) : value;
}

Expression Parser::primary() {
  if (is(Kind::kInteger) || is(Kind::kFloat)) return number();
  if (is(Kind::kString)) {
    std::string text;
    while (is(Kind::kString)) text += take(Kind::kString, "");
    return constant(text);
  }
  if (is(Kind::kName)) return named(take(Kind::kName, ""));
  if (skip_sign("(")) return in_brackets();
  if (skip_sign("[")) return list_until("]");
  if (skip_sign("{")) return map();
  take(Kind::kEnd, "a value");
  return {};
}

Expression Parser::number() {
  auto read = [&](auto number) {
    if (!number) fail("the number " + token().text + " is too large");
    return constant(*number);
  };
  const std::string& digits = token().text;
  Expression value = is(Kind::kInteger) ? read(neox::number_of<int64_t>(digits))
                                        : read(neox::number_of<double>(digits));
  ++at_;
  return value;
}

Expression Parser::named(const std::string& name) {
  if (name == "true" || name == "True") return constant(true);
  if (name == "false" || name == "False") return constant(false);
  if (name == "none" || name == "None") return constant(None{});
  return [name](Scope& s) {
    const Value* found = s.find(name);
    return found ? *found : Value(Undefined{"'" + name + "' is undefined"});
  };
}

Expression Parser::in_brackets() {
  if (skip_sign(")")) return list_of({}, Kinds::kTuple);
  Expression value = values();
  take_sign(")");
  return value;
}

Expression Parser::list_until(std::string_view close) {
  std::vector<Expression> all;
  while (!skip_sign(close)) {
    if (!all.empty()) take_sign(",");
    if (skip_sign(close)) break;
    all.push_back(expression());
  }
  return list_of(std::move(all), Kinds::kList);
}

Expression Parser::map() {
  std::vector<std::pair<Expression, Expression>> all;
  while (!skip_sign("}")) {
    if (!all.empty()) take_sign(",");
    if (skip_sign("}")) break;
    Expression key = expression();
    take_sign(":");
    all.emplace_back(key, expression());
  }
  return [=](Scope& s) {
    Map map;
    Budget::step();
    for (const auto& [key, value] : all) map.set(words_of(key(s)), value(s));
    return Value(std::move(map));
  };
}

}  // namespace neox::jinja
