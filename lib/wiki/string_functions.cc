#include "wiki/string_functions.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/utf8.h"
#include "tokenizer/unicode.h"
#include "wiki/number.h"
#include "wiki/parser_functions.h"
#include "wiki/text.h"

namespace neox::wiki {

namespace {

int64_t chars(std::string_view text) { return static_cast<int64_t>(count_characters(text)); }

// The part from one character to another.
std::string_view slice(std::string_view text, int64_t begin, int64_t end) {
  if (begin >= end) return {};
  size_t first = byte_of_char(text, static_cast<size_t>(begin));
  text.remove_prefix(first);
  return text.substr(0, byte_of_char(text, static_cast<size_t>(end - begin)));
}

int64_t whole_or(std::string_view text, int64_t otherwise) {
  return parse_int(text).value_or(otherwise);
}

bool too_long(int64_t bytes) { return bytes > kMaxFunctionResult; }

int64_t occurrences(std::string_view text, std::string_view what) {
  int64_t n = 0;
  for (size_t at = 0; (at = text.find(what, at)) != kNone; at += what.size()) ++n;
  return n;
}

enum class Side { kLeft, kRight };

std::string pad(Arguments a, Side side) {
  if (a.size() < 2) return {};
  std::string text(a[0]);
  std::string_view by = a.size() > 2 ? a[2] : "0";
  std::optional<int64_t> width = parse_int(a[1]);
  if (!width || by.empty()) return text;
  int64_t needed = *width - chars(text), unit = chars(by);
  if (needed <= 0) return text;
  if (too_long(needed)) return {};
  std::string padding;
  for (int64_t i = 0; i < needed / unit && !too_long(static_cast<int64_t>(padding.size())); ++i) {
    padding += by;
  }
  padding += slice(by, 0, needed % unit);
  return side == Side::kLeft ? padding + text : text + padding;
}

std::string percent_decoded(std::string_view ascii) {
  std::string bytes;
  auto hex = [&](size_t at) {
    return at < ascii.size() ? std::string_view("0123456789abcdef").find(ascii_lower(ascii[at]))
                             : kNone;
  };
  for (size_t i = 0; i < ascii.size(); ++i) {
    bool coded = ascii[i] == '%' && hex(i + 1) != kNone && hex(i + 2) != kNone;
    bytes += coded ? static_cast<char>(hex(i + 1) * 16 + hex(i + 2)) : ascii[i];
    if (coded) i += 2;
  }
  return repair(bytes);
}

}  // namespace

std::string length(Arguments a) { return std::to_string(chars(argument(a, 0))); }

std::string position(Arguments a) {
  std::string_view text = argument(a, 0);
  int64_t from = a.size() > 2 ? whole_or(a[2], 0) : 0, size = chars(text);
  if (from < 0) from = std::max<int64_t>(0, size + from);
  if (from > size) return {};
  size_t found = text.find(argument(a, 1), byte_of_char(text, static_cast<size_t>(from)));
  return found == kNone ? std::string() : std::to_string(chars(text.substr(0, found)));
}

std::string last_position(Arguments a) {
  std::string_view text = argument(a, 0);
  size_t found = text.rfind(argument(a, 1));
  return std::to_string(found == kNone ? -1 : chars(text.substr(0, found)));
}

std::string substring(Arguments a) {
  std::string_view text = argument(a, 0);
  int64_t size = chars(text), begin = a.size() > 1 ? whole_or(a[1], 0) : 0;
  begin =
      begin < 0 ? std::max<int64_t>(begin > -size ? size + begin : 0, 0) : std::min(begin, size);
  if (argument(a, 2).empty()) return std::string(slice(text, begin, size));
  int64_t length = whole_or(a[2], 0);
  int64_t end = length >= 0      ? (length > size ? size : std::min(begin + length, size))
                : length > -size ? std::max(size + length, begin)
                                 : begin;
  return std::string(slice(text, begin, end));
}

std::string count(Arguments a) {
  std::string_view what = argument(a, 1);
  return std::to_string(what.empty() ? 0 : occurrences(argument(a, 0), what));
}

std::string replace(Arguments a) {
  std::string_view text = argument(a, 0), what = argument(a, 1), by = argument(a, 2);
  if (what.empty()) return std::string(text);
  int64_t times = argument(a, 3).empty() ? -1 : whole_or(a[3], -1);
  int64_t found = occurrences(text, what);
  if (times < 0 || times > found) times = found;
  if (too_long(static_cast<int64_t>(text.size() + by.size()) +
               times * static_cast<int64_t>(by.size()))) {
    return {};
  }
  std::string out;
  size_t done = 0;
  for (; times > 0; --times) {
    size_t at = text.find(what, done);
    out.append(text.substr(done, at - done)).append(by);
    done = at + what.size();
  }
  return out.append(text.substr(done));
}

std::string explode(Arguments a) {
  std::string_view text = argument(a, 0), between = argument(a, 1);
  if (between.empty()) return {};
  int64_t which = a.size() > 2 ? whole_or(a[2], 0) : 0;
  int64_t limit = argument(a, 3).empty() ? 0 : whole_or(a[3], 0);
  std::vector<std::string_view> parts;
  while (limit <= 0 || static_cast<int64_t>(parts.size()) + 1 < limit) {
    size_t end = text.find(between);
    if (end == kNone) break;
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + between.size());
  }
  parts.push_back(text);
  auto size = static_cast<int64_t>(parts.size());
  if (which < 0) which += size;
  if (which < 0 || which >= size) return {};
  return std::string(parts[static_cast<size_t>(which)]);
}

std::string encode(Arguments a) {
  std::string out;
  for (char c : argument(a, 0)) {
    bool plain = (static_cast<unsigned char>(c) < 0x80 && word_at({&c, 1}, 0)) ||
                 std::string_view("/.-~").find(c) != kNone;
    if (plain) {
      out += c;
      continue;
    }
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    auto byte = static_cast<unsigned char>(c);
    out += '%', out += kDigits[byte >> 4], out += kDigits[byte & 15];
  }
  return out;
}

std::string decode(Arguments a) {
  std::string_view text = argument(a, 0);
  std::string out;
  auto ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  while (!text.empty()) {
    auto end = std::ranges::find_if(text, [&](char c) { return ascii(c) != ascii(text[0]); });
    std::string_view run(text.begin(), end);
    out += ascii(run[0]) ? percent_decoded(run) : std::string(run);
    text.remove_prefix(run.size());
  }
  return out;
}

std::string lower(Arguments a) { return to_lower(argument(a, 0)); }

std::string lower_one(Arguments a) { return lower_first(argument(a, 0)); }

std::string upper(Arguments a) { return to_upper(argument(a, 0)); }

std::string upper_one(Arguments a) { return upper_first(argument(a, 0)); }

std::string pad_left(Arguments a) { return pad(a, Side::kLeft); }

std::string pad_right(Arguments a) { return pad(a, Side::kRight); }

std::string format_number(Arguments a) {
  std::string_view text = argument(a, 0);
  if (strip(argument(a, 1)) != "R") {
    std::optional<double> value = parse_float(text);
    return value ? with_separators(*value) : std::string(text);
  }
  std::string out;
  for (size_t at = 0; at < text.size();) {  // Arabic and Persian digits
    Char c = read_at(text, at);
    at += c.bytes;
    if (c.code >= 0x660 && c.code <= 0x669) c.code -= 0x660 - '0';
    if (c.code >= 0x6F0 && c.code <= 0x6F9) c.code -= 0x6F0 - '0';
    if (c.code != ',') unicode::append(out, c.code);
  }
  return std::string(strip(out));
}

}  // namespace neox::wiki
