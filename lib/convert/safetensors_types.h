// The names that safetensors gives to types.
#pragma once
#include <c10/core/ScalarType.h>

#include <string>

namespace neox {

// Throws (74) for a name that is not known; `where` is for messages.
c10::ScalarType safetensors_type(const std::string& name, const std::string& where);
const char* safetensors_name(c10::ScalarType dtype);

}  // namespace neox
