#include "ops/random.h"

namespace neox {
namespace {

// Calls store(i, bits) for positions [begin, begin + n): bits is lane (position % 4) of block
// position / 4.
template <class Store>
void for_positions(uint64_t key, uint64_t sample, int64_t begin, int64_t n, const Store& store) {
  for (int64_t i = 0; i < n;) {
    int64_t position = begin + i;
    Random4 block = philox(key, static_cast<uint64_t>(position / 4), sample);
    for (int64_t lane = position % 4; lane < 4 && i < n; ++lane, ++i) store(i, block.v[lane]);
  }
}

}  // namespace

uint64_t random_key(int64_t seed, std::string_view name) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a, then mixed with the seed by Philox itself
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  Random4 mixed = philox(hash, static_cast<uint64_t>(seed), 0);
  return uint64_t{mixed.v[0]} << 32 | mixed.v[1];
}

void uniform_at(uint64_t key, int64_t begin, std::span<float> out) {
  for_positions(key, 0, begin, static_cast<int64_t>(out.size()), [&](int64_t i, uint32_t bits) {
    out[static_cast<size_t>(i)] = static_cast<float>(bits >> 8) * 0x1p-24f;
  });
}

}  // namespace neox
