// The types of elements that kernels are written for, without torch's headers: CUDA sources know no
// tensors.
#pragma once
#include <c10/core/ScalarType.h>

namespace neox {

enum class Element { kFloat, kDouble, kHalf, kBFloat16 };

// Throws, naming the operation, where there is none for `type`.
Element element_of(const char* operation, c10::ScalarType type);

}  // namespace neox
