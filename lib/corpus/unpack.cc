#include "corpus/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <set>
#include <span>

#include "base/error.h"
#include "base/progress.h"
#include "base/text.h"
#include "data/output_file.h"

namespace neox {
namespace {

class Archive {
 public:
  explicit Archive(const fs::path& path)
      : path_(path), archive_(archive_read_new(), archive_read_free) {
    check(archive_ != nullptr, "libarchive gives no reader");
    archive_read_support_filter_all(archive_.get());
    archive_read_support_format_tar(archive_.get());
    archive_read_support_format_zip(archive_.get());
    archive_read_support_format_raw(archive_.get());  // a compressed file
    require(archive_read_open_filename(archive_.get(), path.c_str(), 1 << 18));
  }

  // The next regular file; null after the last. Refuses links and other things.
  archive_entry* next() {
    for (;;) {
      archive_entry* entry = nullptr;
      int code = archive_read_next_header(archive_.get(), &entry);
      if (code == ARCHIVE_EOF) return nullptr;
      require(code);
      // Any file whatever would be one in the format "raw".
      check_io(archive_format(archive_.get()) != ARCHIVE_FORMAT_RAW ||
                   archive_filter_count(archive_.get()) > 1,
               path_.string(), " is not an archive, or it is damaged");
      mode_t type = archive_entry_filetype(entry);
      if (type == AE_IFDIR) continue;
      check_io(type == AE_IFREG && archive_entry_hardlink(entry) == nullptr, path_.string(), ": ",
               name(entry), " is neither a file nor a directory, and is not unpacked");
      return entry;
    }
  }

  // Of a compressed file, which has none in it: that of the archive without its ending.
  std::string name(archive_entry* entry) const {
    if (archive_format(archive_.get()) == ARCHIVE_FORMAT_RAW) return path_.stem().string();
    const char* found = archive_entry_pathname_utf8(entry);
    if (!found) found = archive_entry_pathname(entry);
    check_io(found && *found, path_.string(), " holds a file without a name");
    return found;
  }

  // The next bytes of the file, and where they go; false at its end.
  bool read(std::span<const std::byte>& bytes, int64_t& offset) {
    const void* data = nullptr;
    size_t size = 0;
    la_int64_t at = 0;
    int code = archive_read_data_block(archive_.get(), &data, &size, &at);
    if (code == ARCHIVE_EOF) return false;
    require(code);
    bytes = {static_cast<const std::byte*>(data), size};
    offset = at;
    return true;
  }

  int64_t bytes_read() const { return archive_filter_bytes(archive_.get(), -1); }

 private:
  void require(int code) const {
    if (code >= ARCHIVE_WARN) return;
    const char* why = archive_error_string(archive_.get());
    fail(Exit::kIo, "cannot unpack ", path_.string(), ": ", why ? why : "it is damaged");
  }

  fs::path path_;
  std::unique_ptr<archive, decltype(&archive_read_free)> archive_;
};

// Names are those of somebody else: none may lead out of the directory.
fs::path inside(const fs::path& directory, const fs::path& archive, const std::string& name) {
  fs::path path(name);
  bool leads_out = path.is_absolute() || path.filename().empty() ||
                   std::find(path.begin(), path.end(), "..") != path.end();
  check_io(
      !leads_out, archive.string(), ": the member ", name,
      " would lie outside of the directory that it is unpacked to; the archive is not trusted");
  return directory / path.lexically_normal();
}

class Unpacking {
 public:
  Unpacking(const fs::path& path, const std::vector<std::string>& members,
            const fs::path& directory, const std::atomic<bool>* stop)
      : path_(path),
        archive_(path),
        wanted_(members.begin(), members.end()),
        all_(members.empty()),
        directory_(directory),
        stop_(stop),
        progress_({.label = "unpack " + path.filename().string(),
                   .unit = "B",
                   .total = static_cast<int64_t>(fs::file_size(path))}) {}

  void run() {
    while (archive_entry* entry = archive_.next()) {
      std::string name = archive_.name(entry);
      names_.push_back(name);
      fs::path to = inside(directory_, path_, name);
      if (!all_ && wanted_.erase(name) == 0) continue;
      write(to);
    }
    constexpr size_t kShown = 5;
    if (names_.size() > kShown) names_.resize(kShown), names_.push_back("...");
    check_io(all_ || wanted_.empty(), path_.string(), " has no member ",
             wanted_.empty() ? "" : *wanted_.begin(), "; it has ", join(names_, ", "));
    check_io(!names_.empty(), path_.string(), " holds no file");
    progress_.finish();
  }

 private:
  void write(const fs::path& to) {
    make_directories(to.parent_path());
    OutputFile file(to, "unpack");
    std::span<const std::byte> bytes;
    for (int64_t offset = 0; archive_.read(bytes, offset);) {
      check_io(!stop_ || !*stop_, "the unpacking was stopped");
      file.seek(offset);
      file.write(bytes);
      progress_.update(archive_.bytes_read());
    }
    file.flush_to_disk();
    file.publish();
  }

  const fs::path& path_;
  Archive archive_;
  std::set<std::string> wanted_;
  const bool all_;
  const fs::path& directory_;
  const std::atomic<bool>* stop_;
  Progress progress_;
  std::vector<std::string> names_;
};

}  // namespace

void unpack(const fs::path& archive, const std::vector<std::string>& members,
            const fs::path& directory, const std::string& life, const std::atomic<bool>* stop) {
  check_io(fs::is_regular_file(archive), "there is no archive ", archive.string());
  fs::path part = directory;
  part += ".tmp-" + (life.empty() ? std::to_string(::getpid()) : life);
  fs::remove_all(part);
  make_directories(part);
  try {
    Unpacking(archive, members, part, stop).run();
    fs::remove_all(directory);
    fs::rename(part, directory);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(part, ignored);
    throw;
  }
  sync_directory(directory.parent_path().empty() ? "." : directory.parent_path());
}

}  // namespace neox
