#include "torchfile/zip_reader.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "torchfile/bytes.h"

namespace neox::torchfile {
namespace {

constexpr uint32_t kLocal = 0x04034b50, kEntry = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                   kLocator64 = 0x07064b50;
constexpr uint64_t kEntryBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20;
constexpr uint64_t kMaxComment = 0xffff;

struct Directory {
  uint64_t entries, bytes, offset;
};

struct Entry {
  std::string name;
  uint32_t crc32;
  uint64_t bytes, header;
};

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  std::map<std::string, ZipRecord, std::less<>> read() {
    Directory directory = find_directory();
    std::map<std::string, ZipRecord, std::less<>> records;
    uint64_t at = directory.offset, end = directory.offset + directory.bytes;
    for (uint64_t i = 0; i < directory.entries; ++i) {
      Entry entry = read_entry(at, end);
      ZipRecord record = locate(entry, directory.offset);
      check_io(records.emplace(entry.name, record).second, file_, ": has the record ", entry.name,
               " twice");
    }
    check_io(at == end, file_, ": the zip directory has ", end - at, " bytes after its last entry");
    check_apart(records);
    return records;
  }

 private:
  // T at that offset, which the caller has checked.
  template <class T>
  T number(uint64_t at) const {
    return little<T>(bytes_.subspan(at, sizeof(T)));
  }
  template <class... Parts>
  void check_zip(bool ok, const Parts&... parts) const {
    check_io(ok, file_, ": damaged or cut off: ", parts..., " (zip file of ", bytes_.size(),
             " bytes); copy or download the file again");
  }

  // The end record is the last thing in the file, but for a comment of the length that it says.
  uint64_t find_end() const {
    uint64_t size = bytes_.size();
    check_zip(size >= kEndBytes, "too short for a zip file");
    uint64_t lowest = size - kEndBytes - std::min(kMaxComment, size - kEndBytes);
    for (uint64_t at = size - kEndBytes + 1; at-- > lowest;)
      if (number<uint32_t>(at) == kEnd && number<uint16_t>(at + 20) == size - at - kEndBytes)
        return at;
    fail(Exit::kIo, file_, ": damaged or cut off: no zip directory at its end (", size,
         " bytes); copy or download the file again");
  }

  Directory find_directory() const {
    uint64_t end = find_end(), limit = end;
    Directory found = {number<uint16_t>(end + 10), number<uint32_t>(end + 12),
                       number<uint32_t>(end + 16)};
    uint64_t disk = number<uint16_t>(end + 4);
    if (end >= kLocatorBytes && number<uint32_t>(end - kLocatorBytes) == kLocator64) {
      uint64_t locator = end - kLocatorBytes;
      limit = number<uint64_t>(locator + 8);
      check_zip(
          limit <= locator && locator - limit >= kEnd64Bytes && number<uint32_t>(limit) == kEnd64,
          "the zip64 end record is not at byte ", limit);
      found = {number<uint64_t>(limit + 32), number<uint64_t>(limit + 40),
               number<uint64_t>(limit + 48)};
      disk = number<uint32_t>(limit + 16);
    }
    check_zip(disk == 0 || disk == 0xffff, "one of several parts of an archive");
    check_zip(found.offset <= limit && found.bytes <= limit - found.offset, "its directory of ",
              found.bytes, " bytes at byte ", found.offset, " does not fit in front of byte ",
              limit);
    check_zip(found.entries <= found.bytes / kEntryBytes, "its directory of ", found.bytes,
              " bytes cannot have ", found.entries, " entries");
    return found;
  }

