#include "wiki/expression.h"

#include <algorithm>
#include <string>
#include <vector>

#include "wiki/text.h"

namespace neox::wiki {

namespace {

struct SyntaxError {};

struct Token {
  enum class Kind { kNumber, kName, kSign, kEnd } kind = Kind::kEnd;
  std::string text;
  Number value = int64_t{0};
};

bool digit_at(std::string_view text, size_t at) {
  return at < text.size() && text[at] >= '0' && text[at] <= '9';
}

// Cuts an expression into Python's tokens, after wikiextractor's changes: "=" alone compares;
// "mod", "div" and "round" are operators; "trunc" is a function where "(" follows.
class Tokens {
 public:
  explicit Tokens(std::string_view text) : text_(text) {
    while (skip()) all_.push_back(next());
    all_.emplace_back();
  }
  std::vector<Token> all() { return std::move(all_); }

 private:
  // To the next token; lines may end only within parentheses.
  bool skip() {
    while (at_ < text_.size()) {
      char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == ' ' || c == '\t' || c == '\f' || (c == '\n' && depth_ > 0)) {
        ++at_;
      } else if (c == '\n' && strip(text_.substr(at_)).empty()) {
        return false;
      } else {
        return true;
      }
    }
    return false;
  }

  Token next() {
    if (digit_at(text_, at_) || (text_[at_] == '.' && digit_at(text_, at_ + 1))) return number();
    if (word_at(text_, at_)) return name();
    return sign();
  }

  size_t digits(size_t at) const {
    while (digit_at(text_, at) ||
           (at < text_.size() && text_[at] == '_' && digit_at(text_, at + 1))) {
      ++at;
    }
    return at;
  }

  Token number() {
    size_t begin = at_, end = digits(at_);
    bool real = end < text_.size() && text_[end] == '.';
    if (real) end = digits(end + 1);
    if (end < text_.size() && ascii_lower(text_[end]) == 'e') {
      size_t sign = end + 1;
      if (sign < text_.size() && (text_[sign] == '+' || text_[sign] == '-')) ++sign;
      if (digit_at(text_, sign)) real = true, end = digits(sign);
    }
    std::string_view text = text_.substr(begin, end - begin);
    at_ = end;
    check_end_of_number();
    Token token{Token::Kind::kNumber, std::string(text)};
    bool zeros = text.find_first_not_of("0_") == kNone;
    if (!real && text[0] == '0' && !zeros) throw SyntaxError{};  // 007
    std::optional<Number> value;
    if (real)
      value = parse_float(text);  // none of 1._5
    else
      value = parse_int(text);
    if (!value) throw SyntaxError{};
    token.value = *value;
    return token;
  }

  // Only some words may follow a digit directly.
  void check_end_of_number() const {
    if (!word_at(text_, at_)) return;
    for (std::string_view word : {"and", "else", "for", "if", "in", "is", "not", "or"}) {
      if (text_.substr(at_, word.size()) == word) return;
    }
    throw SyntaxError{};
  }

  Token name() {
    size_t begin = at_;
    bool joined = begin > 0 && word_before();
    while (word_at(text_, at_)) at_ += read_at(text_, at_).bytes;
    std::string word(text_.substr(begin, at_ - begin));
    if (joined) return {Token::Kind::kName, word};
    if (word == "mod") return {Token::Kind::kSign, "%"};
    if (word == "div") return {Token::Kind::kSign, "/"};
    if (word == "round") return round();
    size_t next = skip_space(text_, at_);
    bool function = word == "trunc" && next < text_.size() && text_[next] == '(';
    return {Token::Kind::kName, function ? "TRUNC" : word};
  }

  bool word_before() const { return is_word(read_before(text_, at_).code); }

  // |ROUND|
  Token round() {
    all_.push_back({Token::Kind::kSign, "|"});
    all_.push_back({Token::Kind::kName, "ROUND"});
    return {Token::Kind::kSign, "|"};
  }

