// The library's own choice among SSE2, AVX2 and AVX-512.
#include <xxh_x86dispatch.h>

#include "checkpoint/checksum_xxh.h"

namespace neox {

XXH128_hash_t xxh3(const void* bytes, size_t size) { return XXH3_128bits(bytes, size); }

bool xxh3_add(XXH3_state_t* state, const void* bytes, size_t size) {
  return XXH3_128bits_update(state, bytes, size) == XXH_OK;
}

}  // namespace neox
