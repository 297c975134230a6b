#include "data/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace neox {
namespace {

// Writes begin and end at multiples of it, which file systems of clusters write without reading.
constexpr int64_t kBufferBytes = 4 << 20;
// For a process that was killed and is about to end.
constexpr auto kLockWait = std::chrono::seconds(3);

int64_t room_at(int64_t position) { return kBufferBytes - position % kBufferBytes; }

void write_at(int fd, std::span<const std::byte> bytes, int64_t position, const fs::path& path) {
  check_error(pwrite_all(fd, bytes, position).error, "write", path);
}

void read_at(int fd, std::span<std::byte> bytes, int64_t position, const fs::path& path) {
  auto [done, error] = pread_all(fd, bytes, position);
  check_error(error, "read back", path);
  check_io(done == bytes.size(), path.string(), " ends at byte ",
           position + static_cast<int64_t>(done), " and should hold ", bytes.size() - done,
           " more; has another process written it?");
}

}  // namespace

fs::path OutputFile::part_of(const fs::path& path, const std::string& name) {
  fs::path part = path;
  return part += ".tmp-" + name;
}

OutputFile::OutputFile(fs::path path, const std::string& name, Open how)
    : path_(std::move(path)),
      part_(part_of(path_, name)),
      how_(how),
      kept_(how == Open::kTakeOver) {
  bool create = how == Open::kCreate;
  try {
    if (how == Open::kShare) {
      open_shared();
      return;
    }
    // A file that another process had locked may have been renamed or removed by it since.
    while (!open_and_lock(create ? O_CREAT : 0)) ::close(std::exchange(fd_, -1));
    // Whoever still has the old file open, without a lock, goes on writing to that one.
    if (create && ::lseek(fd_, 0, SEEK_END) > 0) {
      check_call(::unlink(part_.c_str()) == 0, "remove", part_);
      do ::close(std::exchange(fd_, -1));
      while (!open_and_lock(O_CREAT));
    }
  } catch (...) {
    if (fd_ >= 0) ::close(fd_);
    throw;
  }
}

void OutputFile::open_shared() {
  fd_ = ::open(part_.c_str(), O_RDWR | O_CLOEXEC);
  check_io(fd_ >= 0 || errno != ENOENT, "rank 0 has made ", part_.string(),
           ", and it is not there: the directory must be on a file system that all nodes share");
  check_call(fd_ >= 0, "open", part_);
  share();
}

// Returns false where the name leads to another file by now.
bool OutputFile::open_and_lock(int flags) {
  fd_ = ::open(part_.c_str(), O_RDWR | flags | O_CLOEXEC, 0666);
  check_call(fd_ >= 0, flags & O_CREAT ? "create" : "open", part_);
  lock();
  return is_same_file(fd_, part_);
}

