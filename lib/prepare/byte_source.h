// Bytes that are read from their beginning to their end: a file, what a compressed file holds, a
// member of an archive. For one thread at a time.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/file.h"

namespace neox {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // How many bytes were read, as many as fit or fewer; 0 only at the end. Throws Error (74).
  virtual size_t read(std::span<char> to) = 0;
  // Bytes of the file on the disk that were read for what was given out so far.
  virtual int64_t consumed() const = 0;
};

// Bytes begin .. end of a file, which must stay as it was when it was found.
class FileSource : public ByteSource {
 public:
  // Throws Error (74).
  FileSource(const std::string& path, int64_t begin, int64_t end);
  size_t read(std::span<char> to) override;
  int64_t consumed() const override { return at_; }
  void seek(int64_t at) { at_ = at; }
  int64_t end() const { return end_; }

 private:
  std::string path_;
  int64_t at_, end_;
  Descriptor file_;
};

// Reads until the span is full or the source ends.
size_t read_fully(ByteSource& source, std::span<char> to);

// Gives out bytes that were read before, and then the rest of the source.
class PeekedSource : public ByteSource {
 public:
  PeekedSource(std::string head, std::unique_ptr<ByteSource> rest)
      : head_(std::move(head)), rest_(std::move(rest)) {}
  size_t read(std::span<char> to) override;
  int64_t consumed() const override { return rest_->consumed(); }

 private:
  std::string head_;
  size_t given_ = 0;  // of the head
  std::unique_ptr<ByteSource> rest_;
};

}  // namespace neox
