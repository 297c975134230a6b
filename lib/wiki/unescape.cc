// Character references, and text that is not UTF-8.
#include <algorithm>
#include <cstdint>
#include <optional>

#include "tokenizer/unicode.h"
#include "wiki/tables.h"
#include "wiki/text.h"

namespace neox::wiki {

namespace {

constexpr char32_t kLastChar = 0x10FFFF;

std::optional<unsigned> digit_value(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (ascii_lower(c) >= 'a' && ascii_lower(c) <= 'f') return ascii_lower(c) - 'a' + 10u;
  return {};
}

// As Python's int(): single "_" between digits.
std::optional<char32_t> number(std::string_view digits, unsigned base) {
  char32_t value = 0;
  bool after_digit = false;
  for (char c : digits) {
    std::optional<unsigned> digit = digit_value(c);
    if (c == '_' && after_digit) {
      after_digit = false;
      continue;
    }
    if (!digit || *digit >= base) return {};
    value = std::min<char32_t>(value * base + *digit, kLastChar + 1);
    after_digit = true;
  }
  if (!after_digit || value > kLastChar) return {};
  return value;
}

std::optional<char32_t> entity(std::string_view name) {
  auto found = std::ranges::lower_bound(kEntities, name, {}, &Entity::name);
  if (found == kEntities.end() || found->name != name) return {};
  return found->code;
}

struct Reference {
  std::optional<char32_t> code;
  size_t end = 0;  // behind the ";"; 0 where there is none
};

// &#?(\w+); at the "&".
Reference read_reference(std::string_view text, size_t at) {
  bool numeric = at + 1 < text.size() && text[at + 1] == '#';
  size_t begin = at + 1 + (numeric ? 1 : 0), end = begin;
  while (word_at(text, end)) end += read_at(text, end).bytes;
  if (end == begin || end == text.size() || text[end] != ';') return {};
  std::string_view name = text.substr(begin, end - begin);
  if (!numeric) return {entity(name), end + 1};
  // "0x" may stand behind the "x" once more.
  if (name[0] == 'x') {
    name.remove_prefix(1);
    if (name.size() > 2 && name[0] == '0' && ascii_lower(name[1]) == 'x') name.remove_prefix(2);
    return {number(name, 16), end + 1};
  }
  return {number(name, 10), end + 1};
}

}  // namespace

std::string unescape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t done = 0;
  for (size_t at; (at = text.find('&', done)) != kNone;) {
    out.append(text.substr(done, at - done));
    Reference found = read_reference(text, at);
    done = found.end ? found.end : at + 1;
    if (found.code) {
      unicode::append(out, *found.code);
    } else {
      out.append(text.substr(at, done - at));
    }
  }
  return out.append(text.substr(done));
}

std::string repair(std::string text) {
  std::string repaired;
  bool valid = unicode::repair(text, repaired).data() == text.data();
  return valid ? std::move(text) : std::move(repaired);
}

void join_surrogates(std::string& text) {
  auto surrogate = [&](size_t at) {
    return text.size() - at >= 3 && text[at] == '\xED' &&
           static_cast<uint8_t>(text[at + 1]) >= 0xA0;
  };
  size_t at = text.find('\xED');
  while (at != kNone && !surrogate(at)) at = text.find('\xED', at + 1);
  if (at == kNone) return;
  std::string out = text.substr(0, at);
  while (at < text.size()) {
    Char c = read_at(text, at);
    if (!surrogate(at)) {
      out.append(text, at, c.bytes);
      at += c.bytes;
      continue;
    }
    at += 3;
    char32_t low =
        c.code < 0xDC00 && at < text.size() && surrogate(at) ? read_at(text, at).code : 0;
    if (low < 0xDC00) {
      out += '?';
      continue;
    }
    unicode::append(out, 0x10000 + ((c.code & 0x3FF) << 10 | (low & 0x3FF)));
    at += 3;
  }
  text = std::move(out);
}

}  // namespace neox::wiki
