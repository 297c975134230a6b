// Compiled for AVX-512 with BW, VBMI and VBMI2.
#include <immintrin.h>

#include "tokenizer/bpe_scan_blocks.h"

namespace neox {
namespace {

enum : uint8_t { kLetter = 1, kNumber = 2, kSpace = 4, kBlank = 8, kQuote = 16 };

struct Kinds {
  alignas(64) uint8_t of[128] = {};
};

constexpr Kinds ascii_kinds() {
  Kinds kinds;
  for (int c = 'a'; c <= 'z'; ++c) kinds.of[c] = kinds.of[c - 'a' + 'A'] = kLetter;
  for (int c = '0'; c <= '9'; ++c) kinds.of[c] = kNumber;
  for (int c = '\t'; c <= '\r'; ++c) kinds.of[c] = kSpace;
  kinds.of[static_cast<int>(' ')] = kSpace | kBlank;
  kinds.of[static_cast<int>('\'')] = kQuote;
  return kinds;
}

constexpr Kinds kKinds = ascii_kinds();

struct Indexes {
  alignas(64) uint8_t of[64];
};

constexpr Indexes indexes() {
  Indexes made{};
  for (int i = 0; i < 64; ++i) made.of[i] = static_cast<uint8_t>(i);
  return made;
}

constexpr Indexes kIndexes = indexes();

struct Avx512 {
  static ByteClasses classify(const char* bytes) {
    __m512i text = _mm512_loadu_si512(bytes);
    __mmask64 high = _mm512_movepi8_mask(text);
    __m512i kinds = _mm512_maskz_permutex2var_epi8(~high, _mm512_load_si512(kKinds.of), text,
                                                   _mm512_load_si512(kKinds.of + 64));
    auto bits = [&](uint8_t kind) {
      return _mm512_test_epi8_mask(kinds, _mm512_set1_epi8(static_cast<char>(kind)));
    };
    ByteClasses found;
    found.letter = bits(kLetter);
    found.number = bits(kNumber);
    found.space = bits(kSpace);
    found.blank = bits(kBlank);
    found.quote = bits(kQuote);
    found.high = high;
    return found;
  }
  static uint32_t* append(uint64_t bits, uint32_t base, uint32_t* out) {
    __m512i places = _mm512_maskz_compress_epi8(bits, _mm512_load_si512(kIndexes.of));
    __m512i from = _mm512_set1_epi32(static_cast<int>(base));
    auto store = [&](int part, __m128i four) {
      _mm512_storeu_si512(out + 16 * part, _mm512_add_epi32(_mm512_cvtepu8_epi32(four), from));
    };
    auto count = _mm_popcnt_u64(bits);
    store(0, _mm512_castsi512_si128(places));
    store(1, _mm512_extracti32x4_epi32(places, 1));
    if (count > 32) {
      store(2, _mm512_extracti32x4_epi32(places, 2));
      store(3, _mm512_extracti32x4_epi32(places, 3));
    }
    return out + count;
  }
};

}  // namespace

const ScanFunctions& avx512_scan() { return kScanFunctions<Avx512>; }

}  // namespace neox