  Entry read_entry(uint64_t& at, uint64_t end) const {
    check_zip(end - at >= kEntryBytes && number<uint32_t>(at) == kEntry,
              "no directory entry at byte ", at);
    uint64_t name = number<uint16_t>(at + 28), extra = number<uint16_t>(at + 30),
             comment = number<uint16_t>(at + 32);
    check_zip(end - at - kEntryBytes >= name + extra + comment, "the directory entry at byte ", at,
              " is longer than the directory");
    Entry entry = {std::string(text(bytes_.subspan(at + kEntryBytes, name))),
                   number<uint32_t>(at + 16), number<uint32_t>(at + 24), number<uint32_t>(at + 42)};
    uint64_t stored = number<uint32_t>(at + 20);
    apply_zip64(bytes_.subspan(at + kEntryBytes + name, extra), entry, stored);
    int method = number<uint16_t>(at + 10);
    check_io(method == 0, file_, ": the record ", entry.name, " is compressed (method ", method,
             "); torch.save stores records as they are: unpack the file and zip it with zip -0");
    check_io((number<uint16_t>(at + 8) & 1) == 0, file_, ": the record ", entry.name,
             " is encrypted");
    check_zip(stored == entry.bytes, "the record ", entry.name, " has two sizes, ", stored, " and ",
              entry.bytes);
    at += kEntryBytes + name + extra + comment;
    return entry;
  }

  // Replaces what did not fit into 32 bits, in the order of the zip64 field.
  void apply_zip64(std::span<const std::byte> extra, Entry& entry, uint64_t& stored) const {
    while (extra.size() >= 4) {
      uint16_t id = little<uint16_t>(extra), size = little<uint16_t>(extra.subspan(2));
      check_zip(size <= extra.size() - 4, "a field of the directory entry of ", entry.name,
                " is too long");
      std::span<const std::byte> field = extra.subspan(4, size);
      extra = extra.subspan(4 + size);
      if (id != 1) continue;
      for (uint64_t* value : {&entry.bytes, &stored, &entry.header}) {
        if (*value != kIn64) continue;
        check_zip(field.size() >= 8, "the zip64 field of ", entry.name, " is too short");
        *value = little<uint64_t>(field);
        field = field.subspan(8);
      }
    }
  }

  ZipRecord locate(const Entry& entry, uint64_t limit) const {
    check_zip(entry.header <= limit && limit - entry.header >= kLocalBytes &&
                  number<uint32_t>(entry.header) == kLocal,
              "the record ", entry.name, " is not at byte ", entry.header);
    uint64_t name = number<uint16_t>(entry.header + 26),
             extra = number<uint16_t>(entry.header + 28);
    uint64_t room = limit - entry.header - kLocalBytes;
    check_zip(name + extra <= room && entry.bytes <= room - name - extra, "the record ", entry.name,
              " of ", entry.bytes, " bytes at byte ", entry.header, " reaches past byte ", limit);
    uint64_t begin = entry.header + kLocalBytes;
    check_zip(text(bytes_.subspan(begin, name)) == entry.name, "at byte ", entry.header,
              " lies another record than ", entry.name);
    return {bytes_.subspan(begin + name + extra, entry.bytes), entry.crc32, entry.header};
  }

  void check_apart(const std::map<std::string, ZipRecord, std::less<>>& records) const {
    std::vector<std::pair<uint64_t, const std::string*>> starts;
    for (const auto& [name, record] : records) starts.emplace_back(record.header, &name);
    std::sort(starts.begin(), starts.end());
    for (size_t i = 1; i < starts.size(); ++i) {
      std::span<const std::byte> before = records.find(*starts[i - 1].second)->second.bytes;
      uint64_t end = static_cast<uint64_t>(before.data() - bytes_.data()) + before.size();
      check_zip(end <= starts[i].first, "the records ", *starts[i - 1].second, " and ",
                *starts[i].second, " overlap");
    }
  }

  std::span<const std::byte> bytes_;
  const std::string& file_;
};

}  // namespace

std::map<std::string, ZipRecord, std::less<>> read_zip(std::span<const std::byte> bytes,
                                                       const std::string& file) {
  return Reader(bytes, file).read();
}

}  // namespace neox::torchfile
