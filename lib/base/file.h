// Files: read, write atomically, map. Errors name the path, the operation and the cause (exit code
// 74).
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace neox {

namespace fs = std::filesystem;

// Throws where that is how a Git LFS pointer begins, which a clone without Git LFS has in place of
// a large file. What reads or maps a whole file asks it.
void check_is_no_pointer(std::string_view begin, const fs::path& path);

// Throws "cannot <what> <path>: <cause>" for a failed call, after whose name errno is still its
// own: the call comes first, since arguments of one call have no order.
void check_call(bool ok, const char* what, const fs::path& path);
// The same for a call that gave its errno, or 0.
void check_error(int error, const char* what, const fs::path& path);

// A file descriptor that closes itself.
class Descriptor {
 public:
  // flags: of open(). Throws "cannot <what> <path>".
  Descriptor(const fs::path& path, int flags, const char* what);
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();
  int get() const { return fd_; }

 private:
  int fd_;
};

// What pread_all() or pwrite_all() has moved: all that was asked, or as much as could be before the
// file's end (error 0) or an errno.
struct Moved {
  size_t bytes = 0;
  int error = 0;
};

// As pread and pwrite, and again after a part or a signal.
Moved pread_all(int fd, std::span<std::byte> bytes, int64_t offset);
Moved pwrite_all(int fd, std::span<const std::byte> bytes, int64_t offset);

// Whether the descriptor is of the file that has this name now.
bool is_same_file(int fd, const fs::path& path);

// Of what is there, not_found where nothing is; throws Unreadable where it cannot be told, as in a
// directory that may not be looked into.
fs::file_type type_of(const fs::path& path);
inline bool is_found(const fs::path& path) { return type_of(path) != fs::file_type::not_found; }

// Throws Unreadable for every cause but that there is no such file.
std::string read_file(const fs::path& path);

// Writes beside the path, flushes to the disk, renames: a reader sees the old content or the new,
// never a part.
void write_file_atomically(const fs::path& path, std::string_view content);

// The file of this program, in bin or libexec of an installed tree.
fs::path program_file();

// A file of configs/, where the program is installed or in the tree that it is built in. Where it
// is in neither, the place that it has when installed.
fs::path installed_config(const std::string& name);

// Whether both name one place, whatever of it is there: "a", "./a/", a link to a. Empty is no
// place.
bool same_place(const fs::path& a, const fs::path& b);

// Of a file; "." where its path names none.
fs::path directory_of(const fs::path& file);

// Creates the directory and its parents.
void make_directories(const fs::path& dir);

// Flushes the directory's entries to the disk, so that a rename in it survives a power cut.
void sync_directory(const fs::path& dir);

// A read-only memory map of a whole file. Movable; unmaps on destruction. An empty file maps to an
// empty span.
class MappedFile {
 public:
  enum class Access { kSequential, kRandom };
  MappedFile() = default;
  explicit MappedFile(const fs::path& path, Access access = Access::kRandom);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The path, or of its parents the nearest that exists.
fs::path existing_part(const fs::path& path);

// Of all files below a directory, without those that go away meanwhile.
int64_t bytes_below(const fs::path& dir);

// Bytes an unprivileged user can still write on the file system that holds `path` or its nearest
// existing parent.
int64_t free_bytes(const fs::path& path);

}  // namespace neox
