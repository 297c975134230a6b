// The classes of ASCII by the halves of a byte, for instructions that look up 16 bytes at a time.
#pragma once
#include "tokenizer/bpe_scan.h"

namespace neox {

// Kinds of bytes, by the pairs of half bytes that have them: what the tables of the high and of the
// low half have in common. Letters take two kinds, since rows 5 and 7 of ASCII end at 'z'.
enum : char {
  kLetterTo15 = 1,
  kLetterTo10 = 2,
  kNumber = 4,
  kControl = 8,  // '\t' to '\r'
  kBlank = 16,
  kQuote = 32
};

inline constexpr char kByLow[16] = {kLetterTo10 | kNumber | kBlank,
                                    kLetterTo15 | kLetterTo10 | kNumber,
                                    kLetterTo15 | kLetterTo10 | kNumber,
                                    kLetterTo15 | kLetterTo10 | kNumber,
                                    kLetterTo15 | kLetterTo10 | kNumber,
                                    kLetterTo15 | kLetterTo10 | kNumber,
                                    kLetterTo15 | kLetterTo10 | kNumber,
                                    kLetterTo15 | kLetterTo10 | kNumber | kQuote,
                                    kLetterTo15 | kLetterTo10 | kNumber,
                                    kLetterTo15 | kLetterTo10 | kNumber | kControl,
                                    kLetterTo15 | kLetterTo10 | kControl,
                                    kLetterTo15 | kControl,
                                    kLetterTo15 | kControl,
                                    kLetterTo15 | kControl,
                                    kLetterTo15,
                                    kLetterTo15};
inline constexpr char kByHigh[16] = {kControl,    0,           kBlank | kQuote,
                                     kNumber,     kLetterTo15, kLetterTo10,
                                     kLetterTo15, kLetterTo10, 0,
                                     0,           0,           0,
                                     0,           0,           0};

// of(kinds): a bit for each of 64 bytes that is of one of the kinds. high: those that are not
// ASCII.
template <class Of>
ByteClasses classes_of(const Of& of, uint64_t high) {
  ByteClasses found;
  found.letter = of(kLetterTo15 | kLetterTo10);
  found.number = of(kNumber);
  found.space = of(kControl | kBlank);
  found.blank = of(kBlank);
  found.quote = of(kQuote);
  found.high = high;
  return found;
}

}  // namespace neox
