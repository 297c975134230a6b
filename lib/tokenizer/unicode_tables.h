// Unicode properties as the Python library `tokenizers` knows them: sorted, without overlaps.
// tests/oracle/unicode_tables.py reads them off that library and writes unicode_tables.cc.
#pragma once
#include <cstdint>
#include <span>

namespace neox::unicode {

struct CodeRange {
  char32_t first, last;
};

struct CombiningRange {
  char32_t first, last;
  uint8_t combining_class;
};

// One step of a canonical decomposition; second is 0 where a single code point replaces another.
struct Decomposition {
  char32_t code, first, second;
  bool composes;  // NFC joins first and second to code again
};

// \p{L}, \p{N}, \s of regular expressions, such as GPT-2's; \p{Lu} with \p{Lt}, \p{Ll}, \p{M}.
extern const std::span<const CodeRange> letters, numbers, spaces, capitals, smalls, marks;
extern const std::span<const CodeRange> newer_numbers;    // that Digits knows besides
extern const std::span<const CodeRange> word_characters;  // \w beside an added token
extern const std::span<const CombiningRange> combining;
extern const std::span<const Decomposition>
    decompositions;  // Hangul syllables are left to formulas

}  // namespace neox::unicode
