// The members of tar and zip archives, one after another.
#pragma once
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "prepare/byte_source.h"

struct archive;

namespace neox {

// For one thread.
class Archive {
 public:
  // Their bytes come from `from`, decompressed already; `path` stands in messages.
  static std::unique_ptr<Archive> tar(std::string path, std::unique_ptr<ByteSource> from);
  static std::unique_ptr<Archive> zip(const std::string& path, int64_t bytes);
  // Of a zip in an archive, which cannot be read but from its beginning on.
  static std::unique_ptr<Archive> inner_zip(std::string path, std::unique_ptr<ByteSource> from);
  ~Archive();
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;

  // The name of the next regular file in it; none after the last, and then all bytes of the archive
  // were read, and their checksums are right. Links, which are another name of a member, are passed
  // over. Throws Error (74) for damaged and encrypted ones.
  std::optional<std::string> next();
  // Of that file.
  size_t read(std::span<char> to);
  int64_t consumed() const { return from_->consumed(); }

 private:
  struct Callbacks;
  Archive(std::string path, std::unique_ptr<ByteSource> from);
  [[noreturn]] void fail_reading(const std::string& what);
  void read_to_end();

  std::string path_;
  std::unique_ptr<ByteSource> from_;
  std::string buffer_;
  bool ends_in_zeros_ = false;  // what was read last
  bool tar_ = false;
  bool empty_ = false;        // a zip, which libarchive does not know then
  std::exception_ptr error_;  // of from_, which must not pass through C
  std::unique_ptr<archive, int (*)(archive*)> archive_;
};

}  // namespace neox
