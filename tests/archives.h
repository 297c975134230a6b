// Archives and compressed files for tests, made by libarchive.
#pragma once
#include <archive.h>
#include <archive_entry.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace neox::testing {

struct Member {
  std::string name, text;
  int type = AE_IFREG;    // or AE_IFDIR
  std::string link = {};  // the member that it is another name of
};

// libarchive's names: a format (raw, ustar, pax, zip), a filter (none, gzip, zstd, xz, bzip2, lz4).
inline std::string archive_of(const std::vector<Member>& members, const std::string& format,
                              const std::string& filter = "none", const char* options = nullptr) {
  std::string bytes(1 << 20, '\0');
  size_t used = 0;
  for (const Member& member : members) bytes.append(2 * member.text.size() + 4096, '\0');
  std::unique_ptr<archive, int (*)(archive*)> out(archive_write_new(), archive_write_free);
  auto require = [&](int code) {
    check(code == ARCHIVE_OK, format, " ", filter, ": ", archive_error_string(out.get()));
  };
  require(archive_write_set_format_by_name(out.get(), format.c_str()));
  if (filter != "none") require(archive_write_add_filter_by_name(out.get(), filter.c_str()));
  if (options) require(archive_write_set_options(out.get(), options));
  if (options) require(archive_write_set_passphrase(out.get(), "secret"));
  archive_write_set_bytes_in_last_block(out.get(), 1);
  require(archive_write_open_memory(out.get(), bytes.data(), bytes.size(), &used));
  for (const Member& member : members) {
    std::unique_ptr<archive_entry, void (*)(archive_entry*)> entry(archive_entry_new(),
                                                                   archive_entry_free);
    archive_entry_set_pathname(entry.get(), member.name.c_str());
    archive_entry_set_filetype(entry.get(), static_cast<unsigned>(member.type));
    archive_entry_set_perm(entry.get(), 0644);
    if (!member.link.empty()) archive_entry_set_hardlink(entry.get(), member.link.c_str());
    archive_entry_set_size(entry.get(), static_cast<la_int64_t>(member.text.size()));
    require(archive_write_header(out.get(), entry.get()));
    if (!member.text.empty()) archive_write_data(out.get(), member.text.data(), member.text.size());
  }
  require(archive_write_close(out.get()));
  return bytes.substr(0, used);
}

using Members = std::vector<Member>;
inline std::string zip_of(const Members& members) { return archive_of(members, "zip"); }

inline std::string compressed(const std::string& text, const std::string& filter) {
  return archive_of({{"data", text}}, "raw", filter);
}

}  // namespace neox::testing
