// Compiled for AVX2 and BMI.
#include <immintrin.h>

#include "tokenizer/bpe_scan_blocks.h"
#include "tokenizer/bpe_scan_half_bytes.h"

namespace neox {
namespace {

inline __m256i has(__m256i kinds, int bits) {
  __m256i chosen = _mm256_and_si256(kinds, _mm256_set1_epi8(static_cast<char>(bits)));
  return _mm256_cmpeq_epi8(chosen, _mm256_setzero_si256());  // the reverse
}

inline uint64_t both(__m256i low, __m256i high) {
  auto bits = [](__m256i v) { return static_cast<uint32_t>(_mm256_movemask_epi8(v)); };
  return bits(low) | static_cast<uint64_t>(bits(high)) << 32;
}

inline __m256i kinds_of(__m256i bytes) {
  auto table = [](const char* t) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(t)));
  };
  __m256i high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), _mm256_set1_epi8(15));
  __m256i low = _mm256_and_si256(bytes, _mm256_set1_epi8(15));
  return _mm256_and_si256(_mm256_shuffle_epi8(table(kByLow), low),
                          _mm256_shuffle_epi8(table(kByHigh), high));
}

struct Avx2 {
  static ByteClasses classify(const char* bytes) {
    __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
    __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + 32));
    __m256i in_a = kinds_of(a), in_b = kinds_of(b);
    auto bits = [&](int kinds) { return ~both(has(in_a, kinds), has(in_b, kinds)); };
    return classes_of(bits, both(a, b));
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
