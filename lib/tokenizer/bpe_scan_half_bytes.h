// The classes of ASCII by the halves of a byte, for instructions that look up 16 bytes at a time.
#pragma once

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

}  // namespace neox
