// Writes a zip file as torch.save lays it out: records stored as they are, each at a multiple of 64
// bytes, zip64 throughout. The file gets its name when it is whole and on the disk; before, it is
// <path>.tmp-<process>, which goes away with the object. One thread.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace neox::torchfile {

class ZipWriter {
 public:
  explicit ZipWriter(fs::path path);
  ZipWriter(const ZipWriter&) = delete;
  ZipWriter& operator=(const ZipWriter&) = delete;
  ~ZipWriter();

  // A record of that many bytes, which the following calls of write() bring.
  void begin(const std::string& name, uint64_t bytes);
  void write(std::span<const std::byte> bytes);
  // Throws (70) unless all bytes of the record came.
  void end();
  void add(const std::string& name, std::string_view content);
  // After the last record.
  void publish();

 private:
  struct Record {
    std::string name;
    uint64_t bytes, header;
    uint32_t crc32;
  };
  void put(std::string_view bytes);
  void put_at(std::string_view bytes, uint64_t offset);
  std::string local_header(const Record& record) const;
  static std::string directory_entry(const Record& record);
  std::string end_records(uint64_t directory, uint64_t bytes) const;

  fs::path path_, part_;
  int fd_ = -1;
  uint64_t size_ = 0, missing_ = 0;  // written so far; still to come of the last record
  std::vector<Record> records_;
};

}  // namespace neox::torchfile
