// Copies of what nobody reads soon.
#pragma once
#include <cstddef>

namespace neox {

// Past the caches where the processor can: large copies are faster, and the caches keep what they
// have. `to` begins at a multiple of 16 bytes.
void copy_past_cache(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace neox
