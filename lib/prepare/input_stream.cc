#include "prepare/input_stream.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "prepare/archive.h"
#include "prepare/arrow_plugin.h"
#include "prepare/content.h"
#include "prepare/decompress.h"
#include "prepare/exclusion.h"
#include "prepare/json_array.h"

namespace neox {
namespace {

constexpr size_t kChecksumWithin = 1 << 20;  // of bzip2's blocks

std::string head_of(ByteSource& source) {
  std::string head(kHeadBytes, '\0');
  head.resize(read_fully(source, head));
  return head;
}

// The head, and what is read on where it looks like that of a binary file: so may damage to what
// was compressed, which shows in the checksum behind it.
std::string checked(std::string head, ByteSource& source) {
  std::string more(is_binary(head) ? kChecksumWithin : 0, '\0');
  more.resize(read_fully(source, more));
  return std::move(head) + more;
}

// The bytes of a file, decompressed where they are compressed.
std::unique_ptr<ByteSource> open_source(const InputFile& file, int threads) {
  auto source = std::make_unique<FileSource>(file.path, 0, file.bytes);
  std::optional<Compression> compression = compression_of(head_of(*source));
  source->seek(0);
  if (!compression) return source;
  return std::make_unique<DecompressedSource>(file.path, *compression, std::move(source), threads);
}

// What a file of this format gives out, of which `source` is the text from a byte on.
std::unique_ptr<ByteSource> as_lines(const InputFile& file, std::unique_ptr<ByteSource> source,
                                     int64_t byte = 0, ArraySource::To to = ArraySource::To::kEnd) {
  if (file.format != InputFile::Format::kJsonArray) return source;
  return std::make_unique<ArraySource>(file.path, std::move(source), byte, to);
}

class OneFile : public InputStream {
 public:
  OneFile(const InputFile& file, std::unique_ptr<ByteSource> source)
      : file_(std::shared_ptr<const InputFile>(), &file), source_(std::move(source)) {}
  std::shared_ptr<const InputFile> next_file() override { return std::exchange(file_, nullptr); }
  size_t read(std::span<char> to) override { return source_->read(to); }
  int64_t consumed() const override { return source_->consumed(); }

 private:
  std::shared_ptr<const InputFile> file_;  // not its owner
  std::unique_ptr<ByteSource> source_;
};

// The member of an archive that is at hand.
class MemberSource : public ByteSource {
 public:
  explicit MemberSource(Archive& archive) : archive_(archive) {}
  size_t read(std::span<char> to) override { return archive_.read(to); }
  int64_t consumed() const override { return archive_.consumed(); }

 private:
  Archive& archive_;
};

bool is_hidden(const fs::path& name) {
  return std::any_of(name.begin(), name.end(), [](const fs::path& part) {
    return part.string().starts_with('.') && part != "." && part != "..";
  });
}

enum class Depth { kOutside, kInArchive };

class Members : public InputStream {
 public:
  Members(std::string path, std::unique_ptr<Archive> archive, const StreamOptions& options,
          Depth depth = Depth::kOutside)
      : path_(std::move(path)),
        archive_(std::move(archive)),
        options_(options),
        depth_(depth),
        exclusion_(options.exclude) {}

  std::shared_ptr<const InputFile> next_file() override {
    for (;;) {
      if (inner_) {
        if (auto file = inner_->next_file()) return file;
        inner_.reset();
      }
      std::optional<std::string> name = archive_->next();
      if (!name) break;
      if (is_hidden(*name) || exclusion_.takes(*name)) continue;
      if (auto file = open(path_ + ": " + *name)) return file;
      if (!inner_ && left_out_++ == 0) first_left_out_ = *name;
    }
    if (left_out_ > 0)
      log_info("left out: ", counted(left_out_, "binary member"), " of ", path_, ", such as ",
               first_left_out_);
    exclusion_.report(path_);
    return nullptr;
  }
  size_t read(std::span<char> to) override { return inner_ ? inner_->read(to) : member_->read(to); }
  int64_t consumed() const override { return archive_->consumed(); }

 private:
  // Null where it is binary, or empty and called an archive, and where it is one, now inner_.
  std::shared_ptr<const InputFile> open(std::string path) {
    using Packing = InputFile::Packing;
    std::unique_ptr<ByteSource> source = std::make_unique<MemberSource>(*archive_);
    std::string head = head_of(*source);
    if (head.empty() && fs::path(path).extension() == ".zip") return nullptr;
    Packing packing = packing_of(path, head);
    if (packing == Packing::kZip && depth_ == Depth::kOutside) {
      auto zip = Archive::inner_zip(
          path, std::make_unique<PeekedSource>(std::move(head), std::move(source)));
      inner_ = std::make_unique<Members>(path, std::move(zip), options_, Depth::kInArchive);
      return nullptr;
    }
    std::string peeked = head;
    if (packing == Packing::kCompressed) {
      auto compressed = std::make_unique<PeekedSource>(head, std::move(source));
      source = std::make_unique<DecompressedSource>(path, *compression_of(head),
                                                    std::move(compressed), options_.threads);
      path = decompressed_name(path);
      head = head_of(*source);
      peeked = checked(head, *source);
      packing = packing_of(path, head);
    }
    check_io(
        packing != Packing::kColumnar, path,
        ": Parquet and Arrow are not read in an archive, since they are read at several places; "
        "unpack the archive first");
    check_io(
        packing == Packing::kNone, path,
        ": an archive in an archive is read only where it is a zip, and in that none; unpack the "
        "outer one first");
    if (is_left_out(path, head)) return nullptr;
    InputFile file{.path = path, .format = format_of(path, head, options_.separated)};
    member_ = as_lines(file, std::make_unique<PeekedSource>(std::move(peeked), std::move(source)));
    return std::make_shared<InputFile>(std::move(file));
  }

  std::string path_;
  std::unique_ptr<Archive> archive_;
  const StreamOptions options_;
  const Depth depth_;
  Exclusion exclusion_;
  std::unique_ptr<Members> inner_;  // an archive that is the member at hand
  std::unique_ptr<ByteSource> member_;
  int64_t left_out_ = 0;
  std::string first_left_out_;
};

}  // namespace

std::unique_ptr<InputStream> open_input(const InputFile& file, int64_t begin, int64_t end,
                                        const StreamOptions& options) {
  switch (file.packing) {
    case InputFile::Packing::kNone: {
      auto source = std::make_unique<FileSource>(file.path, begin, end);
      auto to = end == file.bytes ? ArraySource::To::kEnd : ArraySource::To::kElement;
      return std::make_unique<OneFile>(file, as_lines(file, std::move(source), begin, to));
    }
    case InputFile::Packing::kCompressed:
      return std::make_unique<OneFile>(file, as_lines(file, open_source(file, options.threads)));
    case InputFile::Packing::kTar:
      return std::make_unique<Members>(
          file.path, Archive::tar(file.path, open_source(file, options.threads)), options);
    case InputFile::Packing::kZip:
      return std::make_unique<Members>(file.path, Archive::zip(file.path, file.bytes), options);
    case InputFile::Packing::kColumnar:
      return std::make_unique<OneFile>(
          file, arrow_plugin(file.path).open({file.path, file.bytes, begin, end}, options.columns,
                                             options.threads));
  }
  fail(Exit::kInternal, "no such packing");
}

std::string read_head(const InputFile& file) {
  auto source = open_source(file, 1);
  std::string head = head_of(*source);
  checked(head, *source);
  return head;
}

}  // namespace neox
