// Reading of memory by one thread, in the two ways of which one or the other is the fastest.
#pragma once
#include <algorithm>
#include <cstdint>

namespace neox {

constexpr int64_t kLineWords = 8;

// All bits of the words or-ed, line after line.
inline uint64_t read_in_turn(const uint64_t* words, int64_t count) {
  uint64_t sums[4 * kLineWords] = {};
  for (int64_t i = 0; i + 4 * kLineWords <= count; i += 4 * kLineWords)
    for (int64_t j = 0; j < 4 * kLineWords; ++j) sums[j] |= words[i + j];
  return *std::max_element(std::begin(sums), std::end(sums));
}

// The same, a line of each of eight parts in turn: Intel's processors fetch more so.
inline uint64_t read_in_places(const uint64_t* words, int64_t count) {
  constexpr int64_t kPlaces = 8, kAhead = 128;  // words
  int64_t part = count / kPlaces / kLineWords * kLineWords;
  uint64_t sums[kPlaces][kLineWords] = {};
  for (int64_t i = 0; i < part; i += kLineWords)
    for (int64_t p = 0; p < kPlaces; ++p) {
      const uint64_t* line = words + p * part + i;
      __builtin_prefetch(line + kAhead);
      for (int64_t j = 0; j < kLineWords; ++j) sums[p][j] |= line[j];
    }
  return *std::max_element(&sums[0][0], &sums[0][0] + kPlaces * kLineWords);
}

}  // namespace neox