  Token sign() {
    for (std::string_view two : {"**", "==", "<=", ">=", "!=", "//", "<<", ">>"}) {
      if (text_.substr(at_, 2) != two) continue;
      at_ += 2;
      return {Token::Kind::kSign, std::string(two)};
    }
    char c = text_[at_++];
    depth_ += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (std::string_view("+-*/%()<>=|^&~").find(c) == kNone) throw SyntaxError{};
    return {Token::Kind::kSign, c == '=' ? "==" : std::string(1, c)};
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  std::vector<Token> all_;
};

// Evaluates as it parses. What Python would not evaluate, behind a decided "and" or "or", is
// parsed alone: there names and unknown operators do no harm.
class Evaluator {
 public:
  explicit Evaluator(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Number run() {
    Number value = either();
    if (here().kind != Token::Kind::kEnd) throw SyntaxError{};
    return value;
  }

 private:
  static constexpr int kMaxDepth = 90;

  const Token& here() const { return tokens_[at_]; }
  bool is(std::string_view text) const {
    return here().kind != Token::Kind::kNumber && here().kind != Token::Kind::kEnd &&
           here().text == text;
  }
  bool take(std::string_view text) {
    if (!is(text)) return false;
    ++at_;
    return true;
  }
  bool evaluating() const { return skipping_ == 0; }
  void not_allowed() const {
    if (evaluating()) throw NoNumber{};
  }

  // "or" ends at the first value that counts, "and" at the first that does not.
  Number either() { return chain("or", true, &Evaluator::both); }
  Number both() { return chain("and", false, &Evaluator::inverted); }

  Number chain(std::string_view word, bool decides, Number (Evaluator::*part)()) {
    Number value = (this->*part)();
    if (!is(word)) return value;
    int skipped = 0;
    while (take(word)) {
      if (skipped == 0 && truthy(value) == decides) ++skipping_, ++skipped;
      Number next = (this->*part)();
      if (skipped == 0) value = next;
    }
    skipping_ -= skipped;
    return truthy(value) ? value : int64_t{0};
  }

  Number inverted() {
    if (!take("not")) return comparison();
    Deeper deeper(depth_);
    return int64_t{truthy(inverted()) ? 0 : 1};
  }

  Number comparison() {
    Number value = bits();
    int count = 0;
    while (here().kind == Token::Kind::kSign) {
      std::string sign = here().text;
      if (sign != "==" && sign != "!=" && sign != "<" && sign != ">" && sign != "<=" &&
          sign != ">=") {
        break;
      }
      ++at_;
      Number right = bits();
      if (++count > 1) not_allowed();
      value = holds(compare(value, right), sign);
    }
    return value;
  }

  static Number holds(int order, std::string_view sign) {
    bool nan = order == 2, less = order == -1, equal = order == 0;
    if (sign == "==") return int64_t{equal};
    if (sign == "!=") return int64_t{!equal};
    if (sign == "<") return int64_t{less};
    if (sign == "<=") return int64_t{less || equal};
    if (sign == ">") return int64_t{!nan && !less && !equal};
    return int64_t{!nan && !less};
  }

  // a |ROUND| b; other operators on bits are not allowed.
  Number bits() {
    Number value = sum();
    while (is("|") || is("^") || is("&") || is("<<") || is(">>")) {
      bool bar = take("|");
      if (bar && take("ROUND") && take("|")) {
        Number digits = sum();
        if (evaluating()) value = round_to(value, digits);
      } else {
        if (!bar) ++at_;
        not_allowed();
        sum();
      }
    }
    return value;
  }

  Number sum() {
    Number value = product();
    while (is("+") || is("-")) {
      bool plus = take("+");
      if (!plus) take("-");
      Number right = product();
      if (evaluating()) value = plus ? add(value, right) : subtract(value, right);
    }
    return value;
  }

  Number product() {
    Number value = factor();
    while (is("*") || is("/") || is("%") || is("//")) {
      std::string sign = here().text;
      ++at_;
      Number right = factor();
      if (!evaluating()) continue;
      if (sign == "//") throw NoNumber{};
      value = sign == "*"   ? multiply(value, right)
              : sign == "/" ? divide(value, right)
                            : modulo(value, right);
    }
    return value;
  }

  Number factor() {
    Deeper deeper(depth_);
    if (take("+")) return factor();
    if (take("-")) {
      Number value = factor();
      return evaluating() ? negate(value) : value;
    }
    if (take("~")) {
      not_allowed();
      return factor();
    }
    Number base = primary();
    while (take("(")) {  // a call
      not_allowed();
      if (!take(")")) inside();
    }
    if (!take("**")) return base;
    Number exponent = factor();
    return evaluating() ? power(base, exponent) : base;
  }

  Number primary() {
    Token token = here();
    ++at_;
    if (token.kind == Token::Kind::kNumber) return token.value;
    if (token.kind == Token::Kind::kSign && token.text == "(") return inside();
    if (token.kind != Token::Kind::kName) throw SyntaxError{};
    for (std::string_view word : {"and", "or", "not", "in", "is", "if", "else", "for", "lambda"}) {
      if (token.text == word) throw SyntaxError{};
    }
    if (token.text == "TRUNC" && take("(")) {
      Number value = inside();
      return evaluating() ? truncate(value) : value;
    }
    not_allowed();
    return int64_t{0};
  }

  Number inside() {
    if (take(")")) {
      not_allowed();
      return int64_t{0};
    }
    Number value = either();
    if (!take(")")) throw SyntaxError{};
    return value;
  }

  // Counts nested operators and parentheses.
  class Deeper {
   public:
    explicit Deeper(int& depth) : depth_(depth) {
      if (++depth_ > kMaxDepth) throw SyntaxError{};
    }
    ~Deeper() { --depth_; }

   private:
    int& depth_;
  };

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int skipping_ = 0, depth_ = 0;
};

}  // namespace

std::optional<Number> evaluate(std::string_view expression) {
  try {
    return Evaluator(Tokens(expression).all()).run();
  } catch (const SyntaxError&) {
  } catch (const NoNumber&) {}
  return {};
}

}  // namespace neox::wiki
