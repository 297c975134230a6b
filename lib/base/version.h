// The version of neox.cpp; CMakeLists.txt reads it from here.
#pragma once

namespace neox {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace neox
