// How numbers of bf16 are packed (ops/packed_weights.h) whatever the processor. Each file that is
// compiled for a kind of processor has its own.
#pragma once
#include <cstdint>
#include <cstring>

#include "ops/row_kernels.h"

namespace neox {
namespace {

constexpr int64_t kUnit = 128, kUnitBytes = 192;  // the codes of 64 numbers each in four bits

// Where byte i of half a unit stands among its numbers: vectors of 16 bytes take eight of two
// vectors of 32 numbers in turn.
constexpr uint16_t place_of(int i) {
  return static_cast<uint16_t>(i % 16 / 8 * 32 + i / 16 * 8 + i % 8);
}

// The weights of a group that have no code, in their order.
class RareOnes {
 public:
  explicit RareOnes(const PackedGroup& group) : next_(group.rare), end_(next_ + group.most_rare) {}
  // Those bytes of half a unit, whose first number is number `first` of the tile. False: too many.
  bool add(uint64_t which, uint32_t tile, int first, const void* numbers) {
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

// What is used `distance` bytes behind a unit is asked for.
[[gnu::always_inline]] inline void ask_ahead(const uint8_t* unit, int64_t distance) {
  for (int64_t line = 0; line < kUnitBytes; line += 64)
    __builtin_prefetch(unit + distance + line, 0, 3);
}

}  // namespace
}  // namespace neox
