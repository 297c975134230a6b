// Host memory from and to which a GPU copies while programs run on.
#pragma once
#include <cstddef>

namespace neox {

// False where that is not possible: copies are slower then, and wait.
bool pin_memory(void* memory, size_t bytes);
void unpin_memory(void* memory);

}  // namespace neox
