// Random tensors as functions of (key, position in the global tensor), so that any slice of a
// parameter, on any rank, gets the values that the whole one would have.
#pragma once
#include <cstdint>
#include <span>

#include "ops/philox.h"

namespace neox {

// Standard normal values (Box-Muller) at positions [begin, begin + out.size()) of the global
// tensor.
void normal_at(uint64_t key, int64_t begin, std::span<float> out);

// Uniform values in [0, 1).
void uniform_at(uint64_t key, int64_t begin, std::span<float> out);

}  // namespace neox
