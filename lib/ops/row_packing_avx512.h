// Packed weights (ops/packed_weights.h) in the vectors of AVX-512: 128 numbers, four vectors, and
// their 192 bytes. Each file that is compiled for it has its own.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "ops/row_kernels.h"

namespace neox {
namespace {

constexpr int64_t kUnit = 128, kUnitBytes = 192;

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

// Where byte i of half a unit stands among its numbers: _mm512_packus_epi16() takes eight of each
// vector in turn.
constexpr uint16_t place_of(int i) {
  return static_cast<uint16_t>(i % 16 / 8 * 32 + i / 16 * 8 + i % 8);
}

// The weights of a group that have no code, in their order.
class RareOnes {
 public:
  explicit RareOnes(const PackedGroup& group) : next_(group.rare), end_(next_ + group.most_rare) {}
  // Those of half a unit, whose first number is number `first` of the tile. False: too many.
  bool add(uint64_t which, uint32_t tile, int first, const __m512i* numbers) {
    if (which == 0) return true;
    uint16_t values[64];
    std::memcpy(values, numbers, sizeof values);
    for (; which != 0; which &= which - 1) {
      if (next_ == end_) return false;
      uint16_t place = place_of(__builtin_ctzll(which));
      *next_++ = {tile, static_cast<uint16_t>(first + place), values[place]};
    }
    return true;
  }
  void end() { *next_ = {~uint32_t{0}, 0, 0}; }

 private:
  RareWeight *next_, *end_;
};

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

// How codes become numbers.
class Unpacking {
 public:
  explicit Unpacking(const PackedWeights& w)
      : high_(_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w.high)))),
        low_(_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w.low)))) {}
  [[gnu::always_inline]] void unit(const uint8_t* from, __m512i (&to)[4]) const {
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

// What is used `distance` bytes behind a unit is asked for.
[[gnu::always_inline]] inline void ask_ahead(const uint8_t* unit, int64_t distance) {
  for (int64_t line = 0; line < kUnitBytes; line += 64)
    __builtin_prefetch(unit + distance + line, 0, 3);
}

}  // namespace
}  // namespace neox
