// Archives and compressed files for tests, as bytes.
#pragma once
#include <archive.h>
#include <archive_entry.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace neox::testing {

using Members = std::vector<std::pair<std::string, std::string>>;  // name and content

class ArchiveWriter {
 public:
  ArchiveWriter() : out_(archive_write_new()), bytes_(1 << 20, 0) {}
  ~ArchiveWriter() { archive_write_free(out_); }
  ArchiveWriter(const ArchiveWriter&) = delete;
  ArchiveWriter& operator=(const ArchiveWriter&) = delete;

  archive* get() const { return out_; }
  std::string write(const Members& members) {
    archive_write_set_bytes_in_last_block(out_, 1);
    check(archive_write_open_memory(out_, bytes_.data(), bytes_.size(), &used_) == ARCHIVE_OK,
          "no archive: ", archive_error_string(out_));
    for (const auto& [name, content] : members) {
      archive_entry* entry = archive_entry_new();
      archive_entry_set_pathname(entry, name.c_str());
      archive_entry_set_filetype(entry, AE_IFREG);
      archive_entry_set_perm(entry, 0644);
      archive_entry_set_size(entry, static_cast<la_int64_t>(content.size()));
      check(archive_write_header(out_, entry) == ARCHIVE_OK,
            "no archive: ", archive_error_string(out_));
      archive_write_data(out_, content.data(), content.size());
      archive_entry_free(entry);
    }
    check(archive_write_close(out_) == ARCHIVE_OK, "no archive: ", archive_error_string(out_));
    return bytes_.substr(0, used_);
  }

 private:
  archive* out_;
  std::string bytes_;
  size_t used_ = 0;
};

inline std::string zip_of(const Members& members) {
  ArchiveWriter writer;
  archive_write_set_format_zip(writer.get());
  return writer.write(members);
}

inline std::string tar_of(const Members& members) {
  ArchiveWriter writer;
  archive_write_set_format_ustar(writer.get());
  return writer.write(members);
}

// filter: gzip, bzip2, xz or zstd.
inline std::string compressed(const std::string& content, const char* filter) {
  ArchiveWriter writer;
  archive_write_set_format_raw(writer.get());
  check(archive_write_add_filter_by_name(writer.get(), filter) == ARCHIVE_OK, "no ", filter);
  return writer.write({{"content", content}});
}

}  // namespace neox::testing
