#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"

namespace neox {
namespace {

// As check_call(), where nothing is to be written.
void check_read(bool ok, const char* what, const fs::path& path) {
  int error = errno;
  if (!ok)
    fail_to_read(error, concat("cannot ", what, " ", path.string(), ": ", describe_errno(error)));
}

}  // namespace

void check_call(bool ok, const char* what, const fs::path& path) {
  check_error(ok ? 0 : errno, what, path);
}

void check_error(int error, const char* what, const fs::path& path) {
  check_io(error == 0, "cannot ", what, " ", path.string(), ": ", describe_errno(error));
}

Descriptor::Descriptor(const fs::path& path, int flags, const char* what)
    : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
  (flags & O_CREAT ? check_call : check_read)(fd_ >= 0, what, path);
}

Descriptor::~Descriptor() { ::close(fd_); }

namespace {

// The bytes that move(done) moves until all are done; a write that moves none finds no room.
template <class Move>
Moved move_all(size_t size, int error_of_none, const Move& move) {
  Moved moved;
  while (moved.bytes < size) {
    ssize_t n = move(moved.bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return {moved.bytes, n < 0 ? errno : error_of_none};
    moved.bytes += static_cast<size_t>(n);
  }
  return moved;
}

}  // namespace

Moved pread_all(int fd, std::span<std::byte> bytes, int64_t offset) {
  return move_all(bytes.size(), 0, [&](size_t done) {
    return ::pread(fd, bytes.data() + done, bytes.size() - done,
                   offset + static_cast<int64_t>(done));
  });
}

Moved pwrite_all(int fd, std::span<const std::byte> bytes, int64_t offset) {
  return move_all(bytes.size(), ENOSPC, [&](size_t done) {
    return ::pwrite(fd, bytes.data() + done, bytes.size() - done,
                    offset + static_cast<int64_t>(done));
  });
}

bool is_same_file(int fd, const fs::path& path) {
  struct stat open {
  }, named{};
  return ::fstat(fd, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

void check_is_no_pointer(std::string_view begin, const fs::path& path) {
  check_io(!begin.starts_with("version https://git-lfs.github.com/spec/"), path.string(),
           " is the pointer that Git LFS left in place of the file; run `git lfs pull` in ",
           directory_of(path).string(), ", or download the file itself");
}

fs::file_type type_of(const fs::path& path) {
  std::error_code error;
  fs::file_type type = fs::status(path, error).type();
  if (type == fs::file_type::none)
    throw Unreadable(error.value(),
                     concat("cannot look at ", path.string(), ": ", describe_errno(error.value())));
  return type;
}

// Not by a mapping, in which storage that fails would end the process.
std::string read_file(const fs::path& path) {
  Descriptor file(path, O_RDONLY, "open");
  struct stat info {};
  check_read(::fstat(file.get(), &info) == 0, "stat", path);
  constexpr size_t kMore = 65536;  // files may grow, and some do not tell their size
  std::string text(static_cast<size_t>(info.st_size) + 1, '\0');
  size_t size = 0;
  for (ssize_t n = 1; n != 0; size += static_cast<size_t>(n)) {
    if (size == text.size()) text.resize(size + kMore);
    while ((n = ::read(file.get(), text.data() + size, text.size() - size)) < 0)
      check_read(errno == EINTR, "read", path);
  }
  text.resize(size);
  check_is_no_pointer(text, path);
  return text;
}

void write_file_atomically(const fs::path& path, std::string_view content) {
  fs::path part = path;
  part += concat(".tmp-", ::getpid());
  try {
    Descriptor file(part, O_WRONLY | O_CREAT | O_TRUNC, "create");
    check_error(pwrite_all(file.get(), std::as_bytes(std::span(content)), 0).error, "write", part);
    check_call(::fsync(file.get()) == 0, "flush", part);
    check_call(::rename(part.c_str(), path.c_str()) == 0, "rename the finished file to", path);
  } catch (...) {
    ::unlink(part.c_str());
    throw;
  }
  sync_directory(directory_of(path));
}

fs::path program_file() {
  std::error_code error;
  fs::path program = fs::read_symlink("/proc/self/exe", error);
  check_io(!error, "cannot read the link /proc/self/exe, by which this program finds its files: ",
           describe_errno(error.value()));
  return program;
}

fs::path installed_config(const std::string& name) {
  fs::path bin = program_file().parent_path();
  auto in = [&](const char* place) { return (bin / place / name).lexically_normal(); };
  fs::path installed = in("../share/neox/configs"), built = in("../../../configs");
  return fs::exists(installed) || !fs::exists(built) ? installed : built;
}

bool same_place(const fs::path& a, const fs::path& b) {
  auto real = [](const fs::path& path) {
    std::error_code error;
    fs::path whole = fs::absolute(path), followed = fs::weakly_canonical(whole, error);
    whole = (error ? whole : followed).lexically_normal();
    return whole.has_filename() ? whole : whole.parent_path();
  };
  std::error_code absent;
  return !a.empty() && !b.empty() && (fs::equivalent(a, b, absent) || real(a) == real(b));
}

fs::path directory_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : ".";
}

void make_directories(const fs::path& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  check_io(!error && fs::is_directory(dir), "cannot make the directory ", dir.string(), ": ",
           fs::is_symlink(dir) && !fs::exists(dir) ? "it is a link that leads nowhere"
           : error && error != std::errc::not_a_directory
               ? describe_errno(error.value())
               : "a file is in the way there; name another directory, or move the file away");
}

void sync_directory(const fs::path& dir) {
  Descriptor file(dir, O_RDONLY | O_DIRECTORY, "open the directory");
  check_call(::fsync(file.get()) == 0, "flush the directory", dir);
}

// Delegates, so that what throws behind the mapping unmaps it.
MappedFile::MappedFile(const fs::path& path, Access access) : MappedFile() {
  Descriptor file(path, O_RDONLY, "open");
  struct stat info {};
  check_call(::fstat(file.get(), &info) == 0, "stat", path);
  check_io(!S_ISDIR(info.st_mode), path.string(), " is a directory, not a file");
  size_ = static_cast<size_t>(info.st_size);
  if (size_ == 0) return;
  void* p = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  check_call(p != MAP_FAILED, "map", path);
  ::madvise(p, size_, access == Access::kRandom ? MADV_RANDOM : MADV_SEQUENTIAL);
  data_ = static_cast<const std::byte*>(p);
  check_is_no_pointer(text(), path);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

fs::path existing_part(const fs::path& path) {
  std::error_code error;
  fs::path part = fs::absolute(path);
  while (!fs::exists(part, error) && part.has_relative_path()) part = part.parent_path();
  return part;
}

int64_t bytes_below(const fs::path& dir) {
  int64_t bytes = 0;
  std::error_code gone, unread;
  for (fs::recursive_directory_iterator entry(dir, unread), end; entry != end;
       entry.increment(unread)) {
    auto size = entry->is_regular_file(gone) ? entry->file_size(gone) : 0;
    if (!gone) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

int64_t free_bytes(const fs::path& path) {
  fs::path dir = existing_part(path);
  struct statvfs info {};
  check_call(::statvfs(dir.c_str(), &info) == 0, "ask for the free space of", dir);
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

}  // namespace neox
