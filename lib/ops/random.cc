#include "ops/random.h"

namespace neox {

uint64_t random_key(int64_t seed, std::string_view name) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a, then mixed with the seed by Philox itself
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  Random4 mixed = philox(hash, static_cast<uint64_t>(seed), 0);
  return uint64_t{mixed.v[0]} << 32 | mixed.v[1];
}

void uniform_at(uint64_t key, int64_t begin, std::span<float> out) {
  auto n = static_cast<int64_t>(out.size());
  for (int64_t i = 0; i < n;) {
    int64_t position = begin + i;  // its bits: lane position % 4 of block position / 4
    Random4 block = philox(key, static_cast<uint64_t>(position / 4), 0);
    for (int64_t lane = position % 4; lane < 4 && i < n; ++lane, ++i)
      out[static_cast<size_t>(i)] = static_cast<float>(block.v[lane] >> 8) * 0x1p-24f;
  }
}

}  // namespace neox
