// XXH3-128 by the fastest instructions that this processor has.
#pragma once
#include <xxhash.h>

#include <cstddef>

namespace neox {

XXH128_hash_t xxh3(const void* bytes, size_t size);
bool xxh3_add(XXH3_state_t* state, const void* bytes, size_t size);

}  // namespace neox
