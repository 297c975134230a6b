// The records of a zip file whose members are stored as they are, as torch.save writes it. All that
// the file says of itself is checked against its bytes before it is used: offsets, sizes, names.
// Reads nothing but the directory; the records are parts of the caller's bytes.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace neox::torchfile {

struct ZipRecord {
  std::span<const std::byte> bytes;
  uint32_t crc32 = 0;   // as the directory says; see docs/formats.md
  uint64_t header = 0;  // offset of its local header
};

// By name. Throws (74) naming `file` for what is no zip file, is cut off, compressed, encrypted,
// has a name twice, or has records that overlap.
std::map<std::string, ZipRecord, std::less<>> read_zip(std::span<const std::byte> bytes,
                                                       const std::string& file);

}  // namespace neox::torchfile
