// Compiled for AVX2 and BMI.
#include <immintrin.h>

#include "tokenizer/bpe_scan_blocks.h"

namespace neox {
namespace {

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

struct Half {
  __m256i letter, number, space, blank, quote, bytes;
};

inline __m256i has(__m256i kinds, int bits) {
  __m256i chosen = _mm256_and_si256(kinds, _mm256_set1_epi8(static_cast<char>(bits)));
  return _mm256_cmpeq_epi8(chosen, _mm256_setzero_si256());  // the reverse
}

inline uint64_t both(__m256i low, __m256i high) {
  auto bits = [](__m256i v) { return static_cast<uint32_t>(_mm256_movemask_epi8(v)); };
  return bits(low) | static_cast<uint64_t>(bits(high)) << 32;
}

inline __m256i kinds_of(__m256i bytes) {
  const __m256i by_low = _mm256_broadcastsi128_si256(_mm_setr_epi8(
      kLetterTo10 | kNumber | kBlank, kLetterTo15 | kLetterTo10 | kNumber,
      kLetterTo15 | kLetterTo10 | kNumber, kLetterTo15 | kLetterTo10 | kNumber,
      kLetterTo15 | kLetterTo10 | kNumber, kLetterTo15 | kLetterTo10 | kNumber,
      kLetterTo15 | kLetterTo10 | kNumber, kLetterTo15 | kLetterTo10 | kNumber | kQuote,
      kLetterTo15 | kLetterTo10 | kNumber, kLetterTo15 | kLetterTo10 | kNumber | kControl,
      kLetterTo15 | kLetterTo10 | kControl, kLetterTo15 | kControl, kLetterTo15 | kControl,
      kLetterTo15 | kControl, kLetterTo15, kLetterTo15));
  const __m256i by_high = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(kControl, 0, kBlank | kQuote, kNumber, kLetterTo15, kLetterTo10, kLetterTo15,
                    kLetterTo10, 0, 0, 0, 0, 0, 0, 0, 0));
  __m256i high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), _mm256_set1_epi8(15));
  __m256i low = _mm256_and_si256(bytes, _mm256_set1_epi8(15));
  return _mm256_and_si256(_mm256_shuffle_epi8(by_low, low), _mm256_shuffle_epi8(by_high, high));
}

struct Avx2 {
  static ByteClasses classify(const char* bytes) {
    __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
    __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + 32));
    __m256i in_a = kinds_of(a), in_b = kinds_of(b);
    auto bits = [&](int kinds) { return ~both(has(in_a, kinds), has(in_b, kinds)); };
    ByteClasses found;
    found.letter = bits(kLetterTo15 | kLetterTo10);
    found.number = bits(kNumber);
    found.space = bits(kControl | kBlank);
    found.blank = bits(kBlank);
    found.quote = bits(kQuote);
    found.high = both(a, b);
    return found;
  }
  // Four at a time, so that the branch is taken as often in most blocks.
  static uint32_t* append(uint64_t bits, uint32_t base, uint32_t* out) {
    uint32_t* end = out + _mm_popcnt_u64(bits);
    for (; out < end; out += 4)
      for (int i = 0; i < 4; ++i) {
        out[i] = base + static_cast<uint32_t>(_tzcnt_u64(bits));
        bits = _blsr_u64(bits);
      }
    return end;
  }
};

}  // namespace

const ScanFunctions& avx2_scan() { return kScanFunctions<Avx2>; }

}  // namespace neox
