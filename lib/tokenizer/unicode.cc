#include "tokenizer/unicode.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "base/utf8.h"
#include "tokenizer/unicode_tables.h"

namespace neox::unicode {
namespace {

constexpr char32_t kCodePoints = 0x110000;
constexpr char32_t kReplacement = 0xFFFD;
constexpr uint8_t kFirstUnstableLead = 0xCC;  // of U+0300

// Hangul syllables are composed by arithmetic (Unicode 15, section 3.12).
constexpr char32_t kSyllable = 0xAC00, kLead = 0x1100, kVowel = 0x1161, kTail = 0x11A7;
constexpr char32_t kLeads = 19, kVowels = 21, kTails = 28, kSyllables = kLeads * kVowels * kTails;

constexpr size_t kBlock = 128;

// Whether all bytes of a block are below `limit`. Compilers make vector instructions of it.
bool is_below(const char* block, uint8_t limit) {
  uint8_t greatest = 0;
  for (size_t i = 0; i < kBlock; ++i) greatest = std::max(greatest, static_cast<uint8_t>(block[i]));
  return greatest < limit;
}

// The first block from `at` on that has a byte of `limit` or above, or what is left behind blocks.
size_t skip_blocks(std::string_view text, size_t at, uint8_t limit) {
  while (at + kBlock <= text.size() && is_below(text.data() + at, limit)) at += kBlock;
  return at;
}

// Eight bytes that are not all ASCII have one of these bits.
constexpr uint64_t kHighBits = 0x8080808080808080u;

// The first position from `at` on where text is not ASCII.
size_t skip_ascii(std::string_view text, size_t at) {
  for (; at + kBlock <= text.size(); at += kBlock) {
    uint64_t words[kBlock / 8], all = 0;
    std::memcpy(words, text.data() + at, kBlock);
    for (uint64_t word : words) all |= word;
    if (all & kHighBits) break;
  }
  for (uint64_t word; at + 8 <= text.size(); at += 8) {
    std::memcpy(&word, text.data() + at, 8);
    if (word & kHighBits) break;
  }
  while (at < text.size() && static_cast<uint8_t>(text[at]) < 0x80) ++at;
  return at;
}

// The bytes of what has two or three and is valid, where that is quick to see; else 0.
size_t common_letter(std::string_view text, size_t at) {
  auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  if (text.size() - at < 3 || byte(0) < 0xC2 || byte(0) >= 0xF0) return 0;
  size_t bytes = byte(0) < 0xE0 ? 2 : 3;
  bool plain = byte(0) != 0xE0 && byte(0) != 0xED && (byte(1) & 0xC0) == 0x80 &&
               (byte(bytes - 1) & 0xC0) == 0x80;
  return plain ? bytes : 0;
}

size_t first_invalid(std::string_view text) {
  for (size_t at = skip_ascii(text, 0); at < text.size(); at = skip_ascii(text, at)) {
    do {
      Utf8Sequence next{common_letter(text, at), true};
      if (next.bytes == 0) next = utf8_sequence(text, at);
      if (!next.valid) return at;
      at += next.bytes;
    } while (at < text.size() && static_cast<uint8_t>(text[at]) >= 0x80);
  }
  return text.size();
}

// What NFC needs beside the properties, keyed for look-up.
struct Canonical {
  std::unordered_map<char32_t, const Decomposition*> parts;
  std::unordered_map<uint64_t, char32_t> whole;
  std::unordered_map<char32_t, uint8_t> combining_class;

  static const Canonical& get() {
    static const Canonical tables;
    return tables;
  }
  static uint64_t pair(char32_t first, char32_t second) {
    return static_cast<uint64_t>(first) << 32 | second;
  }
  uint8_t order(char32_t code) const {
    auto found = combining_class.find(code);
    return found == combining_class.end() ? 0 : found->second;
  }

