// Expressions of Jinja as functions of the names around them, with Jinja's order of operators.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/lexer.h"
#include "jinja/scope.h"

namespace neox::jinja {

// Throws Failure.
using Expression = std::function<Value(Scope&)>;

// What stands in the brackets of a call.
struct CallArguments {
  std::vector<Expression> values;
  std::vector<std::pair<std::string, Expression>> named;
  Arguments of(Scope& scope) const;
};

// Reads tokens from the first on. Throws Failure with the line of a token that stands wrong.
class Parser {
 public:
  explicit Parser(const std::vector<Token>& tokens) : tokens_(tokens) {}

  const Token& token() const { return tokens_[at_]; }
  bool is(Token::Kind kind) const { return token().kind == kind; }
  bool is_sign(std::string_view sign) const;
  bool is_name(std::string_view name) const;
  // Goes behind it where it stands here.
  bool skip_sign(std::string_view sign);
  bool skip_name(std::string_view name);
  // Goes behind it and returns its text; throws where another stands here.
  std::string take(Token::Kind kind, const char* what);
  void take_sign(std::string_view sign);
  void take_name(std::string_view name);
  [[noreturn]] void fail(const std::string& what) const;

  // One value, with a condition behind it (a if b else c).
  Expression expression();
  // The same, or several with commas between them, which are a tuple; `for x in` takes no
  // condition.
  enum class Condition { kMayStand, kNone };
  Expression values(Condition condition = Condition::kMayStand);
  // The filters and tests that stand behind a value; one filter, at its name.
  Expression filters(Expression value);
  Expression filter(Expression value);
  CallArguments arguments();

 private:
  // What stands within something else, while it is read.
  class Level {
   public:
    explicit Level(Parser& parser) : depth_(parser.depth_) {
      constexpr int kDeepest = 200;
      if (++depth_ > kDeepest) parser.fail("brackets and signs stand too deep");
    }
    ~Level() { --depth_; }
    Level(const Level&) = delete;

   private:
    int& depth_;
  };

  Expression either();
  Expression both();
  Expression negation();
  Expression comparison();
  Expression sum();
  Expression joined();
  Expression product();
  Expression power();
  enum class Filters { kMayFollow, kNone };
  Expression unary(Filters filters);
  Expression primary();
  Expression number();
  Expression named(const std::string& name);
  Expression in_brackets();
  Expression list_until(std::string_view close);
  Expression map();
  Expression postfix(Expression value);
  Expression subscript(Expression value);
  Expression test(Expression value);
  bool begins_value() const;

  const std::vector<Token>& tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace neox::jinja
