// For processors, and builds of the library, without a choice.
#include "checkpoint/checksum_xxh.h"

namespace neox {

XXH128_hash_t xxh3(const void* bytes, size_t size) { return XXH3_128bits(bytes, size); }

bool xxh3_add(XXH3_state_t* state, const void* bytes, size_t size) {
  return XXH3_128bits_update(state, bytes, size) == XXH_OK;
}

}  // namespace neox
