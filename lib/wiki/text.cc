#include "wiki/text.h"

#include <algorithm>
#include <cstdint>

#include "base/text.h"
#include "base/utf8.h"
#include "tokenizer/unicode.h"
#include "wiki/tables.h"

namespace neox::wiki {

namespace {

constexpr char32_t kReplacement = 0xFFFD;

uint8_t byte_at(std::string_view text, size_t at) { return static_cast<uint8_t>(text[at]); }

bool continues(std::string_view text, size_t at) {
  return at < text.size() && continues_character(text[at]);
}

bool any_cased(char32_t code) {
  auto in = [code](const std::vector<CaseRun>& runs) {
    return std::ranges::any_of(
        runs, [code](const CaseRun& r) { return r.first <= code && code <= r.last; });
  };
  return in(kUpperRuns) || in(kLowerRuns);
}

// Marks within words, of which the end of a word does not depend.
bool within_words(char32_t code) {
  constexpr std::u32string_view kMarks = U"'.:^`\u00AD\u00B7\u2018\u2019\u2024\u2027";
  return kMarks.find(code) != kMarks.npos || (code >= 0x300 && code < 0x370);
}

constexpr int kMaxMarks = 16;

bool cased_before(std::string_view text, size_t at) {
  for (int i = 0; at > 0 && i < kMaxMarks; ++i) {
    Char c = read_before(text, at);
    if (!within_words(c.code)) return any_cased(c.code);
    at -= c.bytes;
  }
  return false;
}

bool cased_behind(std::string_view text, size_t at) {
  for (int i = 0; at < text.size() && i < kMaxMarks; ++i) {
    Char c = read_at(text, at);
    if (!within_words(c.code)) return any_cased(c.code);
    at += c.bytes;
  }
  return false;
}

void append_case(std::string& out, char32_t code, const std::vector<CaseRun>& runs,
                 const std::vector<CaseString>& strings) {
  auto several = std::ranges::lower_bound(strings, code, {}, &CaseString::code);
  if (several != strings.end() && several->code == code) {
    out += several->becomes;
    return;
  }
  auto run = std::ranges::upper_bound(runs, code, {}, &CaseRun::first);
  if (run != runs.begin() && code <= (--run)->last &&
      (code - run->first) % static_cast<char32_t>(run->step) == 0) {
    code = static_cast<char32_t>(static_cast<int64_t>(code) + run->distance);
  }
  unicode::append(out, code);
}

std::string change_case(std::string_view text, const std::vector<CaseRun>& runs,
                        const std::vector<CaseString>& strings) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    Char c = read_at(text, at);
    append_case(out, c.code, runs, strings);
    at += c.bytes;
  }
  return out;
}

}  // namespace

Char read_wide_at(std::string_view text, size_t at) {
  uint8_t lead = byte_at(text, at);
  auto next = [&](size_t i) { return static_cast<char32_t>(byte_at(text, at + i) & 0x3F); };
  if (lead >= 0xC2 && lead < 0xE0 && continues(text, at + 1)) {
    return {(lead & 0x1Fu) << 6 | next(1), 2};
  }
  if (lead >= 0xE0 && lead < 0xF0 && continues(text, at + 1) && continues(text, at + 2)) {
    return {(lead & 0xFu) << 12 | next(1) << 6 | next(2), 3};
  }
  if (lead >= 0xF0 && lead < 0xF5 && continues(text, at + 1) && continues(text, at + 2) &&
      continues(text, at + 3)) {
    return {(lead & 7u) << 18 | next(1) << 12 | next(2) << 6 | next(3), 4};
  }
  return {kReplacement, 1};
}

Char read_before(std::string_view text, size_t at) {
  size_t begin = at - 1;
  while (begin > 0 && at - begin < 4 && continues(text, begin)) --begin;
  Char c = read_at(text, begin);
  return begin + c.bytes == at ? c : Char{kReplacement, 1};
}

size_t byte_of_char(std::string_view text, size_t n) {
  size_t at = 0;
  for (; n > 0 && at < text.size(); --n) at += read_at(text, at).bytes;
  return at;
}

bool is_wide_space(char32_t code) {
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_wide_word(char32_t code) {
  auto range = std::ranges::lower_bound(kWordRanges, code, {}, &WordRange::last);
  return range != kWordRanges.end() && range->first <= code;
}

size_t skip_space(std::string_view text, size_t at) {
  while (at < text.size()) {
    Char c = read_at(text, at);
    if (!is_space(c.code)) break;
    at += c.bytes;
  }
  return at;
}

std::string_view strip_left(std::string_view text) { return text.substr(skip_space(text, 0)); }

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    Char c = read_before(text, text.size());
    if (!is_space(c.code)) break;
    text.remove_suffix(c.bytes);
  }
  return text;
}

std::string_view strip(std::string_view text) { return strip_right(strip_left(text)); }

std::string to_upper(std::string_view text) { return change_case(text, kUpperRuns, kUpperStrings); }

std::string to_lower(std::string_view text) {
  constexpr std::string_view kSigma = "\xCE\xA3";  // at the end of a word it has another form
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t sigma = std::min(text.find(kSigma, at), text.size());
    out += change_case(text.substr(at, sigma - at), kLowerRuns, kLowerStrings);
    if (sigma == text.size()) break;
    at = sigma + kSigma.size();
    bool last = cased_before(text, sigma) && !cased_behind(text, at);
    unicode::append(out, last ? 0x3C2 : 0x3C3);
  }
  return out;
}

std::string upper_first(std::string_view text) {
  if (text.empty()) return {};
  size_t first = read_at(text, 0).bytes;
  return to_upper(text.substr(0, first)) + std::string(text.substr(first));
}

std::string lower_first(std::string_view text) {
  if (text.empty()) return {};
  size_t first = read_at(text, 0).bytes;
  return to_lower(text.substr(0, first)) + std::string(text.substr(first));
}

void replace_in(std::string& text, std::string_view what, std::string_view by) {
  if (text.find(what) != kNone) text = replace_all(text, what, by);
}

std::string escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t done = 0;
  for (size_t at; (at = find_char<'&', '<', '>'>(text, done)) != kNone; done = at + 1) {
    out.append(text.substr(done, at - done));
    out += text[at] == '&' ? "&amp;" : text[at] == '<' ? "&lt;" : "&gt;";
  }
  return out.append(text.substr(done));
}

}  // namespace neox::wiki
