// Packed weights (ops/packed_weights.h) in the vectors of AVX2: 128 numbers, eight vectors, and
// their 192 bytes.
#pragma once
#include <immintrin.h>

#include "ops/row_packing.h"

namespace neox {
namespace {

typedef __m256i Numbers[8];  // 128

// 128 numbers. False: too many are rare.
inline bool pack_unit(const uint16_t* numbers, const uint8_t* code_of, uint32_t tile, uint8_t* to,
                      RareOnes& rare) {
  for (int half = 0; half < 2; ++half) {
    uint64_t without = 0;
    for (int i = 0; i < 64; ++i) {
      uint16_t x = numbers[64 * half + place_of(i)];
      uint8_t code = code_of[x >> 7 & 255];
      if (code == 255) without |= uint64_t{1} << i;
      to[64 + 64 * half + i] = static_cast<uint8_t>((x >> 8 & 128) | (x & 127));
      to[i] = static_cast<uint8_t>(half ? to[i] | code << 4 : code & 15);
    }
    if (!rare.add(without, tile, 64 * half, numbers + 64 * half)) return false;
  }
  return true;
}

// A group row by row, of which 128 columns are a tile.
inline bool pack_rows(const PackedGroup& group) {
  RareOnes rare(group);
  auto tiles = static_cast<uint32_t>(kPackedRows * group.columns / kUnit);
  for (uint32_t tile = 0; tile < tiles; ++tile)
    if (!pack_unit(group.rows + tile * kUnit, group.code_of, tile, group.codes + tile * kUnitBytes,
                   rare))
      return false;
  rare.end();
  return true;
}

// How codes become numbers.
class Avx2Unpacking {
 public:
  explicit Avx2Unpacking(const PackedWeights& w) : high_(table(w.high)), low_(table(w.low)) {}
  [[gnu::always_inline]] void unit(const uint8_t* from, Numbers& to) const {
    const __m256i four_bits = _mm256_set1_epi8(15);
    for (int i = 0; i < 2; ++i) {
      __m256i codes = load(from + 32 * i);
      quarter(_mm256_and_si256(codes, four_bits), from + 64 + 32 * i, to[i], to[i + 2]);
      quarter(_mm256_and_si256(_mm256_srli_epi16(codes, 4), four_bits), from + 128 + 32 * i,
              to[i + 4], to[i + 6]);
    }
  }

 private:
  static __m256i table(const uint8_t* of) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(of)));
  }
  static __m256i load(const uint8_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  [[gnu::always_inline]] void quarter(__m256i codes, const uint8_t* rest, __m256i& a,
                                      __m256i& b) const {
    const __m256i mantissa = _mm256_set1_epi8(0x7f);
    __m256i others = load(rest);
    __m256i above = _mm256_or_si256(_mm256_shuffle_epi8(high_, codes),
                                    _mm256_andnot_si256(mantissa, others)),
            below = _mm256_or_si256(_mm256_shuffle_epi8(low_, codes),
                                    _mm256_and_si256(mantissa, others));
    a = _mm256_unpacklo_epi8(below, above);
    b = _mm256_unpackhi_epi8(below, above);
  }

  __m256i high_, low_;
};

using Unpacking = Avx2Unpacking;

}  // namespace
}  // namespace neox
