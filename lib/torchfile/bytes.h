// Numbers and texts in spans of bytes, and what zip files are read and written by.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace neox::torchfile {

static_assert(std::endian::native == std::endian::little);

// The little-endian number at the start of the bytes, which are long enough.
template <class T>
T little(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

// Of zip files: bytes of a local header before its name, and a number that stands in the zip64
// field.
inline constexpr uint64_t kLocalBytes = 30;
inline constexpr uint32_t kIn64 = 0xffffffff;

inline std::string_view text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace neox::torchfile
