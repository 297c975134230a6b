// What the kernels of bf16 for AVX-512 have in common: how operands become pairs along their depth,
// in vectors of AVX-512, and the sums that a tile has of a product.
#pragma once
#include <immintrin.h>

#include <algorithm>

#include "ops/bf16_kernels.h"

namespace neox::pairs {
namespace {  // each kind of processor has its own

constexpr int64_t kLanes = 16;
constexpr int64_t kAhead = 8;  // pairs that are fetched before they are read

// How a kind of processor reads from its far caches fastest: whether it is told what comes next,
// and how many rows are read of a depth, where rows lie consecutively, before the next depth.
template <bool kFetched, int64_t kStrip>
struct Reading {
  static constexpr bool kFetches = kFetched;
  static constexpr int64_t kRows = kStrip;
};

inline void fetch(const uint16_t* from) {
  _mm_prefetch(reinterpret_cast<const char*>(from), _MM_HINT_T0);
}

// In each quarter of the vectors: four rows of four numbers become their columns.
template <int kRows>
[[gnu::always_inline]] inline void transpose_quarters(__m512i (&r)[kRows]) {
  __m512i t[kRows];
  for (int i = 0; i < kRows; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < kRows; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
}

// 16 rows of 16 numbers become their columns.
[[gnu::always_inline]] inline void transpose(__m512i (&r)[kLanes]) {
  __m512i t[kLanes];
  transpose_quarters(r);
  for (int i = 0; i < 4; ++i) {
    __m512i a = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88),
            b = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd),
            c = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88),
            d = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    t[i] = _mm512_shuffle_i32x4(a, c, 0x88);
    t[i + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
    t[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

// Those of the 16 numbers from `first` on that there are.
inline __mmask16 lanes_of(int64_t numbers, int64_t first = 0) {
  int64_t left = std::clamp<int64_t>(numbers - first, 0, kLanes);
  return static_cast<__mmask16>((1U << left) - 1);
}

// The same of 32 numbers of 16 bits.
inline __mmask32 halves_of(int64_t numbers, int64_t first = 0) {
  int64_t left = std::clamp<int64_t>(numbers - first, 0, 2 * kLanes);
  return static_cast<__mmask32>((uint64_t{1} << left) - 1);
}

// Of 16 rows from `row` on the 16 pairs from `pair` on; depth lies consecutively.
template <class How>
[[gnu::always_inline]] inline void load_rows(const Bf16Matrix& m, int64_t row, int64_t pair,
                                             __m512i (&r)[kLanes]) {
  __mmask32 mask = halves_of(m.depth, 2 * pair);
#pragma GCC unroll 16
  for (int64_t i = 0; i < kLanes; ++i) {
    const uint16_t* from = m.data + (row + i) * m.row_stride + 2 * pair;
    r[i] = row + i < m.rows ? _mm512_maskz_loadu_epi16(mask, from) : _mm512_setzero_si512();
    if constexpr (How::kFetches) fetch(from + kLanes * m.row_stride);
  }
}

// A pair of 32 rows, a line of the cache from two depths; rows lie consecutively.
template <class How>
struct RowPairs {
  __m512i even, odd;
  [[gnu::always_inline]] RowPairs(const Bf16Matrix& m, int64_t row, int64_t pair) {
    const uint16_t* from = m.data + 2 * pair * m.depth_stride + row;
    __mmask32 mask = halves_of(m.rows, row);
    even = odd = _mm512_setzero_si512();
    if (2 * pair < m.depth) even = _mm512_maskz_loadu_epi16(mask, from);
    if (2 * pair + 1 < m.depth) odd = _mm512_maskz_loadu_epi16(mask, from + m.depth_stride);
    if constexpr (How::kFetches) {
      fetch(from + 2 * kAhead * m.depth_stride);
      fetch(from + (2 * kAhead + 1) * m.depth_stride);
    }
  }
  // Of the first or the second 16 of them.
  [[gnu::always_inline]] __m512i half(int which) const {
    auto part = [&](__m512i x) {
      return _mm512_cvtepu16_epi32(which ? _mm512_extracti64x4_epi64(x, 1)
                                         : _mm512_castsi512_si256(x));
    };
    return _mm512_or_si512(part(even), _mm512_slli_epi32(part(odd), 16));
  }
};

// 16 numbers of a pair go to the rows from `row` on, as far as there are groups.
template <int64_t kGroup>
[[gnu::always_inline]] inline void store(uint32_t* to, int64_t row, int64_t pair, int64_t pairs,
                                         int64_t padded, __m512i x) {
  uint32_t* here = to + (row / kGroup * pairs + pair) * kGroup + row % kGroup;
  if constexpr (kGroup >= kLanes) {
    _mm512_store_si512(here, x);
  } else {
    _mm256_store_si256(reinterpret_cast<__m256i*>(here), _mm512_castsi512_si256(x));
    if (row + kGroup < padded)
      _mm256_store_si256(reinterpret_cast<__m256i*>(here + pairs * kGroup),
                         _mm512_extracti64x4_epi64(x, 1));
  }
}

// To [rows / kGroup][pairs][kGroup].
template <int64_t kGroup, class How>
void pack(const Bf16Matrix& m, uint32_t* to, int64_t pairs) {
  int64_t padded = padded_to(m.rows, kGroup);
  if (m.depth_stride == 1) {
    for (int64_t row = 0; row < padded; row += kLanes) {
      for (int64_t pair = 0; pair < pairs; pair += kLanes) {
        __m512i r[kLanes];
        load_rows<How>(m, row, pair, r);
        transpose(r);
        int64_t n = std::min(kLanes, pairs - pair);
        for (int64_t i = 0; i < n; ++i) store<kGroup>(to, row, pair + i, pairs, padded, r[i]);
      }
    }
    return;
  }
  for (int64_t strip = 0; strip < padded; strip += How::kRows) {
    int64_t end = std::min(padded, strip + How::kRows);
    for (int64_t pair = 0; pair < pairs; ++pair) {
      for (int64_t row = strip; row < end; row += 2 * kLanes) {
        RowPairs<How> both(m, row, pair);
        for (int half = 0; half < 2 && row + half * kLanes < end; ++half)
          store<kGroup>(to, row + half * kLanes, pair, pairs, padded, both.half(half));
      }
    }
  }
}

// Rows and columns of a tile that the product has.
struct Valid {
  int64_t rows, columns;
};

// What a tile of floats adds to is far away: it is on its way before.
inline void fetch_sums(const ProductSum& c, const Valid& valid) {
  const auto* from = static_cast<const float*>(c.data);
  auto [rows, columns] = c.transposed ? Valid{valid.columns, valid.rows} : valid;
  for (int64_t i = 0; i < rows; ++i, from += c.stride) {
    _mm_prefetch(reinterpret_cast<const char*>(from), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(from + columns - 1), _MM_HINT_T0);
  }
}

// Of a pair, the first number and the second, as floats have them.
inline __m512i first_of(__m512i pairs) { return _mm512_slli_epi32(pairs, 16); }
inline __m512i second_of(__m512i pairs) {
  return _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000)));
}
inline __m512 as_floats(__m512i bits) { return _mm512_castsi512_ps(bits); }

// bf16 of floats in the upper halves, to the nearest, ties to even; the lower ones are not cleared.
[[gnu::always_inline]] inline __m512i rounded(__m512 x) {
  __m512i bits = _mm512_castps_si512(x), one = _mm512_set1_epi32(1);
  __m512i even = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
  __m512i near = _mm512_add_epi32(bits, _mm512_add_epi32(even, _mm512_set1_epi32(0x7fff)));
  __mmask16 none = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_mask_mov_epi32(near, none, _mm512_set1_epi32(0x7fc00000));
}
// 16 floats as bf16.
[[gnu::always_inline]] inline __m256i to_halves(__m512 x) {
#ifdef __AVX512BF16__
  return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
#else
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded(x), 16));
#endif
}

// 16 sums go to the product, `at` numbers behind its first.
[[gnu::always_inline]] inline void store_sums(__m512 y, const ProductSum& c, int64_t at,
                                              __mmask16 mask) {
  if (c.half)
    return _mm256_mask_storeu_epi16(static_cast<uint16_t*>(c.data) + at, mask, to_halves(y));
  float* to = static_cast<float*>(c.data) + at;
  if (c.add) y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(mask, to));
  _mm512_mask_storeu_ps(to, mask, y);
}

}  // namespace
}  // namespace neox::pairs
