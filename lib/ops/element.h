// The types of elements that kernels are written for, without torch's headers: CUDA sources know no
// tensors.
#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>

namespace neox {

enum class Element { kFloat, kDouble, kHalf, kBFloat16 };

// Throws, naming the operation, where there is none for `type`.
Element element_of(const char* operation, c10::ScalarType type);

// Whether a kernel may load 16 bytes at once from there; null counts as one.
inline bool takes_wide_loads(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0;
}

}  // namespace neox
