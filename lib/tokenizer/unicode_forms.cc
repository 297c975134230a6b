#include <algorithm>
#include <unordered_map>
#include <vector>

#include "base/utf8.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unicode_tables.h"

namespace neox::unicode {
namespace {

// Hangul syllables are composed by arithmetic (Unicode 15, section 3.12).
constexpr char32_t kSyllable = 0xAC00, kLead = 0x1100, kVowel = 0x1161, kTail = 0x11A7;
constexpr char32_t kLeads = 19, kVowels = 21, kTails = 28, kSyllables = kLeads * kVowels * kTails;

constexpr size_t kScanBlock = 128;
constexpr uint8_t kFirstLead = 0xC2, kFirstUnstableLead = 0xCC;  // of U+0080, of U+0300

bool is_composed(Form form) { return form == Form::kNfc || form == Form::kNfkc; }
bool is_compatible(Form form) { return form == Form::kNfkc || form == Form::kNfkd; }

// Whether all bytes of a block are below `limit`. Compilers make vector instructions of it.
bool is_below(const char* block, uint8_t limit) {
  uint8_t greatest = 0;
  for (size_t i = 0; i < kScanBlock; ++i)
    greatest = std::max(greatest, static_cast<uint8_t>(block[i]));
  return greatest < limit;
}

// The first block from `at` on that has a byte of `limit` or above, or what is left behind blocks.
size_t skip_blocks(std::string_view text, size_t at, uint8_t limit) {
  while (at + kScanBlock <= text.size() && is_below(text.data() + at, limit)) at += kScanBlock;
  return at;
}

// What the forms need beside the properties, keyed for look-up.
struct Tables {
  std::unordered_map<char32_t, const Decomposition*> parts;
  std::unordered_map<char32_t, std::string_view> compatible;  // NFKD
  std::unordered_map<uint64_t, char32_t> whole;
  std::unordered_map<char32_t, uint8_t> combining_class;

  static const Tables& get() {
    static const Tables tables;
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
  Tables() {
    for (const Compatibility& c : compatibilities) compatible[c.code] = c.text;
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

void decompose(const Tables& tables, char32_t code, std::vector<Mark>& out) {
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
char32_t compose(const Tables& tables, char32_t a, char32_t b) {
  if (a >= kLead && a < kLead + kLeads && b >= kVowel && b < kVowel + kVowels)
    return kSyllable + ((a - kLead) * kVowels + (b - kVowel)) * kTails;
  bool is_open = a >= kSyllable && a < kSyllable + kSyllables && (a - kSyllable) % kTails == 0;
  if (is_open && b > kTail && b < kTail + kTails) return a + (b - kTail);
  auto found = tables.whole.find(Tables::pair(a, b));
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

void decompose(const Tables& tables, std::string_view text, Form form, std::vector<Mark>& out) {
  for (size_t at = 0; at < text.size();) {
    CodePoint next = read(text, at);
    at += next.bytes;
    auto found = is_compatible(form) ? tables.compatible.find(next.value) : tables.compatible.end();
    if (found == tables.compatible.end())
      decompose(tables, next.value, out);
    else
      decompose(tables, found->second, Form::kNfd, out);
  }
}

// Unicode 15, section 3.11, D117.
void compose(const Tables& tables, std::vector<Mark>& codes) {
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
  codes.resize(kept);
}

// Appends the form of a text that starts at a starter and ends before one.
void append_segment(std::string_view text, Form form, std::string& out) {
  const Tables& tables = Tables::get();
  std::vector<Mark> codes;
  decompose(tables, text, form, codes);
  sort_marks(codes);
  if (is_composed(form)) compose(tables, codes);
  for (const Mark& mark : codes) append(out, mark.code);
}

// Whether the form of a text with this code point may be another text.
bool is_unstable(const Properties& properties, char32_t code, Form form) {
  if (!is_composed(form)) return code >= 0x80;
  return properties.unstable(code) || (is_compatible(form) && properties.compatible(code));
}

bool may_lead(const Properties& properties, uint8_t lead, Form form) {
  return form == Form::kNfc ? properties.lead_unstable(lead) : lead >= kFirstLead;
}

// The next code point from `at` on that the form may change or attach, or the end. `at` may lie
// inside of a code point, as blocks do.
size_t next_unstable(std::string_view text, size_t at, Form form) {
  const Properties& properties = Properties::get();
  while (at < text.size()) {
    at = skip_blocks(text, at, form == Form::kNfc ? kFirstUnstableLead : kFirstLead);
    for (size_t end = std::min(at + kScanBlock, text.size()); at < end;) {
      auto lead = static_cast<uint8_t>(text[at]);
      if (!may_lead(properties, lead, form)) {
        at += lead < 0xE0 ? 1 : lead < 0xF0 ? 3 : 4;  // from tails one by one
        continue;
      }
      CodePoint next = read(text, at);
      if (is_unstable(properties, next.value, form)) return at;
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

std::string_view in_form(std::string_view text, Form form, std::string& storage) {
  const Properties& properties = Properties::get();
  size_t copied = 0, at = next_unstable(text, 0, form);
  if (at == text.size()) return text;
  storage.clear();
  while (at < text.size()) {
    size_t starter = at > copied ? previous(text, at) : at;
    storage.append(text, copied, starter - copied);
    for (CodePoint next; at < text.size(); at += next.bytes) {
      next = read(text, at);
      if (!is_unstable(properties, next.value, form)) break;
    }
    append_segment(text.substr(starter, at - starter), form, storage);
    copied = at;
    at = next_unstable(text, at, form);
  }
  storage.append(text, copied);
  return storage;
}

}  // namespace neox::unicode
