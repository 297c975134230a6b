// Tables of characters and HTML entities, as Python knows them; written by
// tests/oracle/wiki_tables.py.
#pragma once
#include <string_view>
#include <vector>

namespace neox::wiki {

struct WordRange {
  char32_t first, last;
};

// Every `step`-th character from first to last becomes the one at that distance.
struct CaseRun {
  char32_t first, last;
  int step, distance;
};

struct CaseString {
  char32_t code;
  std::string_view becomes;
};

struct Entity {
  std::string_view name;
  char32_t code;
};

// Zeros of decimal digits, behind each of which stand those for 1 to 9.
extern const std::vector<char32_t> kDigitZeros;
// Each sorted by its first member.
extern const std::vector<WordRange> kWordRanges;
extern const std::vector<CaseRun> kUpperRuns, kLowerRuns;
extern const std::vector<CaseString> kUpperStrings, kLowerStrings;
extern const std::vector<Entity> kEntities;

}  // namespace neox::wiki
