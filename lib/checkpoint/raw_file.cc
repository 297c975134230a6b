#include "checkpoint/raw_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace neox {
namespace {

constexpr size_t kBlock = 1 << 20;
constexpr size_t kLeastDirect = 1 << 20;  // smaller pieces go through the page cache

int flags_of(RawFile::Mode mode) {
  switch (mode) {
    case RawFile::Mode::kRead:
      return O_RDONLY;
    case RawFile::Mode::kWrite:
      return O_RDWR;
    default:
      return O_RDWR | O_CREAT | O_TRUNC;
  }
}

}  // namespace

RawFile::RawFile(const fs::path& path, Mode mode)
    : path_(path), mode_(mode), fd_(::open(path.c_str(), flags_of(mode) | O_CLOEXEC, 0666)) {
  int error = errno;
  if (fd_ < 0 && mode == Mode::kRead) fail_read("open", error);
  check_io(fd_ >= 0, mode == Mode::kCreate ? "cannot create " : "cannot open ", path.string(), ": ",
           describe_errno(error));
}

RawFile::~RawFile() {
  if (fd_ >= 0) ::close(fd_);
  if (direct_ >= 0) ::close(direct_);
}

int64_t RawFile::size() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) fail_read("stat", errno);
  return info.st_size;
}

void RawFile::fail_write(int error, int64_t asked) const {
  fail(Exit::kIo, "cannot write ", path_.string(), ": ", describe_write_error(error, path_, asked));
}

void RawFile::fail_read(const char* what, int error) const {
  fail_to_read(error, concat("cannot ", what, " ", path_.string(), ": ", describe_errno(error)));
}

void RawFile::reserve(int64_t bytes) {
  if (bytes == 0) return;
  int result;
  do result = ::fallocate(fd_, 0, 0, bytes);
  while (result != 0 && errno == EINTR);
  if (result != 0 && errno != EOPNOTSUPP && errno != ENOSYS) fail_write(errno, bytes);
}

bool RawFile::goes_direct(const std::byte* bytes, size_t size, int64_t offset) const {
  auto at_page = [](auto number) { return number % kPageBytes == 0; };
  if (size < kLeastDirect || !at_page(reinterpret_cast<uintptr_t>(bytes)) ||
      !at_page(static_cast<size_t>(offset)))
    return false;
  std::call_once(opened_, [&] {
    int access = mode_ == Mode::kRead ? O_RDONLY : O_WRONLY;
    direct_ = ::open(path_.c_str(), access | O_DIRECT | O_CLOEXEC);
    refused_ = direct_ < 0;
  });
  return !refused_;
}

void RawFile::write(std::span<const std::byte> bytes, int64_t offset) {
  size_t done = write_direct(bytes.first(bytes.size() / kPageBytes * kPageBytes), offset);
  write_cached(bytes.subspan(done), offset + static_cast<int64_t>(done));
}

size_t RawFile::write_direct(std::span<const std::byte> bytes, int64_t offset) {
  size_t done = 0;
  while (done < bytes.size() && done % kPageBytes == 0) {
    if (done == 0 && !goes_direct(bytes.data(), bytes.size(), offset)) break;
    ssize_t n = ::pwrite(direct_, bytes.data() + done, bytes.size() - done,
                         offset + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EINVAL) {
      refused_ = true;
      break;
    }
    if (n <= 0) fail_write(n == 0 ? ENOSPC : errno, static_cast<int64_t>(bytes.size()));
    done += static_cast<size_t>(n);
  }
  return done;
}

void RawFile::write_cached(std::span<const std::byte> bytes, int64_t offset) {
  auto [done, error] = pwrite_all(fd_, bytes, offset);
  if (error != 0) fail_write(error, static_cast<int64_t>(bytes.size() - done));
}

void RawFile::read(std::span<std::byte> bytes, int64_t offset) const {
  auto [done, error] = pread_all(fd_, bytes, offset);
  if (error != 0) fail_read("read", error);
  check_io(done == bytes.size(), path_.string(), " ends at byte ", size(), ", before byte ",
           offset + static_cast<int64_t>(bytes.size()), ": it is truncated");
}

size_t RawFile::read_direct(std::span<std::byte> bytes, int64_t offset, size_t least) const {
  size_t done = 0;
  while (done < least && done % kPageBytes == 0) {
    if (done == 0 && !goes_direct(bytes.data(), bytes.size(), offset)) break;
    ssize_t n = ::pread(direct_, bytes.data() + done, bytes.size() - done,
                        offset + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EINVAL) refused_ = true;
    if (n <= 0) break;  // reading through the page cache says why
    done += static_cast<size_t>(n);
  }
  return std::min(done, least);
}

void RawFile::read_pages(std::span<std::byte> pages, int64_t offset, size_t least) const {
  size_t done = read_direct(pages, offset, least);
  read(pages.subspan(done, least - done), offset + static_cast<int64_t>(done));
}

void RawFile::close() {
  if (direct_ >= 0) ::close(std::exchange(direct_, -1));
  int64_t bytes = size();
  if (::fsync(fd_) != 0) fail_write(errno, bytes);
  if (::close(std::exchange(fd_, -1)) != 0) fail_write(errno, bytes);
}

std::string describe_write_error(int error, const fs::path& path, int64_t asked) {
  if (error != ENOSPC && error != EDQUOT) return describe_errno(error);
  return concat(describe_errno(error), "; ", human_bytes(static_cast<double>(asked)),
                " were asked for, ", human_bytes(static_cast<double>(free_bytes(path))),
                " are free there");
}

void write_flushed(const fs::path& path, std::string_view content) {
  RawFile file(path, RawFile::Mode::kCreate);
  file.write(std::as_bytes(std::span(content.data(), content.size())), 0);
  file.close();
}

Checksum checksum_outside(const RawFile& file, std::span<const ByteRange> ranges) {
  Checksummer sum;
  std::vector<std::byte> block;
  auto add = [&](int64_t begin, int64_t end) {
    while (begin < end) {
      block.resize(static_cast<size_t>(std::min<int64_t>(end - begin, kBlock)));
      file.read(block, begin);
      sum.add(block);
      begin += static_cast<int64_t>(block.size());
    }
  };
  int64_t at = 0;
  for (const ByteRange& range : ranges) {
    add(at, range.begin);
    at = range.end;
  }
  add(at, file.size());
  return sum.sum();
}

}  // namespace neox
