// CRC-32C (Castagnoli, RFC 3720 appendix B.4), and the masked form that TFRecord files store.
#pragma once
#include <cstdint>
#include <string_view>

namespace neox {

uint32_t crc32c(std::string_view bytes);

// Rotated and shifted, so that the checksum of bytes that hold checksums stays a good one
// (TensorFlow, core/lib/hash/crc32c.h).
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace neox
