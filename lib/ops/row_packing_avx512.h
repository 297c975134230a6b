// What row_packing_body.h asks for, over the vectors of AVX-512.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace neox {
namespace {

typedef uint8_t Bytes __attribute__((vector_size(64)));
typedef uint16_t Words __attribute__((vector_size(64)));

template <class To = Bytes>
inline To as(__m512i x) {
  return reinterpret_cast<To>(x);
}
template <class Vector>
inline __m512i raw(const Vector& x) {
  return reinterpret_cast<__m512i>(x);
}

inline Bytes load_bytes(const uint8_t* p) { return as(_mm512_loadu_si512(p)); }
inline void store_bytes(uint8_t* p, Bytes v) { _mm512_storeu_si512(p, raw(v)); }
// 16 bytes in each 128 bits.
inline Bytes table_of(const uint8_t* p) {
  return as(_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
// Within each 128 bits: bytes of the table, words of a and then b as bytes, and back.
inline Bytes look_up(Bytes table, Bytes at) { return as(_mm512_shuffle_epi8(raw(table), raw(at))); }
inline Bytes narrow(Words a, Words b) { return as(_mm512_packus_epi16(raw(a), raw(b))); }
inline Words first_words(Bytes low, Bytes high) {
  return as<Words>(_mm512_unpacklo_epi8(raw(low), raw(high)));
}
inline Words last_words(Bytes low, Bytes high) {
  return as<Words>(_mm512_unpackhi_epi8(raw(low), raw(high)));
}
// x where its key is `wanted`, else `other`.
inline Bytes where_equal(Bytes key, Bytes wanted, Bytes x, Bytes other) {
  return as(
      _mm512_mask_mov_epi8(raw(other), _mm512_cmpeq_epi8_mask(raw(key), raw(wanted)), raw(x)));
}
// x | (y & bits)
inline Bytes with_bits(Bytes x, Bytes y, Bytes bits) {
  return as(_mm512_ternarylogic_epi32(raw(x), raw(bits), raw(y), 0xf8));
}
inline uint64_t top_bits(Bytes x) { return _mm512_movepi8_mask(raw(x)); }

}  // namespace
}  // namespace neox
