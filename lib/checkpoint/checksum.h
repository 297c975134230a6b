// XXH3-128 checksums; written as xxh128sum prints them, 32 hexadecimal digits.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace neox {

struct Checksum {
  uint64_t high = 0, low = 0;
  bool operator==(const Checksum&) const = default;
};

Checksum checksum(std::span<const std::byte> bytes);
Checksum checksum(std::string_view text);
std::string to_string(const Checksum& sum);
std::optional<Checksum> parse_checksum(std::string_view text);

// The checksum of bytes that come in pieces.
class Checksummer {
 public:
  Checksummer();
  Checksummer(Checksummer&&) noexcept;
  Checksummer& operator=(Checksummer&&) noexcept;
  ~Checksummer();
  void add(std::span<const std::byte> bytes);
  Checksum sum() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace neox
