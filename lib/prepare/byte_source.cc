#include "prepare/byte_source.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace neox {

FileSource::FileSource(const std::string& path, int64_t begin, int64_t end)
    : path_(path), at_(begin), end_(end), file_(path, O_RDONLY, "open") {}

size_t FileSource::read(std::span<char> to) {
  auto wanted = std::min(to.size(), static_cast<size_t>(std::max<int64_t>(end_ - at_, 0)));
  if (wanted == 0) return 0;
  auto [n, error] = pread_all(file_.get(), std::as_writable_bytes(to.first(wanted)), at_);
  at_ += static_cast<int64_t>(n);
  check_io(error == 0, "cannot read ", path_, ": ", describe_errno(error));
  check_io(n == wanted, path_, " ends at byte ", at_, ", and had at least ", end_,
           " bytes when it was found; it must not change while it is read");
  return n;
}

size_t read_fully(ByteSource& source, std::span<char> to) {
  size_t done = 0;
  for (size_t n = 1; n > 0 && done < to.size(); done += n) n = source.read(to.subspan(done));
  return done;
}

size_t PeekedSource::read(std::span<char> to) {
  size_t n = std::min(to.size(), head_.size() - given_);
  if (n == 0) return rest_->read(to);
  std::memcpy(to.data(), head_.data() + given_, n);
  given_ += n;
  return n;
}

}  // namespace neox
