#include "config/value.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"

namespace neox {
namespace {

constexpr size_t kShown = 60;  // characters of a value in a message

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\x%02x", static_cast<unsigned>(c));
      out += code;
    } else {
      out += c;
    }
  }
  return out + '"';
}

// Of a number as PyYAML reads it: without + and _.
std::string digits_of(std::string text) {
  if (text[0] == '+') text.erase(0, 1);
  std::erase(text, '_');
  return text;
}

std::string show_all(const Value& value) {
  using Kind = Value::Kind;
  if (value.kind == Kind::kNull) return "null";
  if (value.kind == Kind::kText) return in_quotes(value.text);
  if (value.kind != Kind::kList && value.kind != Kind::kMap) return value.text;
  bool map = value.kind == Kind::kMap;
  std::string out = map ? "{" : "[";
  for (size_t i = 0; i < value.items.size() && out.size() <= kShown; ++i) {
    if (i) out += ", ";
    if (map) out += value.names[i] + ": ";
    out += show_all(value.items[i]);
  }
  return out + (map ? "}" : "]");
}

}  // namespace

std::string Place::text() const { return line ? file + ':' + std::to_string(line) : file; }

const Value* Value::find(std::string_view name) const {
  auto at = std::find(names.begin(), names.end(), name);
  return at == names.end() ? nullptr : &items[static_cast<size_t>(at - names.begin())];
}

bool Value::is_true() const {
  // true, yes, on; not false, no, off
  char first = text[0], second = text[1];
  return first == 't' || first == 'T' || first == 'y' || first == 'Y' ||
         ((first == 'o' || first == 'O') && (second == 'n' || second == 'N'));
}

std::optional<double> Value::number() const {
  if (kind != Kind::kNumber) return std::nullopt;
  auto result = number_of<double>(digits_of(text));
  return result && std::isfinite(*result) ? result : std::nullopt;
}

std::optional<int64_t> Value::integer() const {
  if (kind != Kind::kNumber) return std::nullopt;
  if (auto result = number_of<int64_t>(digits_of(text))) return result;
  auto real = number();
  if (!real || *real != std::floor(*real) || std::abs(*real) > 0x1p53) return std::nullopt;
  return static_cast<int64_t>(*real);
}

std::string Value::show() const {
  std::string out = show_all(*this);
  if (out.size() <= kShown) return out;
  return concat(first_characters(out, kShown), "...");
}

bool same(const Value& a, const Value& b) {
  using Kind = Value::Kind;
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  if (a.kind == Kind::kBool) return a.is_true() == b.is_true();
  if (a.kind == Kind::kNumber && a.number() && b.number()) return *a.number() == *b.number();
  for (size_t i = 0; i < a.items.size(); ++i) {
    const Value* other = a.kind == Kind::kMap ? b.find(a.names[i]) : &b.items[i];
    if (!other || !same(a.items[i], *other)) return false;
  }
  return a.text == b.text;
}

std::string yaml_text(std::string_view text) {
  constexpr std::string_view kSafe = "_-./+@=~";
  bool plain = !text.empty() && (std::isalpha(static_cast<unsigned char>(text[0])) ||
                                 text[0] == '/' || text[0] == '.' || text[0] == '_');
  for (char c : text)
    plain &= std::isalnum(static_cast<unsigned char>(c)) || kSafe.find(c) != kSafe.npos;
  if (plain) {
    Value back = parse_yaml(std::string(text), "");
    plain = back.kind == Value::Kind::kText && back.text == text;
  }
  return plain ? std::string(text) : in_quotes(text);
}

std::string shortest(double number) {
  std::array<char, 32> text;
  auto result = std::to_chars(text.data(), text.data() + text.size(), number);
  return {text.data(), result.ptr};
}

}  // namespace neox
