// Bytes of a file at offsets, with exact errors: operation, path, cause, and on a full disk the
// bytes asked for and free. Large writes go around the page cache where the file system allows it.
// One thread at a time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"
#include "checkpoint/checksum.h"

namespace neox {

struct ByteRange {
  int64_t begin = 0, end = 0;
};

class RawFile {
 public:
  enum class Mode { kRead, kWrite, kCreate };
  RawFile(const fs::path& path, Mode mode);
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;
  ~RawFile();

  int64_t size() const;
  // Makes the file system set blocks aside for the first `bytes` bytes, where it can: a full disk
  // is found before anything is written.
  void reserve(int64_t bytes);
  void write(std::span<const std::byte> bytes, int64_t offset);
  // Throws where the file ends before.
  void read(std::span<std::byte> bytes, int64_t offset) const;
  // Flushes to the disk and closes; errors that the file system held back come out here.
  void close();

 private:
  void write_cached(std::span<const std::byte> bytes, int64_t offset);
  void write_direct(std::span<const std::byte> bytes, int64_t offset);
  [[noreturn]] void fail_write(int error, int64_t asked) const;

  fs::path path_;
  int fd_ = -1;
  int direct_ = -1;  // the same file, opened with O_DIRECT
  std::unique_ptr<std::byte[], void (*)(void*)> block_;
};

// The cause, and on a full disk the bytes asked for and free.
std::string describe_write_error(int error, const fs::path& path, int64_t asked);

// Creates the file, writes, flushes.
void write_flushed(const fs::path& path, std::string_view content);

// The checksum of all bytes of the file outside `ranges` (ascending, not overlapping), in order.
Checksum checksum_outside(const RawFile& file, std::span<const ByteRange> ranges);

}  // namespace neox
