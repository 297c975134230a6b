#include "metrics/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace neox {

AppendFile::AppendFile(const fs::path& path, Open how)
    : path_(path),
      fd_(::open(path.c_str(),
                 O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (how == Open::kNew ? O_EXCL : 0),
                 0666)) {
  check_io(fd_ >= 0, "cannot open ", path.string(), " for metrics: ", describe_errno(errno));
}

AppendFile::~AppendFile() { ::close(fd_); }

// What a full disk leaves of a record would spoil those behind it.
void AppendFile::append(std::string_view bytes) {
  const off_t before = ::lseek(fd_, 0, SEEK_END);
  while (!bytes.empty()) {
    ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    int error = errno;
    if (n < 0 && before >= 0) (void)!::ftruncate(fd_, before);
    check_io(n >= 0, "cannot write metrics to ", path_.string(), ": ", describe_errno(error));
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace neox
