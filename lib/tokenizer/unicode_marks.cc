// What normalizers and pre-tokenizers other than GPT-2's ask of code points.
#include <algorithm>
#include <span>

#include "tokenizer/unicode.h"
#include "tokenizer/unicode_tables.h"

namespace neox::unicode {
namespace {

// The range that holds the code point, or null.
template <class Range>
const Range* range_of(std::span<const Range> ranges, char32_t code) {
  auto range = std::ranges::lower_bound(ranges, code, {}, &Range::last);
  return range != ranges.end() && range->first <= code ? &*range : nullptr;
}

// UAX #29's Control, CR and LF, which nothing joins.
bool stands_alone(char32_t code) {
  constexpr char32_t kLineSeparator = 0x2028, kParagraphSeparator = 0x2029, kReplacement = 0xFFFD;
  bool line = code == '\t' || code == '\n' || code == '\r';
  if (line || code == kLineSeparator || code == kParagraphSeparator) return true;
  return code != kReplacement && is_control(code) && !range_of(extending, code) &&
         !range_of(prepended, code);
}

}  // namespace

void append_lowercase(std::string& text, char32_t code) {
  if (code < 0x80) {
    bool capital = 'A' <= code && code <= 'Z';
    return text.push_back(static_cast<char>(capital ? code - 'A' + 'a' : code));
  }
  auto found = std::ranges::lower_bound(lower_cases, code, {}, &LowerCase::code);
  if (found != lower_cases.end() && found->code == code)
    text += found->text;
  else
    append(text, code);
}

bool is_accent(char32_t code) { return code >= 0x80 && range_of(accents, code); }

bool is_nonspacing(char32_t code) { return code >= 0x80 && range_of(nonspacing, code); }

bool is_control(char32_t code) { return range_of(controls, code); }

bool is_printable(char32_t code) {
  return code < 0x7F ? code >= ' ' : range_of(categories, code) != nullptr;
}

int script_of(char32_t code) {
  const ScriptRange* range = range_of(scripts, code);
  return range ? range->number : -1;
}

size_t grapheme_bytes(std::string_view text) {
  if (text.starts_with("\r\n")) return 2;
  auto [code, bytes] = read(text, 0);
  if (bytes == 1 && (text.size() == 1 || static_cast<uint8_t>(text[1]) < 0x80)) return 1;
  while (range_of(prepended, code) && bytes < text.size()) {
    CodePoint next = read(text, bytes);
    if (stands_alone(next.value)) return bytes;
    code = next.value, bytes += next.bytes;
  }
  if (stands_alone(code)) return bytes;
  while (bytes < text.size()) {
    CodePoint next = read(text, bytes);
    if (!range_of(extending, next.value)) break;
    bytes += next.bytes;
  }
  return bytes;
}

}  // namespace neox::unicode