void OutputFile::lock() {
  auto end = std::chrono::steady_clock::now() + kLockWait;
  for (;;) {
    if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
    int error = errno;
    if (error == EINTR) continue;
    if (error != EWOULDBLOCK) {
      log_warning("cannot lock ", part_.string(), ": ", describe_errno(error),
                  "; see to it that no other run writes the same output");
      return;
    }
    check_io(std::chrono::steady_clock::now() < end, part_.string(),
             " is being written by another process; wait for it, end it, or choose another name "
             "for the output");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      part_(std::exchange(other.part_, {})),
      how_(other.how_),
      kept_(other.kept_),
      fd_(std::exchange(other.fd_, -1)),
      shared_(std::exchange(other.shared_, -1)),
      position_(other.position_),
      buffer_(std::move(other.buffer_)) {}

OutputFile::~OutputFile() {
  bool mine = fd_ >= 0 && how_ != Open::kShare && !kept_ && !part_.empty();
  if (mine && is_same_file(fd_, part_)) ::unlink(part_.c_str());
  for (int file : {fd_, shared_})
    if (file >= 0) ::close(file);
}

void OutputFile::seek(int64_t to) {
  if (to == position()) return;
  flush();
  position_ = to;
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    int64_t room = room_at(position());
    auto part = bytes.first(static_cast<size_t>(std::min(room, std::ssize(bytes))));
    bytes = bytes.subspan(part.size());
    if (buffer_.empty() && std::ssize(part) == kBufferBytes) {
      write_out(part);
      continue;
    }
    buffer_.insert(buffer_.end(), part.begin(), part.end());
    if (std::ssize(part) == room) flush();
  }
}

void OutputFile::write_out(std::span<const std::byte> bytes) {
  // All pages of a whole piece are this node's alone, and need not wait for the disk.
  bool whole = std::ssize(bytes) == kBufferBytes;
  write_at(whole || shared_ < 0 ? fd_ : shared_, bytes, position_, path_);
  // The disk begins to write now, not when sync() waits for all of it; only a hint.
  if (whole) ::sync_file_range(fd_, position_, std::ssize(bytes), SYNC_FILE_RANGE_WRITE);
  position_ += std::ssize(bytes);
}

void OutputFile::read(std::span<std::byte> bytes, int64_t position) {
  flush();
  read_at(fd_, bytes, position, part_);
}

void OutputFile::copy(OutputFile& from, int64_t position, int64_t bytes) {
  from.flush();
  copy(from.fd_, from.part_, position, bytes);
}

void OutputFile::copy(int from, const fs::path& path, int64_t position, int64_t bytes) {
  flush();
  std::vector<std::byte> part;
  while (bytes > 0) {
    int64_t n = copy_in_kernel(from, position, bytes);
    if (n == 0) {  // it cannot, or the file ends here; reading will tell
      part.resize(static_cast<size_t>(std::min(bytes, room_at(position_))));
      read_at(from, part, position, path);
      write_out(part);
      n = std::ssize(part);
    }
    position += n;
    bytes -= n;
  }
}

// Returns how many of the bytes it has copied. Of a shared file only whole pieces, as in
// write_out().
int64_t OutputFile::copy_in_kernel(int from, int64_t position, int64_t bytes) {
  if (shared_ >= 0) bytes = room_at(position_) < kBufferBytes ? 0 : bytes - bytes % kBufferBytes;
  ssize_t n = 0;
  do {
    off64_t in = position, out = position_;
    n = ::copy_file_range(from, &in, fd_, &out, static_cast<size_t>(bytes), 0);
  } while (n < 0 && errno == EINTR);
  position_ += std::max<int64_t>(n, 0);
  return std::max<int64_t>(n, 0);
}

// A client of NFS writes a page back whole, with what it has read or guessed of its neighbours'
// bytes, unless the file was opened so.
void OutputFile::share() {
  shared_ = ::open(part_.c_str(), O_RDWR | O_DSYNC | O_CLOEXEC);
  check_call(shared_ >= 0, "open", part_);
}

void OutputFile::set_size(int64_t bytes) {
  flush();
  check_call(::ftruncate(fd_, bytes) == 0, "set the size of", path_);
}

void OutputFile::flush() {
  write_out(buffer_);
  buffer_.clear();
}

void OutputFile::sync() const { check_call(::fsync(fd_) == 0, "flush", path_); }

void OutputFile::flush_to_disk() {
  flush();
  buffer_.shrink_to_fit();
  sync();
}

void OutputFile::publish() {
  check_io(is_same_file(fd_, part_), part_.string(),
           " was replaced by another process; do two runs write the same output?");
  int renamed = ::rename(part_.c_str(), path_.c_str());
  check_call(renamed == 0, ("rename " + part_.string() + " to").c_str(), path_);
  part_.clear();
}

void remove_numbered(const fs::path& begin, int first) {
  std::string head = begin.filename().string();
  std::vector<fs::path> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory_of(begin), ignored)) {
    std::string name = entry.path().filename().string();
    if (!name.starts_with(head)) continue;
    int number = -1;
    const char* end = name.data() + name.size();
    auto [rest, error] = std::from_chars(name.data() + head.size(), end, number);
    bool whole = error == std::errc() && (rest == end || *rest == '.');
    if (whole && number >= first) found.push_back(entry.path());
  }
  for (const fs::path& path : found) fs::remove(path, ignored);
}

}  // namespace neox
