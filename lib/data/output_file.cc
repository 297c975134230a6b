#include "data/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"

namespace neox {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

// Throws for a failed call, after whose name errno is still its own.
void check_call(bool ok, const char* what, const fs::path& path) {
  int error = errno;
  check_io(ok, "cannot ", what, " ", path.string(), ": ", describe_errno(error));
}

void write_at(int fd, std::span<const std::byte> bytes, int64_t position, const fs::path& path) {
  while (!bytes.empty()) {
    ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), position);
    if (n < 0 && errno == EINTR) continue;
    check_call(n >= 0, "write", path);
    bytes = bytes.subspan(static_cast<size_t>(n));
    position += n;
  }
}

}  // namespace

OutputFile::OutputFile(fs::path path, const std::string& life, Open how)
    : path_(std::move(path)), part_(path_), how_(how) {
  part_ += ".tmp-" + (life.empty() ? std::to_string(::getpid()) : life);
  int create = how == Open::kCreate ? O_CREAT | O_TRUNC : 0;
  fd_ = ::open(part_.c_str(), O_WRONLY | create | O_CLOEXEC, 0666);
  check_io(fd_ >= 0 || how == Open::kCreate || errno != ENOENT, "rank 0 has made ", part_.string(),
           ", and it is not there: the directory must be on a file system that all nodes share");
  check_call(fd_ >= 0, how == Open::kCreate ? "create" : "open", part_);
  buffer_.reserve(kBufferBytes);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      part_(std::exchange(other.part_, {})),
      how_(other.how_),
      fd_(std::exchange(other.fd_, -1)),
      position_(other.position_),
      buffer_(std::move(other.buffer_)) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!part_.empty() && how_ == Open::kCreate) ::unlink(part_.c_str());
}

void OutputFile::seek(int64_t position) {
  write_out(buffer_);
  buffer_.clear();
  position_ = position;
}

void OutputFile::write(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > kBufferBytes) {
    write_out(buffer_);
    buffer_.clear();
  }
  if (bytes.size() > kBufferBytes) return write_out(bytes);
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void OutputFile::write_out(std::span<const std::byte> bytes) {
  write_at(fd_, bytes, position_, path_);
  position_ += static_cast<int64_t>(bytes.size());
}

void OutputFile::copy(int from, const fs::path& path, int64_t position, int64_t bytes) {
  write_out(buffer_);
  buffer_.clear();
  while (bytes > 0) {
    off64_t in = position, out = position_;
    ssize_t n = ::copy_file_range(from, &in, fd_, &out, static_cast<size_t>(bytes), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;  // it cannot, or the disk is full, or the file ends: what follows will tell
    position += n;
    position_ += n;
    bytes -= n;
  }
  std::vector<std::byte> part(std::min(static_cast<size_t>(bytes), kBufferBytes));
  while (bytes > 0) {
    auto wanted = std::min(part.size(), static_cast<size_t>(bytes));
    ssize_t n = ::pread(from, part.data(), wanted, position);
    if (n < 0 && errno == EINTR) continue;
    check_call(n >= 0, "read", path);
    check_io(n > 0, path.string(), " is shorter than it was: it ends at byte ", position);
    write_out(std::span(part).first(static_cast<size_t>(n)));
    position += n;
    bytes -= n;
  }
}

void OutputFile::flush_to_disk() {
  write_out(buffer_);
  buffer_ = {};
  check_call(::fsync(fd_) == 0, "flush", path_);
  check_call(::close(std::exchange(fd_, -1)) == 0, "close", path_);
}

void OutputFile::publish() {
  int renamed = ::rename(part_.c_str(), path_.c_str());
  check_call(renamed == 0, ("rename " + part_.string() + " to").c_str(), path_);
  part_.clear();
}

HeldBytes::HeldBytes(fs::path path, std::string life, size_t memory_bytes)
    : path_(std::move(path)), memory_bytes_(memory_bytes) {
  path_ += ".held-" + life;
}

HeldBytes::~HeldBytes() {
  if (fd_ >= 0) ::close(fd_);
}

void HeldBytes::write(std::span<const std::byte> bytes) {
  if (held_ + bytes.size() > memory_bytes_) spill();
  if (chunks_.empty() || chunks_.back().size() + bytes.size() > kBufferBytes) {
    chunks_.emplace_back();
    chunks_.back().reserve(std::max(kBufferBytes, bytes.size()));
  }
  chunks_.back().insert(chunks_.back().end(), bytes.begin(), bytes.end());
  held_ += bytes.size();
}

void HeldBytes::spill() {
  if (fd_ < 0) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    check_call(fd_ >= 0, "create", path_);
    ::unlink(path_.c_str());
  }
  for (const auto& chunk : chunks_) {
    write_at(fd_, chunk, spilled_, path_);
    spilled_ += static_cast<int64_t>(chunk.size());
  }
  chunks_.clear();
  held_ = 0;
}

void HeldBytes::copy_to(OutputFile& file, int64_t bytes) {
  std::vector<std::byte> buffer(spilled_ > 0 ? kBufferBytes : 0);
  for (int64_t at = 0; at < std::min(bytes, spilled_);) {
    auto wanted = std::min(static_cast<int64_t>(buffer.size()), std::min(bytes, spilled_) - at);
    ssize_t n = ::pread(fd_, buffer.data(), static_cast<size_t>(wanted), at);
    if (n < 0 && errno == EINTR) continue;
    check_call(n > 0, "read back", path_);
    file.write(std::span(buffer).first(static_cast<size_t>(n)));
    at += n;
  }
  bytes -= std::min(bytes, spilled_);
  for (const auto& chunk : chunks_) {
    auto wanted = std::min(static_cast<int64_t>(chunk.size()), bytes);
    file.write(std::span(chunk).first(static_cast<size_t>(wanted)));
    bytes -= wanted;
  }
}

}  // namespace neox
