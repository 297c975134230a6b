#include "jinja/text.h"

#include <algorithm>
#include <clocale>
#include <cstring>
#include <cwctype>
#include <utility>

#include "base/text.h"
#include "base/utf8.h"
#include "jinja/value.h"
#include "tokenizer/unicode.h"

namespace neox::jinja {
namespace {

constexpr size_t kLettersAtOnce = 8;  // take about as long as a step

locale_t unicode_locale() {
  static locale_t locale = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return locale;
}

template <class Change>
std::string changed(std::string_view text, Change change) {
  std::string out;
  Budget::step(1 + text.size() / kLettersAtOnce);
  for (size_t at = 0; at < text.size();) {
    unicode::CodePoint c = unicode::read(text, at);
    unicode::append(out, static_cast<char32_t>(change(static_cast<wint_t>(c.value))));
    at += c.bytes;
  }
  return out;
}

wint_t to_upper(wint_t c) {
  return unicode_locale() ? ::towupper_l(c, unicode_locale()) : std::towupper(c);
}
wint_t to_lower(wint_t c) {
  return unicode_locale() ? ::towlower_l(c, unicode_locale()) : std::towlower(c);
}
bool is_letter(wint_t c) {
  return unicode_locale() ? ::iswalpha_l(c, unicode_locale()) : std::iswalpha(c);
}

bool is_space(char32_t c) { return unicode::is_space(c) || (c >= 0x1C && c <= 0x1F); }

}  // namespace

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> all;
  Budget::check_room(text.size() * sizeof all[0]);
  Budget::step(1 + text.size() / kLettersAtOnce);
  for (size_t at = 0; at < text.size(); at += all.back().size())
    all.push_back(text.substr(at, unicode::read(text, at).bytes));
  return all;
}

std::string_view characters_between(std::string_view text, int64_t begin, int64_t end) {
  Budget::text(text.size());
  size_t first = 0, last = 0;
  for (int64_t i = 0; i < end && last < text.size(); ++i) {
    last += unicode::read(text, last).bytes;
    if (i < begin) first = last;
  }
  return text.substr(first, last - first);
}

// The C library takes time in proportion to the text, std::string_view to that times what is found.
size_t find_text(std::string_view text, std::string_view what, size_t from) {
  std::string_view rest = text.substr(std::min(from, text.size()));
  const void* found = ::memmem(rest.data(), rest.size(), what.data(), what.size());
  const char* end = found ? static_cast<const char*>(found) : text.data() + text.size();
  Budget::text(static_cast<size_t>(end - rest.data()));
  return found && from <= text.size() ? static_cast<size_t>(end - text.data()) : text.npos;
}

size_t find_last_text(std::string_view text, std::string_view what) {
  Budget::text(text.size() * std::max<size_t>(1, what.size()));
  return text.rfind(what);
}

bool is_space(std::string_view character) { return is_space(unicode::read(character, 0).value); }

std::string_view strip(std::string_view text, Side side, std::string_view of) {
  std::vector<std::string_view> these = characters(of);
  auto goes = [&](std::string_view c) {
    Budget::step(these.size() / kLettersAtOnce);
    return of.empty() ? is_space(c) : std::find(these.begin(), these.end(), c) != these.end();
  };
  while (side != Side::kRight && !text.empty()) {
    std::string_view first = text.substr(0, unicode::read(text, 0).bytes);
    if (!goes(first)) break;
    text.remove_prefix(first.size());
  }
  while (side != Side::kLeft && !text.empty()) {
    size_t at = text.size() - 1;
    while (at > 0 && continues_character(text[at])) --at;
    if (!goes(text.substr(at))) break;
    text = text.substr(0, at);
  }
  return text;
}

std::string replaced(std::string_view text, std::string_view what, std::string_view by,
                     size_t times) {
  GrowingText out;
  if (what.empty()) {
    for (std::string_view c : characters(text)) {
      if (times > 0) --times, out += by;
      out += c;
    }
    if (times > 0) out += by;
    return out.take();
  }
  size_t done = 0;
  for (size_t at; times > 0 && (at = find_text(text, what, done)) != text.npos; --times) {
    out += text.substr(done, at - done);
    out += by;
    done = at + what.size();
  }
  out += text.substr(done);
  return out.take();
}

Line take_line(std::string_view& text) {
  static constexpr std::string_view kEnds[] = {"\r\n",     "\n",           "\r",          "\v",
                                               "\f",       "\x1C",         "\x1D",        "\x1E",
                                               "\xC2\x85", "\xE2\x80\xA8", "\xE2\x80\xA9"};
  auto may_begin_one = [](char c) {
    return static_cast<uint8_t>(c) < 0x20 || c == kEnds[8][0] || c == kEnds[9][0];
  };
  Line line{text, {}};
  for (size_t at = 0; at < text.size() && line.end.empty(); ++at) {
    if (!may_begin_one(text[at])) continue;
    for (std::string_view end : kEnds)
      if (line.end.empty() && text.substr(at).starts_with(end)) line = {text.substr(0, at), end};
  }
  Budget::text(line.text.size());
  text.remove_prefix(line.text.size() + line.end.size());
  return line;
}

std::string in_quotes(std::string_view text) {
  bool single = text.find('\'') == text.npos || text.find('"') != text.npos;
  const char quote = single ? '\'' : '"';
  std::string out(1, quote);
  size_t others = 0;
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    constexpr std::string_view kNamed = "\n\r\t\\", kNames = "nrt\\";
    unicode::CodePoint c = unicode::read(text, at);
    bytes = c.bytes;
    others += bytes > 1 ? 1 : 0;
    if (size_t name = kNamed.find(text[at]); name != kNamed.npos)
      out += {'\\', kNames[name]};
    else if (text[at] == quote)
      out += {'\\', quote};
    else if (unicode::is_printable(c.value))
      out += text.substr(at, bytes);
    else
      out += printed(c.value < 0x100     ? "\\x%02x"
                     : c.value < 0x10000 ? "\\u%04x"
                                         : "\\U%08x",
                     static_cast<unsigned>(c.value));
  }
  Budget::step(1 + others / kLettersAtOnce);
  return out + quote;
}

std::string upper(std::string_view text) { return changed(text, to_upper); }
std::string lower(std::string_view text) { return changed(text, to_lower); }

std::string capitalized(std::string_view text) {
  bool first = true;
  return changed(text,
                 [&](wint_t c) { return std::exchange(first, false) ? to_upper(c) : to_lower(c); });
}

std::string titled(std::string_view text, Titled which) {
  auto parts = [&](wint_t c) {
    constexpr std::string_view kBetween = "-({[<";
    if (which == Titled::kLetters) return !is_letter(c);
    return is_space(char32_t{c}) ||
           (c < 0x80 && kBetween.find(static_cast<char>(c)) != kBetween.npos);
  };
  bool inside = false;
  return changed(
      text, [&](wint_t c) { return std::exchange(inside, !parts(c)) ? to_lower(c) : to_upper(c); });
}

}  // namespace neox::jinja
