#include "prepare/blocks.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace neox {

class LinesBefore {
 public:
  LinesBefore(std::string path, int64_t end) : path_(std::move(path)), end_(end) {}
  int64_t count() {
    std::call_once(counted_, [&] {
      MappedFile file(path_, MappedFile::Access::kSequential);
      std::string_view text = file.text().substr(0, static_cast<size_t>(end_));
      lines_ = std::count(text.begin(), text.end(), '\n');
    });
    return lines_;
  }

 private:
  std::string path_;
  int64_t end_, lines_ = 0;
  std::once_flag counted_;
};

int64_t Block::number_in_file(int64_t number) const {
  return before ? before->count() + number : number;
}

bool is_separator(std::string_view line, std::string_view separator) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line == separator;
}

namespace {

enum class Kind { kLines, kSeparated, kParts, kWhole };

Kind kind_of(InputFile::Format format, const BlockRules& rules) {
  if (format == InputFile::Format::kJsonLines) return Kind::kLines;
  if (!rules.separator.empty()) return Kind::kSeparated;
  return rules.texts == BlockRules::Texts::kParts ? Kind::kParts : Kind::kWhole;
}

// The line that ends at the line end `end`.
std::string_view line_before(std::string_view text, size_t end) {
  size_t before = end == 0 ? std::string::npos : text.rfind('\n', end - 1);
  size_t begin = before == std::string::npos ? 0 : before + 1;
  return text.substr(begin, end - begin);
}

// A block may end behind some line ends, and before some spaces of a text in parts.
char mark_of(Kind kind) { return kind == Kind::kParts ? ' ' : '\n'; }

// The end of a block that ends at the mark at `at`; 0: none does.
size_t cut_at(std::string_view text, size_t at, Kind kind, std::string_view separator) {
  auto alphanumeric = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  };
  switch (kind) {
    case Kind::kLines:
      return at + 1;
    case Kind::kSeparated:
      return is_separator(line_before(text, at), separator) ? at + 1 : 0;
    case Kind::kParts: {
      bool inside = at > 0 && at + 1 < text.size();
      return inside && alphanumeric(text[at - 1]) && alphanumeric(text[at + 1]) ? at : 0;
    }
    case Kind::kWhole:
      return 0;
  }
  return 0;
}

// The last place where a block may end, at a mark at or behind `from`; 0: nowhere.
size_t last_cut(std::string_view text, size_t from, Kind kind, std::string_view separator) {
  if (kind == Kind::kWhole) return 0;
  for (size_t at = text.rfind(mark_of(kind)); at != std::string::npos && at >= from;) {
    if (size_t end = cut_at(text, at, kind, separator); end > 0) return end;
    at = at == 0 ? std::string::npos : text.rfind(mark_of(kind), at - 1);
  }
  return 0;
}

struct Position {
  size_t file = 0;
  int64_t offset = 0;
};

// The first place at or behind byte `at` of the joined files where a block may begin.
Position cut_behind(const InputFiles& input, const BlockRules& rules, int64_t at) {
  size_t file = 0;
  for (; file < input.files.size() && at >= input.files[file].bytes; ++file)
    at -= input.files[file].bytes;
  if (file == input.files.size() || at == 0) return {file, 0};
  const InputFile& found = input.files[file];
  MappedFile map(found.path, MappedFile::Access::kSequential);
  check_io(static_cast<int64_t>(map.text().size()) >= found.bytes, found.path, " has ",
           map.text().size(), " bytes, and had ", found.bytes,
           " when it was found; it must not change while it is read");
  std::string_view text = map.text().substr(0, static_cast<size_t>(found.bytes));
  size_t cut = next_cut(text, static_cast<size_t>(at), found.format, rules);
  if (cut == text.size()) return {file + 1, 0};
  return {file, static_cast<int64_t>(cut)};
}

}  // namespace

size_t next_cut(std::string_view text, size_t at, InputFile::Format format,
                const BlockRules& rules) {
  Kind kind = kind_of(format, rules);
  if (at == 0 || kind == Kind::kWhole) return at == 0 ? 0 : text.size();
  char mark = mark_of(kind);
  for (size_t m = text.find(mark, at - 1); m != std::string::npos; m = text.find(mark, m + 1))
    if (size_t end = cut_at(text, m, kind, rules.separator); end >= at) return end;
  return text.size();
}

