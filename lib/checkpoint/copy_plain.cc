#include <cstring>

#include "checkpoint/copy.h"

namespace neox {

void copy_past_cache(std::byte* to, const std::byte* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

}  // namespace neox
