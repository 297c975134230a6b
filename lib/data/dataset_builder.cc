#include "data/dataset_builder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"

namespace neox {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

fs::path in_its_directory(const std::string& path) {
  fs::path dir = fs::path(path).parent_path();
  if (!dir.empty()) make_directories(dir);
  return path;
}

template <class T>
void write_value(OutputFile& file, T value) {
  file.write(std::as_bytes(std::span(&value, 1)));
}

}  // namespace

OutputFile::OutputFile(fs::path path) : path_(std::move(path)), part_(path_) {
  part_ += concat(".tmp-", ::getpid());
  fd_ = ::open(part_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  check_io(fd_ >= 0, "cannot create ", part_.string(), ": ", describe_errno(errno));
  buffer_.reserve(kBufferBytes);
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!part_.empty()) ::unlink(part_.c_str());
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
  while (!bytes.empty()) {
    ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    check_io(n >= 0, "cannot write ", path_.string(), ": ", describe_errno(errno));
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void OutputFile::flush_to_disk() {
  write_out(buffer_);
  buffer_ = {};
  bool flushed = ::fsync(fd_) == 0 || errno == EINVAL;  // pipes and devices cannot be flushed
  check_io(flushed, "cannot flush ", path_.string(), ": ", describe_errno(errno));
  bool closed = ::close(std::exchange(fd_, -1)) == 0;
  check_io(closed, "cannot close ", path_.string(), ": ", describe_errno(errno));
}

void OutputFile::publish() {
  check_io(::rename(part_.c_str(), path_.c_str()) == 0, "cannot rename ", part_.string(), " to ",
           path_.string(), ": ", describe_errno(errno));
  part_.clear();
}

DatasetBuilder::DatasetBuilder(const std::string& prefix, int64_t vocab)
    : prefix_(prefix),
      vocab_(vocab),
      type_(token_type_of(vocab)),
      bin_(in_its_directory(prefix + ".bin")),
      idx_(prefix + ".idx") {}

void DatasetBuilder::add_document(std::span<const int32_t> tokens) {
  check_io(tokens.size() <= INT32_MAX, prefix_, ": document ", num_documents(), " has ",
           tokens.size(), " tokens, more than the format can hold; split it");
  for (int32_t token : tokens)
    check(token >= 0 && token < vocab_, prefix_, ": token id ", token, " in document ",
          num_documents(), " is outside the vocabulary of ", vocab_);
  if (type_ == TokenType::kUint16) {
    narrow_.assign(tokens.begin(), tokens.end());
    bin_.write(std::as_bytes(std::span(narrow_)));
  } else {
    bin_.write(std::as_bytes(tokens));
  }
  lengths_.push_back(static_cast<int32_t>(tokens.size()));
  num_tokens_ += static_cast<int64_t>(tokens.size());
}

void DatasetBuilder::write_index() {
  idx_.write(std::as_bytes(std::span("MMIDIDX\0", 9)));
  write_value<uint64_t>(idx_, 1);
  write_value<uint8_t>(idx_, static_cast<uint8_t>(type_));
  write_value<uint64_t>(idx_, lengths_.size());
  write_value<uint64_t>(idx_, lengths_.size() + 1);
  idx_.write(std::as_bytes(std::span(lengths_)));
  int64_t position = 0;
  for (int32_t length : lengths_) {
    write_value(idx_, position);
    position += length * token_bytes(type_);
  }
  for (int64_t i = 0; i <= num_documents(); ++i) write_value(idx_, i);
}

void DatasetBuilder::finish() {
  write_index();
  bin_.flush_to_disk();
  idx_.flush_to_disk();
  // An .idx is never beside a .bin that is not its own, whenever the machine stops.
  ::unlink((prefix_ + ".idx").c_str());
  bin_.publish();
  try {
    idx_.publish();
  } catch (...) {
    ::unlink((prefix_ + ".bin").c_str());
    throw;
  }
  fs::path dir = fs::path(prefix_).parent_path();
  sync_directory(dir.empty() ? "." : dir);
}

}  // namespace neox