 private:
  Canonical() {
    for (const Decomposition& d : decompositions) {
      parts[d.code] = &d;
      if (d.composes) whole[pair(d.first, d.second)] = d.code;
    }
    for (const CombiningRange& range : combining)
      for (char32_t code = range.first; code <= range.last; ++code)
        combining_class[code] = range.combining_class;
  }
};

struct Mark {
  char32_t code;
  uint8_t order;
};

void decompose(const Canonical& tables, char32_t code, std::vector<Mark>& out) {
  if (code >= kSyllable && code < kSyllable + kSyllables) {
    char32_t index = code - kSyllable, tail = index % kTails;
    out.push_back({kLead + index / (kVowels * kTails), 0});
    out.push_back({kVowel + index / kTails % kVowels, 0});
    if (tail) out.push_back({kTail + tail, 0});
    return;
  }
  auto found = tables.parts.find(code);
  if (found == tables.parts.end()) return out.push_back({code, tables.order(code)});
  decompose(tables, found->second->first, out);
  if (found->second->second) decompose(tables, found->second->second, out);
}

// Their composition, or 0.
char32_t compose(const Canonical& tables, char32_t a, char32_t b) {
  if (a >= kLead && a < kLead + kLeads && b >= kVowel && b < kVowel + kVowels)
    return kSyllable + ((a - kLead) * kVowels + (b - kVowel)) * kTails;
  bool is_open = a >= kSyllable && a < kSyllable + kSyllables && (a - kSyllable) % kTails == 0;
  if (is_open && b > kTail && b < kTail + kTails) return a + (b - kTail);
  auto found = tables.whole.find(Canonical::pair(a, b));
  return found == tables.whole.end() ? 0 : found->second;
}

void sort_marks(std::vector<Mark>& codes) {
  for (auto from = codes.begin(); from != codes.end();) {
    from = std::find_if(from, codes.end(), [](const Mark& m) { return m.order != 0; });
    auto to = std::find_if(from, codes.end(), [](const Mark& m) { return m.order == 0; });
    std::stable_sort(from, to, [](const Mark& a, const Mark& b) { return a.order < b.order; });
    from = to;
  }
}

// Appends the NFC of a text that starts at a starter and ends before one (Unicode 15, section
// 3.11, D117).
void compose_segment(std::string_view text, std::string& out) {
  const Canonical& tables = Canonical::get();
  std::vector<Mark> codes;
  for (size_t at = 0; at < text.size();) {
    CodePoint next = read(text, at);
    decompose(tables, next.value, codes);
    at += next.bytes;
  }
  sort_marks(codes);
  size_t kept = 0, starter = codes.size();
  for (size_t i = 0; i < codes.size(); ++i) {
    bool is_adjacent = kept == starter + 1;
    bool is_blocked = !is_adjacent && starter < kept && codes[kept - 1].order >= codes[i].order;
    char32_t whole =
        starter < kept && !is_blocked ? compose(tables, codes[starter].code, codes[i].code) : 0;
    if (whole) {
      codes[starter].code = whole;
      continue;
    }
    if (codes[i].order == 0) starter = kept;
    codes[kept++] = codes[i];
  }
  for (size_t i = 0; i < kept; ++i) append(out, codes[i].code);
}

}  // namespace

void append(std::string& text, char32_t code) {
  auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  auto tail = [&](int shift) { put(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) return put(0xC0 | code >> 6), tail(0);
  if (code < 0x10000) return put(0xE0 | code >> 12), tail(6), tail(0);
  put(0xF0 | code >> 18), tail(12), tail(6), tail(0);
}

std::string_view repair(std::string_view text, std::string& storage) {
  size_t at = first_invalid(text);
  if (at == text.size()) return text;
  storage.assign(text.substr(0, at));
  while (at < text.size()) {
    Utf8Sequence next = utf8_sequence(text, at);
    if (next.valid)
      storage.append(text, at, next.bytes);
    else
      append(storage, kReplacement);
    at += next.bytes;
  }
  return storage;
}

const Properties& Properties::get() {
  static const Properties properties;
  return properties;
}

Properties::Properties() : bits_(kCodePoints, 0) {
  auto mark = [&](const auto& ranges, int bits, int not_bits = 0) {
    for (const auto& range : ranges)
      for (char32_t code = range.first; code <= range.last; ++code)
        bits_[code] = static_cast<char>((bits_[code] | bits) & ~not_bits);
  };
  mark(letters, static_cast<int>(Class::kLetter) | kUpper | kLower);
  mark(marks, kUpper | kLower);
  mark(capitals, 0, kLower);
  mark(smalls, 0, kUpper);
  mark(numbers, static_cast<int>(Class::kNumber));
  mark(spaces, static_cast<int>(Class::kSpace));
  mark(newer_numbers, kNewerNumber);
  mark(word_characters, kWord);
  mark(combining, kUnstable);
  mark(std::vector<CodeRange>{{kVowel, kVowel + kVowels - 1}, {kTail + 1, kTail + kTails - 1}},
       kUnstable);
  for (const Decomposition& d : decompositions) {
    if (d.composes) bits_[d.second] |= kUnstable;
    if (!d.composes) bits_[d.code] |= kUnstable;
  }
  std::string text;
  for (char32_t code = 0x80; code < kCodePoints; ++code) {
    if (!unstable(code)) continue;
    text.clear();
    append(text, code);
    lead_unstable_[static_cast<uint8_t>(text[0])] = true;
  }
}

namespace {

// The next code point from `at` on that NFC may change or attach, or the end. `at` may lie inside
// of a code point, as blocks do.
size_t next_unstable(std::string_view text, size_t at) {
  const Properties& properties = Properties::get();
  while (at < text.size()) {
    at = skip_blocks(text, at, kFirstUnstableLead);
    for (size_t end = std::min(at + kBlock, text.size()); at < end;) {
      auto lead = static_cast<uint8_t>(text[at]);
      if (!properties.lead_unstable(lead)) {
        at += lead < 0xE0 ? 1 : lead < 0xF0 ? 3 : 4;  // from tails one by one
        continue;
      }
      CodePoint next = read(text, at);
      if (properties.unstable(next.value)) return at;
      at += next.bytes;
    }
  }
  return text.size();
}

size_t previous(std::string_view text, size_t at) {
  do --at;
  while (continues_character(text[at]));
  return at;
}

}  // namespace

std::string_view nfc(std::string_view text, std::string& storage) {
  const Properties& properties = Properties::get();
  size_t copied = 0, at = next_unstable(text, 0);
  if (at == text.size()) return text;
  storage.clear();
  while (at < text.size()) {
    size_t starter = at > copied ? previous(text, at) : at;
    storage.append(text, copied, starter - copied);
    for (CodePoint next; at < text.size(); at += next.bytes) {
      next = read(text, at);
      if (!properties.unstable(next.value)) break;
    }
    compose_segment(text.substr(starter, at - starter), storage);
    copied = at;
    at = next_unstable(text, at);
  }
  storage.append(text, copied);
  return storage;
}

}  // namespace neox::unicode
