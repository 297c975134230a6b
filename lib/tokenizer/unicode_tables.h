// Unicode properties as the Python library `tokenizers` knows them: sorted, without overlaps.
// tests/oracle/unicode_tables.py reads them off that library and writes unicode_tables.cc.
#pragma once
#include <cstdint>
#include <span>

namespace neox::unicode {

struct CodeRange {
  char32_t first, last;
};

struct CategoryRange {
  char32_t first, last;
  char category[3];  // "Lu"
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

// The NFKD of a code point, in UTF-8, where it is not its NFD.
struct Compatibility {
  char32_t code;
  const char* text;
};

// What Lowercase makes of a code point that is not small, in UTF-8.
struct LowerCase {
  char32_t code;
  const char* text;
};

// Scripts have numbers; what goes with any of them has none.
struct ScriptRange {
  char32_t first, last;
  uint8_t number;
};

// Of regular expressions, such as GPT-2's: \p{L}, \p{M}, \p{N}, \p{P}, \p{S} and what is in them;
// \s, \p{Han}, \w.
extern const std::span<const CategoryRange> categories;
extern const std::span<const CodeRange> spaces, han, expression_word;
extern const std::span<const CodeRange> newer_numbers;    // that Digits knows besides
extern const std::span<const CodeRange> word_characters;  // \w beside an added token
extern const std::span<const CodeRange> punctuation;      // that Punctuation cuts out
extern const std::span<const CodeRange> hangul;           // vowels and tails of syllables
extern const std::span<const CombiningRange> combining;
extern const std::span<const Decomposition>
    decompositions;  // Hangul syllables are left to formulas
extern const std::span<const Compatibility> compatibilities;
extern const std::span<const LowerCase> lower_cases;
extern const std::span<const CodeRange> accents;     // that StripAccents leaves out
extern const std::span<const CodeRange> nonspacing;  // marks that BertNormalizer leaves out
extern const std::span<const CodeRange> controls;    // that its clean_text leaves out
// Which are one grapheme with what is before or behind them.
extern const std::span<const CodeRange> extending, prepended;
extern const std::span<const ScriptRange> scripts;

}  // namespace neox::unicode
