#include "ops/element.h"

#include "base/error.h"

namespace neox {

Element element_of(const char* operation, c10::ScalarType type) {
  switch (type) {
    case c10::kFloat:
      return Element::kFloat;
    case c10::kDouble:
      return Element::kDouble;
    case c10::kHalf:
      return Element::kHalf;
    case c10::kBFloat16:
      return Element::kBFloat16;
    default:
      fail(Exit::kInternal, operation, ": no kernel for type ", type);
  }
}

}  // namespace neox
