#include <emmintrin.h>

#include <cstring>

#include "checkpoint/copy.h"

namespace neox {

void copy_past_cache(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kLine = 64, kWidth = sizeof(__m128i);
  size_t lines = bytes / kLine * kLine;
  for (size_t line = 0; line < lines; line += kLine) {
    __m128i part[kLine / kWidth];
    for (size_t i = 0; i < kLine / kWidth; ++i)
      part[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + line + i * kWidth));
    for (size_t i = 0; i < kLine / kWidth; ++i)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + line + i * kWidth), part[i]);
  }
  _mm_sfence();
  std::memcpy(to + lines, from + lines, bytes - lines);
}

}  // namespace neox
