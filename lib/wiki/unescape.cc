// Character references, and text that is not UTF-8.
#include <algorithm>
#include <cstdint>
#include <optional>

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

// The bytes of a well-formed character (table 3-7 of the Unicode standard), or of the longest part
// of one, which is then not whole.
struct Sequence {
  size_t bytes;
  bool whole;
};

Sequence sequence_at(std::string_view text, size_t at) {
  auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  uint8_t lead = byte(0);
  if (lead < 0x80) return {1, true};
  size_t length = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  size_t have = 1;
  for (; have < length && at + have < text.size(); ++have) {
    if (byte(have) < low || byte(have) > high) break;
    low = 0x80, high = 0xBF;
  }
  return {have, have == length};
}

size_t skip_ascii(std::string_view text, size_t at) {
  for (uint64_t word = 0; at + 8 <= text.size(); at += 8) {
    std::memcpy(&word, text.data() + at, sizeof word);
    if (word & 0x8080808080808080) break;
  }
  while (at < text.size() && static_cast<uint8_t>(text[at]) < 0x80) ++at;
  return at;
}

// The first place at or behind `at` of what is not UTF-8.
size_t skip_valid(std::string_view text, size_t at) {
  while ((at = skip_ascii(text, at)) < text.size()) {
    // A letter of many scripts; sequence_at() knows the others.
    size_t bytes = static_cast<uint8_t>(text[at]) < 0xE0 ? 2 : 3;
    bool common = text.size() - at >= 3 && text[at] != '\xE0' && text[at] != '\xED' &&
                  text[at] < '\xF0' && text[at] >= '\xC2' && (text[at + 1] & 0xC0) == 0x80 &&
                  (text[at + bytes - 1] & 0xC0) == 0x80;
    if (!common) {
      Sequence s = sequence_at(text, at);
      if (!s.whole) return at;
      bytes = s.bytes;
    }
    at += bytes;
  }
  return at;
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
      append_char(out, *found.code);
    } else {
      out.append(text.substr(at, done - at));
    }
  }
  return out.append(text.substr(done));
}

std::string repair(std::string text) {
  size_t at = skip_valid(text, 0);
  if (at == text.size()) return text;
  std::string out;
  size_t done = 0;
  for (; at < text.size(); at = skip_valid(text, done)) {
    out.append(text, done, at - done).append("\xEF\xBF\xBD");
    done = at + sequence_at(text, at).bytes;
  }
  return out.append(text, done);
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
    append_char(out, 0x10000 + ((c.code & 0x3FF) << 10 | (low & 0x3FF)));
    at += 3;
  }
  text = std::move(out);
}

}  // namespace neox::wiki
