// Bytes of a file at offsets, with exact errors: operation, path, cause, and on a full disk the
// bytes asked for and free. What the system does not give to be read is Unreadable. Large pieces
// that begin at a page, in memory and in the file, go around the page cache (O_DIRECT), or through
// it where the file system has no other way. Any thread may read and write, one closes.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"
#include "checkpoint/checksum.h"

namespace neox {

inline constexpr size_t kPageBytes = 4096;  // what O_DIRECT asks of memory, offset and size

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
  // Whole pages from a page of the file on, of which the last may lie beyond its end; throws where
  // it ends before `least` bytes.
  void read_pages(std::span<std::byte> pages, int64_t offset, size_t least) const;
  // Flushes to the disk and closes; errors that the file system held back come out here.
  void close();

 private:
  void write_cached(std::span<const std::byte> bytes, int64_t offset);
  // Return how much they could do; the rest goes through the page cache.
  size_t write_direct(std::span<const std::byte> bytes, int64_t offset);
  size_t read_direct(std::span<std::byte> bytes, int64_t offset, size_t least) const;
  bool goes_direct(const std::byte* bytes, size_t size, int64_t offset) const;
  [[noreturn]] void fail_write(int error, int64_t asked) const;
  [[noreturn]] void fail_read(const char* what, int error) const;

  fs::path path_;
  Mode mode_;
  int fd_ = -1;
  mutable std::once_flag opened_;
  mutable int direct_ = -1;                    // the same file, opened with O_DIRECT
  mutable std::atomic<bool> refused_ = false;  // by the file system
};

// The cause, and on a full disk the bytes asked for and free.
std::string describe_write_error(int error, const fs::path& path, int64_t asked);

// Creates the file, writes, flushes.
void write_flushed(const fs::path& path, std::string_view content);

// The checksum of all bytes of the file outside `ranges` (ascending, not overlapping), in order.
Checksum checksum_outside(const RawFile& file, std::span<const ByteRange> ranges);

}  // namespace neox
