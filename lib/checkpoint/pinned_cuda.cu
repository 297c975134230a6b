#include <cuda_runtime.h>

#include "checkpoint/pinned.h"

namespace neox {

bool pin_memory(void* memory, size_t bytes) {
  if (cudaHostRegister(memory, bytes, cudaHostRegisterPortable) == cudaSuccess) return true;
  (void)cudaGetLastError();
  return false;
}

void unpin_memory(void* memory) {
  cudaHostUnregister(memory);
  (void)cudaGetLastError();
}

}  // namespace neox
