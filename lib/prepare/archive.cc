#include "prepare/archive.h"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <clocale>
#include <cstdio>
#include <utility>

#include "base/error.h"

namespace neox {
namespace {

constexpr size_t kUnpackedAtOnce = 1 << 18;
constexpr size_t kTarBlock = 512;

const char* why(archive* from) {
  const char* text = archive_error_string(from);
  return text ? text : "it is damaged";
}

// libarchive gives names in the thread's locale; in that of C it has none for those beyond ASCII.
class Utf8Names {
 public:
  Utf8Names() : utf8_(::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)) {
    if (utf8_) before_ = ::uselocale(utf8_);
  }
  ~Utf8Names() {
    if (!utf8_) return;
    ::uselocale(before_);
    ::freelocale(utf8_);
  }
  Utf8Names(const Utf8Names&) = delete;
  Utf8Names& operator=(const Utf8Names&) = delete;

 private:
  locale_t utf8_, before_ = nullptr;
};

}  // namespace

struct Archive::Callbacks {
  template <class Call>
  static la_int64_t guarded(Archive& self, archive* in, const Call& call) {
    try {
      return call();
    } catch (...) {
      self.error_ = std::current_exception();
      archive_set_error(in, EIO, "cannot read");
      return -1;
    }
  }

  static la_ssize_t read(archive* in, void* data, const void** bytes) {
    Archive& self = *static_cast<Archive*>(data);
    *bytes = self.buffer_.data();
    return guarded(self, in, [&] {
      size_t n = read_fully(*self.from_, self.buffer_);
      if (n >= kTarBlock) {
        std::string_view end(self.buffer_.data() + n - kTarBlock, kTarBlock);
        self.ends_in_zeros_ = end.find_first_not_of('\0') == std::string_view::npos;
      } else if (n > 0) {
        self.ends_in_zeros_ = false;
      }
      return static_cast<la_int64_t>(n);
    });
  }

  // Of a zip, whose source is a file.
  static la_int64_t seek(archive*, void* data, la_int64_t offset, int whence) {
    Archive& self = *static_cast<Archive*>(data);
    auto& file = static_cast<FileSource&>(*self.from_);
    if (whence == SEEK_CUR) offset += file.consumed();
    if (whence == SEEK_END) offset += file.end();
    file.seek(offset);
    return offset;
  }
};

Archive::Archive(std::string path, std::unique_ptr<ByteSource> from)
    : path_(std::move(path)),
      from_(std::move(from)),
      buffer_(kUnpackedAtOnce, '\0'),
      archive_(archive_read_new(), archive_read_free) {
  check(archive_ != nullptr, "libarchive gives no reader");
  archive_read_set_callback_data(archive_.get(), this);
  archive_read_set_read_callback(archive_.get(), Callbacks::read);
}

Archive::~Archive() = default;

std::unique_ptr<Archive> Archive::tar(std::string path, std::unique_ptr<ByteSource> from) {
  std::unique_ptr<Archive> made(new Archive(std::move(path), std::move(from)));
  made->tar_ = true;
  archive_read_support_format_tar(made->archive_.get());
  archive_read_support_format_empty(made->archive_.get());
  archive_read_set_format_option(made->archive_.get(), "tar", "read_concatenated_archives", "1");
  if (archive_read_open1(made->archive_.get()) != ARCHIVE_OK) made->fail_reading("cannot be read");
  return made;
}

std::unique_ptr<Archive> Archive::zip(const std::string& path, int64_t bytes) {
  std::unique_ptr<Archive> made(new Archive(path, std::make_unique<FileSource>(path, 0, bytes)));
  std::string head(4, '\0');
  head.resize(read_fully(*made->from_, head));
  static_cast<FileSource&>(*made->from_).seek(0);
  made->empty_ = head == "PK\x05\x06";
  archive_read_support_format_zip_seekable(made->archive_.get());
  archive_read_set_seek_callback(made->archive_.get(), Callbacks::seek);
  if (!made->empty_ && archive_read_open1(made->archive_.get()) != ARCHIVE_OK)
    made->fail_reading("has no directory of its members at its end: it is cut off,");
  return made;
}

std::unique_ptr<Archive> Archive::inner_zip(std::string path, std::unique_ptr<ByteSource> from) {
  std::unique_ptr<Archive> made(new Archive(std::move(path), std::move(from)));
  archive_read_support_format_zip_streamable(made->archive_.get());
  if (archive_read_open1(made->archive_.get()) != ARCHIVE_OK) made->fail_reading("cannot be read");
  return made;
}

std::optional<std::string> Archive::next() {
  const Utf8Names here;
  while (!empty_) {
    archive_entry* entry = nullptr;
    int code = archive_read_next_header(archive_.get(), &entry);
    if (code == ARCHIVE_EOF) {
      read_to_end();
      return std::nullopt;
    }
    if (code < ARCHIVE_WARN) fail_reading("is damaged or cut off");
    const char* name = archive_entry_pathname_utf8(entry);
    if (!name) name = archive_entry_pathname(entry);
    check_io(name && *name, path_, " has a member without a name");
    check_io(!archive_entry_is_encrypted(entry), path_, ": ", name,
             " is encrypted; decrypt the archive first");
    if (archive_entry_filetype(entry) == AE_IFREG && !archive_entry_hardlink(entry)) return name;
  }
  return std::nullopt;
}

size_t Archive::read(std::span<char> to) {
  la_ssize_t n = archive_read_data(archive_.get(), to.data(), to.size());
  if (n < 0) fail_reading("is damaged or cut off");
  return static_cast<size_t>(n);
}

// What stands behind the last member shows whether it is the last, and whether a compressed archive
// is whole.
void Archive::read_to_end() {
  if (!tar_) return;
  la_ssize_t n = 1;
  while (n > 0) {
    const void* bytes = nullptr;
    n = Callbacks::read(archive_.get(), this, &bytes);
  }
  if (n < 0) fail_reading("is damaged");
  check_io(ends_in_zeros_, path_, " ends at byte ", consumed(),
           " without the mark of its end (blocks of zeros): it is cut off; fetch or copy it again");
}

void Archive::fail_reading(const std::string& what) {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  fail(Exit::kIo, path_, " ", what, " at about byte ", consumed(), " (", why(archive_.get()),
       "); fetch or copy it again");
}

}  // namespace neox
