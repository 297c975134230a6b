// Packed weights (ops/packed_weights.h) in the vectors of AVX-512: 128 numbers, four vectors, and
// their 192 bytes.
#pragma once
#include <immintrin.h>

#include "ops/row_packing.h"

namespace neox {
namespace {

typedef __m512i Numbers[4];  // 128

// Codes of exponents; of those without one 255.
class Codes {
 public:
  explicit Codes(const uint8_t* code_of) {
    for (int high = 0; high < 16; ++high) {
      bool some = false;
      for (int low = 0; low < 16; ++low) some = some || code_of[16 * high + low] != 255;
      if (!some) continue;
      high_[count_] = _mm512_set1_epi8(static_cast<char>(high));
      table_[count_++] = _mm512_broadcast_i32x4(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(code_of + 16 * high)));
    }
  }
  __m512i of(__m512i exponents) const {
    const __m512i four_bits = _mm512_set1_epi8(15);
    __m512i low = _mm512_and_si512(exponents, four_bits),
            high = _mm512_and_si512(_mm512_srli_epi16(exponents, 4), four_bits),
            codes = _mm512_set1_epi8(-1);
    for (int i = 0; i < count_; ++i)
      codes =
          _mm512_mask_shuffle_epi8(codes, _mm512_cmpeq_epi8_mask(high, high_[i]), table_[i], low);
    return codes;
  }

 private:
  __m512i high_[16], table_[16];  // of upper halves that some exponents with codes have
  int count_ = 0;
};

// Half a unit: of 64 numbers a code each, and their signs and mantissas at `rest`.
inline __m512i pack_half(const __m512i* numbers, const Codes& codes, uint8_t* rest) {
  auto exponents = [](__m512i x) {
    return _mm512_and_si512(_mm512_srli_epi16(x, 7), _mm512_set1_epi16(0xff));
  };
  auto others = [](__m512i x) {
    return _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(x, 8), _mm512_set1_epi16(0x80)),
                           _mm512_and_si512(x, _mm512_set1_epi16(0x7f)));
  };
  _mm512_storeu_si512(rest, _mm512_packus_epi16(others(numbers[0]), others(numbers[1])));
  return codes.of(_mm512_packus_epi16(exponents(numbers[0]), exponents(numbers[1])));
}

// Four vectors, whose first number is number `first` of the tile. False: too many are rare.
inline bool pack_unit(const __m512i* numbers, const Codes& codes, uint32_t tile, int first,
                      uint8_t* to, RareOnes& rare) {
  const __m512i four_bits = _mm512_set1_epi8(15);
  __m512i low = pack_half(numbers, codes, to + 64), high = pack_half(numbers + 2, codes, to + 128);
  _mm512_storeu_si512(to, _mm512_or_si512(_mm512_and_si512(low, four_bits),
                                          _mm512_slli_epi16(_mm512_and_si512(high, four_bits), 4)));
  return rare.add(_mm512_movepi8_mask(low), tile, first, numbers) &&
         rare.add(_mm512_movepi8_mask(high), tile, first + 64, numbers + 2);
}

// A group row by row, of which 128 columns are a tile.
inline bool pack_rows(const PackedGroup& group) {
  Codes codes(group.code_of);
  RareOnes rare(group);
  const uint16_t* from = group.rows;
  auto tiles = static_cast<uint32_t>(kPackedRows * group.columns / kUnit);
  for (uint32_t tile = 0; tile < tiles; ++tile, from += kUnit) {
    Numbers numbers;
    std::memcpy(&numbers, from, sizeof numbers);
    if (!pack_unit(numbers, codes, tile, 0, group.codes + tile * kUnitBytes, rare)) return false;
  }
  rare.end();
  return true;
}

// How codes become numbers.
class Avx512Unpacking {
 public:
  explicit Avx512Unpacking(const PackedWeights& w)
      : high_(_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w.high)))),
        low_(_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w.low)))) {}
  [[gnu::always_inline]] void unit(const uint8_t* from, Numbers& to) const {
    const __m512i four_bits = _mm512_set1_epi8(15);
    __m512i codes = _mm512_loadu_si512(from);
    half(_mm512_and_si512(codes, four_bits), from + 64, to[0], to[1]);
    half(_mm512_and_si512(_mm512_srli_epi16(codes, 4), four_bits), from + 128, to[2], to[3]);
  }

 private:
  [[gnu::always_inline]] void half(__m512i codes, const uint8_t* rest, __m512i& a,
                                   __m512i& b) const {
    const __m512i mantissa = _mm512_set1_epi8(0x7f);
    __m512i others = _mm512_loadu_si512(rest), above = _mm512_shuffle_epi8(high_, codes),
            below = _mm512_shuffle_epi8(low_, codes);
    above = _mm512_ternarylogic_epi32(above, mantissa, others, 0xf2);  // above | ~mantissa & others
    below = _mm512_ternarylogic_epi32(below, mantissa, others, 0xf8);  // below | mantissa & others
    a = _mm512_unpacklo_epi8(below, above);
    b = _mm512_unpackhi_epi8(below, above);
  }

  __m512i high_, low_;
};

using Unpacking = Avx512Unpacking;

}  // namespace
}  // namespace neox
