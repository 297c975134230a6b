#include "metrics/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace neox {
namespace {

bool takes_lines(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && (S_ISREG(info.st_mode) || S_ISCHR(info.st_mode));
}

// A pipe without a reader would keep the process in open(), where signals that ask it to stop are
// not looked for; with O_NONBLOCK that is ENXIO.
int open_to_append(const fs::path& path, int flags) {
  int fd =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | flags, 0666);
  int error = errno;
  bool fits = fd < 0 ? error != ENXIO : takes_lines(fd);
  if (fd >= 0 && !fits) ::close(fd);
  check_io(fits, path.string(),
           " is a pipe, a socket or a device, not a file for metrics; remove it, or name another "
           "directory");
  check_io(fd >= 0, "cannot open ", path.string(), " for metrics: ", describe_errno(error));
  ::fcntl(fd, F_SETFL, O_APPEND);  // writes to a terminal wait
  return fd;
}

}  // namespace

AppendFile::AppendFile(const fs::path& path, Open how)
    : path_(path), fd_(open_to_append(path, how == Open::kNew ? O_EXCL : 0)) {}

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