std::vector<Slice> slices_of(const InputFiles& input, const BlockRules& rules, int rank, int size) {
  Position begin = cut_behind(input, rules, input.bytes * rank / size);
  Position end = rank + 1 == size ? Position{input.files.size(), 0}
                                  : cut_behind(input, rules, input.bytes * (rank + 1) / size);
  std::vector<Slice> slices;
  for (size_t file = begin.file; file < input.files.size() && file <= end.file; ++file) {
    const InputFile& found = input.files[file];
    int64_t from = file == begin.file ? begin.offset : 0;
    int64_t to = file == end.file ? end.offset : found.bytes;
    if (from < to) slices.push_back({&found, from, to});
  }
  return slices;
}

BlockReader::BlockReader(std::vector<Slice> slices, BlockRules rules, std::optional<Place> from)
    : slices_(std::move(slices)), rules_(std::move(rules)), from_(from) {
  if (from_) next_slice_ = static_cast<size_t>(from_->slice);
}

BlockReader::~BlockReader() {
  if (fd_ >= 0) ::close(fd_);
}

bool BlockReader::open_next() {
  if (next_slice_ == slices_.size()) return false;
  slice_ = slices_[next_slice_++];
  fd_ = ::open(slice_.file->path.c_str(), O_RDONLY | O_CLOEXEC);
  check_io(fd_ >= 0, "cannot open ", slice_.file->path, ": ", describe_errno(errno));
  line_ = from_ ? from_->line : 1;
  read_ = given_ = from_ ? from_->offset : slice_.begin;
  from_.reset();
  before_ =
      slice_.begin == 0 ? nullptr : std::make_shared<LinesBefore>(slice_.file->path, slice_.begin);
  return true;
}

// Returns false at the end of the slice.
bool BlockReader::read_more() {
  auto wanted = static_cast<size_t>(std::min(kBlockBytes, slice_.end - read_));
  if (wanted == 0) return false;
  size_t size = rest_.size();
  rest_.resize(size + wanted);
  ssize_t n;
  do n = ::pread(fd_, rest_.data() + size, wanted, read_);
  while (n < 0 && errno == EINTR);
  int error = errno;
  rest_.resize(size + static_cast<size_t>(std::max<ssize_t>(n, 0)));
  check_io(n >= 0, "cannot read ", slice_.file->path, ": ", describe_errno(error));
  check_io(n > 0, slice_.file->path, " ends at byte ", read_, ", and had ", slice_.file->bytes,
           " bytes when it was found; it must not change while it is read");
  read_ += n;
  return true;
}

Block BlockReader::take(size_t bytes) {
  bool part = kind_of(slice_.file->format, rules_) == Kind::kParts;
  Block block{
      .file = slice_.file, .line = line_, .text = rest_.substr(0, bytes), .before = before_};
  rest_.erase(0, bytes);
  line_ += std::count(block.text.begin(), block.text.end(), '\n');
  block.begins_document = !part || given_ == 0;
  given_ += static_cast<int64_t>(bytes);
  block.ends_document = !part || given_ == slice_.file->bytes;
  block.end = {static_cast<int64_t>(next_slice_) - 1, given_, line_};
  return block;
}

std::optional<Block> BlockReader::next() {
  for (;;) {
    if (fd_ < 0 && !open_next()) return std::nullopt;
    Kind kind = kind_of(slice_.file->format, rules_);
    size_t end = 0;
    while (end == 0) {
      size_t size = rest_.size();
      if (!read_more()) {
        ::close(std::exchange(fd_, -1));
        end = rest_.size();
        break;
      }
      // What follows a mark may have come with this reading.
      if (static_cast<int64_t>(rest_.size()) >= kBlockBytes)
        end = last_cut(rest_, size == 0 ? 0 : size - 1, kind, rules_.separator);
    }
    if (end > 0) return take(end);  // 0: nothing was left
  }
}

}  // namespace neox
