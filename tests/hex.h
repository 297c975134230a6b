#pragma once
#include <cstdio>
#include <string>
#include <string_view>

namespace neox {

// The bytes that pairs of hexadecimal digits spell.
inline std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return bytes;
}

inline std::string to_hex(std::string_view bytes) {
  std::string digits;
  char pair[3];
  for (unsigned char b : bytes) digits += (std::snprintf(pair, sizeof pair, "%02x", b), pair);
  return digits;
}

}  // namespace neox
