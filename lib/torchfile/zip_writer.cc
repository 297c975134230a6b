#include "torchfile/zip_writer.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/file.h"
#include "torchfile/bytes.h"

namespace neox::torchfile {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint16_t kVersion = 45, kUtf8 = 0x0800, kZip64Field = 1;
constexpr uint16_t kPaddingField = 0x4246;  // "FB", as PyTorch's own

template <class T>
void append(std::string& out, T number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

uint32_t low(uint64_t number) { return number >= kIn64 ? kIn64 : static_cast<uint32_t>(number); }

// What the local header and the entry of the directory have in common.
void append_description(std::string& out, uint32_t crc32, uint64_t bytes, size_t name,
                        size_t extra) {
  append(out, kVersion), append(out, kUtf8);
  append(out, uint16_t{0});  // stored
  append(out, uint32_t{0});  // no time: equal content gives equal files
  append(out, crc32), append(out, low(bytes)), append(out, low(bytes));
  append(out, static_cast<uint16_t>(name)), append(out, static_cast<uint16_t>(extra));
}

}  // namespace

ZipWriter::ZipWriter(fs::path path) : path_(std::move(path)), part_(path_) {
  part_ += concat(".tmp-", ::getpid());
  fd_ = ::open(part_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  int error = errno;
  check_io(fd_ >= 0, "cannot create ", part_.string(), ": ", describe_errno(error));
}

ZipWriter::~ZipWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(part_.c_str());
}

void ZipWriter::put_at(std::string_view bytes, uint64_t offset) {
  Moved moved = pwrite_all(fd_, std::as_bytes(std::span(bytes)), static_cast<int64_t>(offset));
  check_error(moved.error, "write", part_);
}

void ZipWriter::put(std::string_view bytes) {
  put_at(bytes, size_);
  size_ += bytes.size();
}

std::string ZipWriter::local_header(const Record& record) const {
  std::string extra;
  if (low(record.bytes) == kIn64) {
    append(extra, kZip64Field), append(extra, uint16_t{16});
    append(extra, record.bytes), append(extra, record.bytes);
  }
  uint64_t before = record.header + kLocalBytes + record.name.size() + extra.size() + 4;
  uint64_t padding = (kAlignment - before % kAlignment) % kAlignment;
  append(extra, kPaddingField), append(extra, static_cast<uint16_t>(padding));
  extra.append(padding, 'Z');
  std::string header = "PK\3\4";
  append_description(header, record.crc32, record.bytes, record.name.size(), extra.size());
  return header + record.name + extra;
}

std::string ZipWriter::directory_entry(const Record& record) {
  std::string numbers, extra;
  if (low(record.bytes) == kIn64) append(numbers, record.bytes), append(numbers, record.bytes);
  if (low(record.header) == kIn64) append(numbers, record.header);
  if (!numbers.empty()) {
    append(extra, kZip64Field), append(extra, static_cast<uint16_t>(numbers.size()));
    extra += numbers;
  }
  std::string entry = "PK\1\2";
  append(entry, kVersion);
  append_description(entry, record.crc32, record.bytes, record.name.size(), extra.size());
  append(entry, uint16_t{0}), append(entry, uint16_t{0});  // comment, disk
  append(entry, uint16_t{0}), append(entry, uint32_t{0});  // attributes
  append(entry, low(record.header));
  return entry + record.name + extra;
}

std::string ZipWriter::end_records(uint64_t directory, uint64_t bytes) const {
  uint64_t entries = records_.size();
  std::string end = "PK\6\6";
  append(end, uint64_t{44}), append(end, kVersion), append(end, kVersion);
  append(end, uint32_t{0}), append(end, uint32_t{0});  // disks
  append(end, entries), append(end, entries), append(end, bytes), append(end, directory);
  end += "PK\6\7";
  append(end, uint32_t{0}), append(end, directory + bytes), append(end, uint32_t{1});
  end += "PK\5\6";
  auto few = static_cast<uint16_t>(std::min<uint64_t>(entries, 0xffff));
  append(end, uint32_t{0}), append(end, few), append(end, few);
  append(end, low(bytes)), append(end, low(directory)), append(end, uint16_t{0});
  return end;
}

void ZipWriter::begin(const std::string& name, uint64_t bytes) {
  check(missing_ == 0, part_.string(), ": a record began before the last one ended");
  records_.push_back({name, bytes, size_, 0});
  missing_ = bytes;
  put(local_header(records_.back()));
}

void ZipWriter::write(std::span<const std::byte> bytes) {
  check(bytes.size() <= missing_, part_.string(), ": the record ", records_.back().name, " of ",
        records_.back().bytes, " bytes gets ", bytes.size() - missing_, " bytes more");
  if (bytes.empty()) return;
  uint32_t& crc = records_.back().crc32;
  crc = static_cast<uint32_t>(
      crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  put(text(bytes));
  missing_ -= bytes.size();
}

void ZipWriter::end() {
  const Record& record = records_.back();
  check(missing_ == 0, part_.string(), ": the record ", record.name, " of ", record.bytes,
        " bytes lacks ", missing_);
  put_at(local_header(record), record.header);  // now with the checksum
}

void ZipWriter::add(const std::string& name, std::string_view content) {
  begin(name, content.size());
  write(bytes_of(content));
  end();
}

void ZipWriter::publish() {
  uint64_t directory = size_;
  std::string entries;
  for (const Record& record : records_) entries += directory_entry(record);
  put(entries + end_records(directory, entries.size()));
  auto check_call = [&](bool ok, const char* what) {
    int error = errno;
    check_io(ok, "cannot ", what, " ", part_.string(), ": ", describe_errno(error));
  };
  check_call(::fsync(fd_) == 0, "flush");
  check_call(::rename(part_.c_str(), path_.c_str()) == 0, "rename the finished file");
  ::close(fd_);
  fd_ = -1;
  sync_directory(directory_of(path_));
}

}  // namespace neox::torchfile
