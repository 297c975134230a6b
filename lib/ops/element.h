// The types of elements that kernels are written for, without torch's headers: CUDA sources know no
// tensors.
#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>

namespace neox {

enum class Element { kFloat, kDouble, kHalf, kBFloat16 };

// Calls work(T*) with a null pointer of the type, for types of 16 bits as they are called there.
template <class Half, class BFloat16, class Work>
void with_type_of(Element type, const Work& work) {
  switch (type) {
    case Element::kFloat:
      return work(static_cast<float*>(nullptr));
    case Element::kDouble:
      return work(static_cast<double*>(nullptr));
    case Element::kHalf:
      return work(static_cast<Half*>(nullptr));
    case Element::kBFloat16:
      return work(static_cast<BFloat16*>(nullptr));
  }
}

// Throws, naming the operation, where there is none for `type`.
Element element_of(const char* operation, c10::ScalarType type);

// Whether a kernel may load 16 bytes at once from there; null counts as one.
inline bool takes_wide_loads(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0;
}

}  // namespace neox
