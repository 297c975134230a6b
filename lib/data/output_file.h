// Files that are written beside their place and named when they are whole.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace neox {

// A file that appears under its name only when publish() is called; until then it is called
// <path>.tmp-<life>. It goes away with the object that created it, unless published. The other
// ranks of a job share it, and write elsewhere in it. Errors are Error (74).
class OutputFile {
 public:
  enum class Open { kCreate, kShare };
  // life: of the job, so that an orphan of an earlier one writes elsewhere; "": the process id.
  explicit OutputFile(fs::path path, const std::string& life = "", Open how = Open::kCreate);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  // The next write goes to that byte of the file.
  void seek(int64_t position);
  void write(std::span<const std::byte> bytes);
  // Bytes of another file, open for reading, go to the next place of this one: in the kernel where
  // it can do that, and without a copy where the file system can. path: of that file, for messages.
  void copy(int from, const fs::path& path, int64_t position, int64_t bytes);
  void flush_to_disk();  // ends the writing
  void publish();

 private:
  void write_out(std::span<const std::byte> bytes);

  fs::path path_, part_;
  Open how_;
  int fd_ = -1;
  int64_t position_ = 0;
  std::vector<std::byte> buffer_;
};

// Bytes that wait for their place in a file: in memory, and beyond kMemoryBytes in a file without a
// name in the directory of `path`.
class HeldBytes {
 public:
  static constexpr size_t kMemoryBytes = 256 << 20;
  HeldBytes(fs::path path, std::string life, size_t memory_bytes = kMemoryBytes);
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;
  ~HeldBytes();

  void write(std::span<const std::byte> bytes);
  // The first so many bytes go to where `file` stands.
  void copy_to(OutputFile& file, int64_t bytes);

 private:
  void spill();

  fs::path path_;
  size_t memory_bytes_;
  int fd_ = -1;
  int64_t spilled_ = 0;  // bytes in the file, which come first
  std::vector<std::vector<std::byte>> chunks_;
  size_t held_ = 0;  // bytes in chunks_
};

}  // namespace neox
