#include "jinja/lexer.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/text.h"
#include "jinja/text.h"
#include "tokenizer/unicode.h"

namespace neox::jinja {
namespace {

using Kind = Token::Kind;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> all() {
    while (at_ < source_.size()) {
      size_t tag = next_tag();
      text_before(tag);
      if (tag == source_.size()) break;
      char kind = source_[tag + 1];
      move_to(tag + 2);
      if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) move_to(at_ + 1);
      if (kind == '#')
        comment();
      else if (kind == '%' && is_raw())
        raw();
      else
        inside(kind == '{' ? Kind::kPrint : Kind::kBlock);
    }
    add(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what, int line) const { throw Failure(what, line); }

  void add(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  void move_to(size_t at) {
    auto from = source_.begin() + static_cast<ptrdiff_t>(at_);
    line_ += static_cast<int>(std::count(from, source_.begin() + static_cast<ptrdiff_t>(at), '\n'));
    at_ = at;
  }

  size_t next_tag() const {
    for (size_t at = source_.find('{', at_); at != source_.npos; at = source_.find('{', at + 1))
      if (at + 1 < source_.size() &&
          std::string_view("{%#").find(source_[at + 1]) != std::string_view::npos)
        return at;
    return source_.size();
  }

  // What stands before a tag, whose sign and kind say how much of its end belongs to it.
  void text_before(size_t tag) {
    std::string text = source_.substr(at_, tag - at_);
    bool found = tag + 2 < source_.size();
    char sign = found ? source_[tag + 2] : ' ';
    if (tag < source_.size() && sign == '-') {
      text = strip(text, Side::kRight);
    } else if (tag < source_.size() && sign != '+' && source_[tag + 1] != '{') {
      size_t end = text.rfind('\n');
      size_t line = end == text.npos ? 0 : end + 1;
      if ((line > 0 || line_starts_) && strip(std::string_view(text).substr(line)).empty())
        text.resize(line);
    }
    if (!text.empty()) add(Kind::kText, std::move(text));
    move_to(tag);
  }

  // Behind a tag: its sign, and what of the text belongs to it.
  void end_tag(char sign, size_t at, Kind kind) {
    size_t end = at;
    if (sign == '-') {
      std::string_view rest = std::string_view(source_).substr(at);
      end = source_.size() - strip(rest, Side::kLeft).size();
    } else if (sign != '+' && kind != Kind::kPrintEnd && at < source_.size() &&
               source_[at] == '\n') {
      end = at + 1;
    }
    line_starts_ = end > at && source_[end - 1] == '\n';
    move_to(end);
  }

  void comment() {
    size_t end = source_.find("#}", at_);
    if (end == source_.npos) fail("a comment has no end", line_);
    char sign = end > at_ ? source_[end - 1] : ' ';
    end_tag(sign, end + 2, Kind::kBlockEnd);
  }

  // The end of "WORD -%}" at `at`, and its sign; 0: something else stands there.
  std::pair<size_t, char> word_tag(size_t at, std::string_view word) const {
    auto skip = [&] { at = std::min(source_.find_first_not_of(" \t\n\r", at), source_.size()); };
    skip();
    if (source_.compare(at, word.size(), word) != 0) return {0, ' '};
    at += word.size();
    skip();
    char sign = at < source_.size() ? source_[at] : ' ';
    if (sign == '-' || sign == '+') ++at;
    if (source_.compare(at, 2, "%}") != 0) return {0, ' '};
    return {at + 2, sign};
  }

  bool is_raw() const { return word_tag(at_, "raw").first > 0; }

  void raw() {
    int begun = line_;
    auto [begin, sign] = word_tag(at_, "raw");
    end_tag(sign, begin, Kind::kBlockEnd);
    for (size_t tag = source_.find("{%", at_); tag != source_.npos;
         tag = source_.find("{%", tag + 2)) {
      size_t word = tag + 2;
      if (word < source_.size() && (source_[word] == '-' || source_[word] == '+')) ++word;
      auto [end, last] = word_tag(word, "endraw");
      if (end == 0) continue;
      text_before(tag);
      return end_tag(last, end, Kind::kBlockEnd);
    }
    fail("{% raw %} has no {% endraw %}", begun);
  }

  void inside(Kind kind) {
    add(kind, "");
    int begun = line_;
    size_t first = tokens_.size();
    Kind last = kind == Kind::kPrint ? Kind::kPrintEnd : Kind::kBlockEnd;
    std::string_view mark = kind == Kind::kPrint ? "}}" : "%}";
    for (int depth = 0;;) {
      move_to(std::min(source_.find_first_not_of(" \t\n\r\f\v", at_), source_.size()));
      if (at_ >= source_.size()) fail("a tag has no end", begun);
      bool with_sign = source_[at_] == '-' || (source_[at_] == '+' && kind == Kind::kBlock);
      size_t end = at_ + (with_sign ? 1 : 0);
      if (depth == 0 && source_.compare(end, 2, mark) == 0) {
        add(last, "");
        return end_tag(with_sign ? source_[at_] : ' ', end + 2, last);
      }
      char c = source_[at_];
      if (c == '(' || c == '[' || c == '{') ++depth;
      if (c == ')' || c == ']' || c == '}') --depth;
      constexpr size_t kMost = 5000;  // which are computed one inside of the other
      if (tokens_.size() - first > kMost) fail("a tag is too long", begun);
      if (depth < 0) fail(std::string("'") + c + "' closes nothing", line_);
      one_token(c);
    }
  }

  void one_token(char c) {
    if (c == '"' || c == '\'') return string(c);
    if (is_digit(c)) return number();
    size_t end = at_;
    while (end < source_.size() && is_name(source_[end])) ++end;
    if (end > at_) {
      add(Kind::kName, source_.substr(at_, end - at_));
      return move_to(end);
    }
    for (std::string_view sign : {"**", "//", "==", "!=", ">=", "<="})
      if (source_.compare(at_, 2, sign) == 0)
        return add(Kind::kSign, std::string(sign)), move_to(at_ + 2);
    if (std::string_view("+-/*%~[](){}><=.:|,").find(c) == std::string_view::npos)
      fail(std::string("what is '") + c + "' here?", line_);
    add(Kind::kSign, std::string(1, c));
    move_to(at_ + 1);
  }

  void number() {
    size_t end = at_;
    auto digits = [&] {
      while (end < source_.size() && (is_digit(source_[end]) || source_[end] == '_')) ++end;
    };
    auto digit_at = [&](size_t at) { return at < source_.size() && is_digit(source_[at]); };
    digits();
    Kind kind = Kind::kInteger;
    if (end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
      kind = Kind::kFloat;
      ++end;
      digits();
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t power = end + 1;
      if (power < source_.size() && (source_[power] == '-' || source_[power] == '+')) ++power;
      if (digit_at(power)) {
        kind = Kind::kFloat;
        end = power;
        digits();
      }
    }
    std::string text = source_.substr(at_, end - at_);
    std::erase(text, '_');
    add(kind, std::move(text));
    move_to(end);
  }

  // So many hexadecimal digits as a code point.
  void code_point(size_t& at, size_t digits, std::string& text) const {
    std::string code = source_.substr(at + 1, digits);
    bool good = code.size() == digits &&
                std::ranges::all_of(code, [](unsigned char c) { return std::isxdigit(c); });
    unsigned long value = good ? std::stoul(code, nullptr, 16) : 0;
    if (!good || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
      fail("an escape in a string is no character", line_);
    unicode::append(text, static_cast<char32_t>(value));
    at += digits;
  }

  // As Python reads it.
  void string(char quote) {
    int begun = line_;
    std::string text;
    size_t at = at_ + 1;
    for (; at < source_.size() && source_[at] != quote; ++at) {
      if (source_[at] != '\\' || at + 1 == source_.size()) {
        text += source_[at];
        continue;
      }
      constexpr std::string_view kNames = "nrtabfv0\\'\"", kNamed("\n\r\t\a\b\f\v\0\\'\"", 11);
      char c = source_[++at];
      if (size_t named = kNames.find(c); named != kNames.npos)
        text += kNamed[named];
      else if (c == 'x' || c == 'u' || c == 'U')
        code_point(at, c == 'x' ? 2 : c == 'u' ? 4 : 8, text);
      else if (c != '\n')
        text += {'\\', c};
    }
    if (at >= source_.size()) fail("a string has no end", begun);
    add(Kind::kString, std::move(text));
    move_to(at + 1);
  }

  std::string source_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // what follows begins a line
};

}  // namespace

std::vector<Token> tokens_of(std::string source) {
  std::string storage;
  source = unicode::repair(source, storage);
  source = replace_all(replace_all(source, "\r\n", "\n"), "\r", "\n");
  if (source.ends_with('\n')) source.pop_back();
  return Lexer(std::move(source)).all();
}

}  // namespace neox::jinja
