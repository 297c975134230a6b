#include "base/error.h"

#include <cerrno>
#include <cstring>

namespace neox {

void fail_to_read(int error, const std::string& message) {
  if (error == ENOENT || error == ENOTDIR || error == EISDIR) throw Error(Exit::kIo, message);
  throw Unreadable(error, message);
}

// EIO and ESHUTDOWN are what a client of Lustre gets that its server has evicted, ENOTCONN one of
// FUSE that has died, ESTALE one of NFS.
bool Unreadable::lost_storage() const {
  return error_ == EIO || error_ == ESHUTDOWN || error_ == ENOTCONN || error_ == ESTALE;
}

std::string describe_errno(int error) {
  std::string text = std::strerror(error);
  switch (error) {
    case ENOSPC:
      return text + " (ENOSPC): free space there, or choose another directory";
    case EDQUOT:
      return text +
             " (EDQUOT): your quota there is used up, though the file system may have room; "
             "free some of your files, or ask for more";
    case EFBIG:
      return text +
             " (EFBIG): larger than a limit of this shell (ulimit -f), or of the file system";
    case EROFS:
      return text + " (EROFS): choose a directory that can be written";
    case EACCES:
      return text + " (EACCES): check its permissions and those of the directories above it";
    case ENOENT:
      return text + " (ENOENT)";
    case EISDIR:
      return text + " (EISDIR): give the path of a file";
    default:
      return text;
  }
}

}  // namespace neox
