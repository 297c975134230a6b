// What row_packing_body.h asks for, over the vectors of AVX2.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace neox {
namespace {

typedef uint8_t Bytes __attribute__((vector_size(32)));
typedef uint16_t Words __attribute__((vector_size(32)));

template <class To = Bytes>
inline To as(__m256i x) {
  return reinterpret_cast<To>(x);
}
template <class Vector>
inline __m256i raw(const Vector& x) {
  return reinterpret_cast<__m256i>(x);
}

inline Bytes load_bytes(const uint8_t* p) {
  return as(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline void store_bytes(uint8_t* p, Bytes v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), raw(v));
}
// 16 bytes in each 128 bits.
inline Bytes table_of(const uint8_t* p) {
  return as(_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
// Within each 128 bits: bytes of the table, words of a and then b as bytes, and back.
inline Bytes look_up(Bytes table, Bytes at) { return as(_mm256_shuffle_epi8(raw(table), raw(at))); }
inline Bytes narrow(Words a, Words b) { return as(_mm256_packus_epi16(raw(a), raw(b))); }
inline Words first_words(Bytes low, Bytes high) {
  return as<Words>(_mm256_unpacklo_epi8(raw(low), raw(high)));
}
inline Words last_words(Bytes low, Bytes high) {
  return as<Words>(_mm256_unpackhi_epi8(raw(low), raw(high)));
}
// x where its key is `wanted`, else `other`.
inline Bytes where_equal(Bytes key, Bytes wanted, Bytes x, Bytes other) {
  return as(_mm256_blendv_epi8(raw(other), raw(x), _mm256_cmpeq_epi8(raw(key), raw(wanted))));
}
// x | (y & bits)
inline Bytes with_bits(Bytes x, Bytes y, Bytes bits) { return x | (y & bits); }
inline uint64_t top_bits(Bytes x) { return static_cast<uint32_t>(_mm256_movemask_epi8(raw(x))); }

}  // namespace
}  // namespace neox
