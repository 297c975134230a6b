// Safetensors files by hand, so that tests use nothing of the code that they test.
#pragma once
#include <cstdint>
#include <string>

namespace neox::testing {

inline std::string file_of(const std::string& header, const std::string& data) {
  uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + data;
}

}  // namespace neox::testing
