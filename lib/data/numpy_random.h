// numpy.random.RandomState as far as sample orders need it: the same permutations from the same
// seed. Its generator is std::mt19937 with the same seeding; shuffle and the bounded integers are
// numpy's legacy ones (numpy/random/mtrand.pyx and src/distributions/distributions.c of numpy 1.24
// to 2.x). Here and not from <algorithm>, whose shuffle differs between libraries.
#pragma once
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <utility>

namespace neox {

// Called every kPollSteps steps of long loops; may throw to end them.
using Poll = std::function<void()>;
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

  template <class T>
  void shuffle(std::span<T> values, const Poll& poll = {}) {
    for (uint64_t i = values.size(); i-- > 1;) {
      std::swap(values[i], values[interval(i)]);
      if (poll && i % kPollSteps == 0) poll();
    }
  }

 private:
  uint64_t draw() { return generator_(); }

  std::mt19937 generator_;
};

}  // namespace neox
