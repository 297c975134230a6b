#include "s3/file_transfer.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include "base/error.h"
#include "base/progress.h"
#include "checkpoint/raw_file.h"

namespace neox {
namespace {

constexpr size_t kWritten = 64 << 20;  // several parts of an object, which go out side by side
constexpr size_t kRead = 16 << 20;
constexpr size_t kReaders = 16;

// Memory that begins at a page.
class Pages {
 public:
  explicit Pages(size_t bytes)
      : data_(static_cast<std::byte*>(std::aligned_alloc(kPageBytes, bytes)), std::free) {
    if (!data_) throw std::bad_alloc();
  }
  std::span<std::byte> first(int64_t bytes) { return {data_.get(), static_cast<size_t>(bytes)}; }

 private:
  std::unique_ptr<std::byte, decltype(&std::free)> data_;
};

std::string file_name_of(const S3Directory::Object& object, const S3Directory& place) {
  std::string name = object.name.substr(object.name.rfind('/') + 1);
  check_io(!name.empty() && name != "." && name != "..", place.url(), " holds ", object.name,
           ", which is no file of a checkpoint");
  return name;
}

struct Piece {
  size_t file;
  int64_t offset, bytes;
};

std::vector<Piece> pieces_of(const std::vector<S3Directory::Object>& objects) {
  std::vector<Piece> pieces;
  constexpr auto kMost = static_cast<int64_t>(kRead);
  for (size_t file = 0; file < objects.size(); ++file)
    for (int64_t at = 0; at < objects[file].bytes; at += kMost)
      pieces.push_back({file, at, std::min(kMost, objects[file].bytes - at)});
  return pieces;
}

}  // namespace

void copy_file(const std::filesystem::path& file, S3Writer& object,
               const std::function<void(int64_t)>& moved) {
  RawFile source(file, RawFile::Mode::kRead);
  int64_t size = source.size();
  Pages pages(kWritten);
  for (int64_t at = 0; at < size;) {
    std::span<std::byte> piece = pages.first(std::min<int64_t>(kWritten, size - at));
    source.read(piece, at);
    object.append(piece);
    at += std::ssize(piece);
    moved(std::ssize(piece));
  }
  object.finish();
}

void fetch_files(S3Directory& place, const std::vector<S3Directory::Object>& objects,
                 const std::filesystem::path& dir, const Poll& poll) {
  int64_t total = 0;
  std::vector<std::unique_ptr<RawFile>> files;
  for (const S3Directory::Object& object : objects) {
    fs::path path = dir / file_name_of(object, place);
    files.push_back(std::make_unique<RawFile>(path, RawFile::Mode::kCreate));
    files.back()->reserve(object.bytes);
    total += object.bytes;
  }
  Progress progress({.label = "fetch", .unit = "B", .total = total});
  std::vector<Piece> pieces = pieces_of(objects);
  run_tasks(pieces.size(), kReaders, poll, [&](size_t i, const Poll& others) {
    const Piece& piece = pieces[i];
    Pages pages(kRead);
    place.read(objects[piece.file], piece.offset, pages.first(piece.bytes));
    files[piece.file]->write(pages.first(piece.bytes), piece.offset);
    progress.add(piece.bytes);
    if (others) others();
  });
  for (const auto& file : files) file->close();
}

}  // namespace neox
