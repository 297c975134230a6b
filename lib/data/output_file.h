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
// <path>.tmp-<name>. It goes away with the object, unless it was published or is kept; one that was
// taken over is. One thread; but sync() may be called from another one. Errors are Error (74).
class OutputFile {
 public:
  enum class Open {
    kCreate,    // empty; one that is there is removed
    kTakeOver,  // with what it holds; throws where it is missing
    kShare,     // made by another rank, which calls share()
  };
  // name: the same in each life of what writes the file, so that a later one removes what a killed
  // one has left. Where two processes may choose the same name, the second is refused: the file is
  // locked (flock) until the object goes. Where the file system has no locks, that is logged.
  explicit OutputFile(fs::path path, const std::string& name = "unfinished",
                      Open how = Open::kCreate);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  // The temporary name of that path.
  static fs::path part_of(const fs::path& path, const std::string& name);

  // The next write goes to that byte of the file.
  void seek(int64_t position);
  int64_t position() const { return position_ + static_cast<int64_t>(buffer_.size()); }
  void write(std::span<const std::byte> bytes);
  template <class T>
  void write_value(T value) {
    write(std::as_bytes(std::span(&value, 1)));
  }
  // Reads what was written; fails where the file ends before.
  void read(std::span<std::byte> bytes, int64_t position);
  // Bytes of another file go to the next place of this one, in the kernel where it can do that, and
  // without a copy where the file system can. path: of a file open for reading, for messages.
  void copy(OutputFile& from, int64_t position, int64_t bytes);
  void copy(int from, const fs::path& path, int64_t position, int64_t bytes);
  // From now on other nodes write elsewhere in the file, of which none may begin before what this
  // one has written so far is on the disk.
  void share();
  void set_size(int64_t bytes);
  // Hands what was written to the kernel: it outlives this process.
  void flush();
  // What was flushed outlives the machine.
  void sync() const;
  // Both, of a file that is whole: many such files may wait for publish(), without their buffers.
  void flush_to_disk();
  // What becomes of the file when the object goes: another process may take it over.
  void keep() { kept_ = true; }
  void discard() { kept_ = false; }
  void publish();

 private:
  void open_shared();
  void lock();
  bool open_and_lock(int flags);
  void write_out(std::span<const std::byte> bytes);
  int64_t copy_in_kernel(int from, int64_t position, int64_t bytes);

  fs::path path_, part_;
  Open how_;
  bool kept_ = false;
  int fd_ = -1;
  int shared_ = -1;       // to write beside other nodes; none: they do not write to it
  int64_t position_ = 0;  // where the buffer begins
  std::vector<std::byte> buffer_;
};

// Removes the files <begin><number>, and <begin><number>.*, from that number on.
void remove_numbered(const fs::path& begin, int first);

}  // namespace neox
