// numpy.random.RandomState as far as sample orders need it: the same permutations from the same
// seed. Its generator is std::mt19937 with the same seeding; shuffle and the bounded integers are
// numpy's legacy ones (numpy/random/mtrand.pyx and src/distributions/distributions.c of numpy 1.24
// to 2.x). Here and not from <algorithm>, whose shuffle differs between libraries.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <random>
#include <span>
#include <utility>

#include "base/tasks.h"

namespace neox {

// Long loops poll every so many steps.
inline constexpr uint64_t kPollSteps = uint64_t{1} << 20;

class NumpyRandom {
 public:
  explicit NumpyRandom(uint32_t seed) : generator_(seed) {}

  // Uniform in 0 .. max: masked bits, drawn again while they are greater.
  uint64_t interval(uint64_t max) {
    uint64_t mask = max;
    for (int shift = 1; shift < 64; shift *= 2) mask |= mask >> shift;
    for (;;) {
      uint64_t value = max <= UINT32_MAX ? draw() : draw() << 32;
      if (max > UINT32_MAX) value |= draw();
      if ((value & mask) <= max) return value & mask;
    }
  }

  // The places to swap with are drawn ahead of the swaps, so that the memory is on its way.
  template <class T>
  void shuffle(std::span<T> values, const Poll& poll = {}) {
    std::array<uint32_t, kAhead> with;
    uint64_t i = values.size(), next_poll = i;
    for (; i > uint64_t{UINT32_MAX} + 1; --i) std::swap(values[i - 1], values[interval(i - 1)]);
    while (i > 1) {
      // From here on down to half of it the mask is the same.
      const auto greatest = static_cast<uint32_t>(i - 1);
      const uint32_t mask = UINT32_MAX >> std::countl_zero(greatest);
      const auto count = std::min(kAhead, greatest - (mask >> 1));
      draw_ahead(std::span(with).first(count), greatest, mask);
      for (uint32_t k = 0; k < count; ++k) __builtin_prefetch(&values[with[k]], 1);
      for (uint32_t k = 0; k < count; ++k) std::swap(values[greatest - k], values[with[k]]);
      i -= count;
      if (poll && next_poll - i >= kPollSteps) {
        poll();
        next_poll = i;
      }
    }
  }

 private:
  static constexpr uint32_t kAhead = 128;

  uint64_t draw() { return generator_(); }

  // numbers[k] is uniform in 0 .. greatest - k.
  void draw_ahead(std::span<uint32_t> numbers, uint32_t greatest, uint32_t mask) {
    for (uint32_t k = 0; k < numbers.size();) {
      uint32_t value = static_cast<uint32_t>(generator_()) & mask;
      numbers[k] = value;  // and again, where it is too great
      k += value <= greatest - k;
    }
  }

  std::mt19937 generator_;
};

}  // namespace neox
