#include "prepare/blocks.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"
#include "prepare/arrow_plugin.h"
#include "prepare/json_array.h"
#include "tokenizer/unicode.h"

namespace neox {

class LinesBefore {
 public:
  LinesBefore(const InputFile& file, int64_t end) : file_(file), end_(end) {}
  int64_t count() {
    std::call_once(counted_, [&] {
      if (file_.packing == InputFile::Packing::kColumnar) {
        lines_ = arrow_plugin(file_.path).rows_before({file_.path, file_.bytes, end_, file_.bytes});
        return;
      }
      MappedFile file(file_.path, MappedFile::Access::kSequential);
      std::string_view text = file.text().substr(0, static_cast<size_t>(end_));
      bool array = file_.format == InputFile::Format::kJsonArray;
      lines_ = array ? count_elements(text) : std::count(text.begin(), text.end(), '\n');
    });
    return lines_;
  }
  // Whether all that stands before is read for it.
  bool costs_a_reading() const { return file_.packing != InputFile::Packing::kColumnar; }
  int64_t end() const { return end_; }

 private:
  const InputFile& file_;
  int64_t end_, lines_ = 0;
  std::once_flag counted_;
};

std::string Block::place(int64_t number) const {
  bool array = file->format == InputFile::Format::kJsonArray;
  return concat(file->path, array ? ": element " : ":", before ? before->count() + number : number);
}

std::string Block::place_in_slice(int64_t number) const {
  if (!before || !before->costs_a_reading()) return place(number);
  bool array = file->format == InputFile::Format::kJsonArray;
  return concat(file->path, array ? ": element " : ": line ", number, " from byte ", before->end(),
                " on");
}

bool is_separator(std::string_view line, std::string_view separator) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line == separator;
}

namespace {

enum class Kind { kLines, kPages, kSeparated, kParts, kWhole };

Kind kind_of(InputFile::Format format, const BlockRules& rules) {
  if (is_json(format)) return Kind::kLines;
  if (format == InputFile::Format::kWiki) return Kind::kPages;
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
std::string_view marks_of(Kind kind) { return kind == Kind::kParts ? " \n" : "\n"; }

bool is_alphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

// Whether the bytes [begin, end) of the text are one character, and no white space.
bool is_visible(std::string_view text, size_t begin, size_t end) {
  std::string_view bytes = text.substr(begin, end - begin);
  std::string storage;
  if (unicode::repair(bytes, storage) != bytes) return false;
  unicode::CodePoint code = unicode::read(bytes, 0);
  return code.bytes == bytes.size() &&
         unicode::Properties::get().category(code.value) != unicode::Class::kSpace;
}

// One line end between two characters that are no white space: behind it a word begins.
bool ends_line(std::string_view text, size_t at) {
  size_t before = at, behind = at + 2;
  if (at == 0 || at + 1 >= text.size()) return false;
  do --before;
  while (before > 0 && at - before < 4 && continues_character(text[before]));
  while (behind < text.size() && behind - at <= 4 && continues_character(text[behind])) ++behind;
  return is_visible(text, before, at) && is_visible(text, at + 1, behind);
}

// The end of a block that ends at the mark at `at`; 0: none does.
size_t cut_at(std::string_view text, size_t at, Kind kind, std::string_view separator) {
  switch (kind) {
    case Kind::kLines:
      return at + 1;
    case Kind::kPages:
      return trim(line_before(text, at)) == "</page>" ? at + 1 : 0;
    case Kind::kSeparated:
      return is_separator(line_before(text, at), separator) ? at + 1 : 0;
    case Kind::kParts: {
      if (text[at] == '\n') return ends_line(text, at) ? at + 1 : 0;
      bool inside = at > 0 && at + 1 < text.size();
      return inside && is_alphanumeric(text[at - 1]) && is_alphanumeric(text[at + 1]) ? at : 0;
    }
    case Kind::kWhole:
      return 0;
  }
  return 0;
}

// The last place where a block may end, at a mark at or behind `from`; 0: nowhere.
size_t last_cut(std::string_view text, size_t from, Kind kind, std::string_view separator) {
  if (kind == Kind::kWhole) return 0;
  std::string_view behind = text.substr(from);  // what was searched before may be long
  for (size_t at = behind.size(); at > 0;) {
    at = behind.find_last_of(marks_of(kind), at - 1);
    if (at == std::string::npos) break;
    if (size_t end = cut_at(text, from + at, kind, separator); end > 0) return end;
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
  if (found.packing == InputFile::Packing::kColumnar) return {file, at};
  if (found.packing != InputFile::Packing::kNone) return {file + 1, 0};
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
  if (format == InputFile::Format::kJsonArray) return next_element(text, at);
  std::string_view marks = marks_of(kind);
  for (size_t m = text.find_first_of(marks, at - 1); m != std::string::npos;
       m = text.find_first_of(marks, m + 1))
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

BlockReader::BlockReader(std::vector<Slice> slices, BlockRules rules,
                         std::optional<ReadPosition> from)
    : slices_(std::move(slices)), rules_(std::move(rules)), from_(from) {
  if (from_) next_slice_ = static_cast<size_t>(from_->slice);
}

BlockReader::~BlockReader() = default;

bool BlockReader::open_slice() {
  if (next_slice_ == slices_.size()) return false;
  slice_ = slices_[next_slice_++];
  bool plain = slice_.file->packing == InputFile::Packing::kNone;
  int64_t begin = plain && from_ ? from_->offset : slice_.begin;
  auto separated = rules_.separator.empty() ? Separated::kNo : Separated::kYes;
  stream_ = open_input(*slice_.file, begin, slice_.end,
                       {.separated = separated,
                        .threads = rules_.threads,
                        .columns = rules_.columns,
                        .exclude = rules_.exclude});
  given_ = begin;
  before_ = slice_.begin == 0 ? nullptr : std::make_shared<LinesBefore>(*slice_.file, slice_.begin);
  return true;
}

// The next file of the slice, of which a plain one may be read from its middle.
bool BlockReader::open_file() {
  file_ = stream_->next_file();
  file_begun_ = given_ > 0 && slice_.file->packing == InputFile::Packing::kNone;
  file_ended_ = false;
  tail_.clear();
  line_ = 1;
  if (from_) {
    if (slice_.file->packing == InputFile::Packing::kNone) keep_tail_before(given_);
    skip(from_->offset - given_);
    line_ = from_->line;
    from_.reset();
    consumed_ = stream_->consumed();
  }
  return file_ != nullptr;
}

// So many bytes of the slice's text, over the files in it.
void BlockReader::skip(int64_t bytes) {
  std::string skipped(kBlockBytes, '\0');
  while (bytes > 0) {
    check_io(file_ != nullptr, slice_.file->path, " ends before the place to go on from; it must ",
             "not change between two starts");
    size_t n =
        stream_->read(std::span(skipped).first(static_cast<size_t>(std::min(bytes, kBlockBytes))));
    file_begun_ = n > 0;
    keep_tail(std::string_view(skipped).substr(0, n));
    if (n == 0) file_ = stream_->next_file(), tail_.clear();
    bytes -= static_cast<int64_t>(n);
    given_ += static_cast<int64_t>(n);
  }
}

void BlockReader::keep_tail(std::string_view read) {
  tail_ += read.substr(read.size() - std::min(read.size(), kTailBytes));
  if (tail_.size() > kTailBytes) tail_.erase(0, tail_.size() - kTailBytes);
}

// Of a plain file that is read from its middle, which may be its end.
void BlockReader::keep_tail_before(int64_t offset) {
  MappedFile map(slice_.file->path, MappedFile::Access::kSequential);
  keep_tail(map.text().substr(0, static_cast<size_t>(offset)));
}

// Returns false at the end of the file.
bool BlockReader::read_more() {
  size_t size = rest_.size();
  rest_.resize(size + kBlockBytes);
  size_t n = 0;
  for (size_t more = 1; more > 0 && n < static_cast<size_t>(kBlockBytes); n += more)
    more = stream_->read(std::span(rest_).subspan(size + n));
  rest_.resize(size + n);
  keep_tail(std::string_view(rest_).substr(size));
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (size == 0 && !file_begun_ && rest_.starts_with(kByteOrderMark)) {
    rest_.erase(0, kByteOrderMark.size());
    given_ += static_cast<int64_t>(kByteOrderMark.size());
  }
  return n > 0;
}

// A dump that was cut off between two pages would pass for a whole one.
void BlockReader::check_dump_end() const {
  bool plain = slice_.file->packing == InputFile::Packing::kNone;
  bool to_the_end = !plain || slice_.end == slice_.file->bytes;
  constexpr std::string_view kEnd = "</mediawiki>";
  size_t at = tail_.rfind(kEnd);
  std::string_view rest = trim(std::string_view(tail_).substr(std::min(at, tail_.size())));
  if (at != std::string::npos) rest = trim(rest.substr(kEnd.size()));
  bool whole = at != std::string::npos &&
               (rest.empty() || (rest.starts_with("<!--") && rest.ends_with("-->")));
  check_io(
      !to_the_end || whole, file_->path,
      ": this dump of MediaWiki is cut off: it does not end with </mediawiki>; fetch it again");
}

Block BlockReader::take(size_t bytes) {
  Kind kind = kind_of(file_->format, rules_);
  Block block{.file = file_, .line = line_, .before = before_};
  std::string rest = rest_.substr(bytes);
  rest_.resize(bytes);
  block.text = std::exchange(rest_, std::move(rest));
  line_ += std::count(block.text.begin(), block.text.end(), '\n');
  given_ += static_cast<int64_t>(bytes);
  // A plain file was read as far as the blocks that are given out go.
  bool plain = slice_.file->packing == InputFile::Packing::kNone;
  int64_t consumed = plain ? given_ : stream_->consumed();
  block.input_bytes = std::max<int64_t>(consumed - consumed_, 0);
  consumed_ = consumed;
  bool last = file_ended_ && (!plain || slice_.end == slice_.file->bytes);
  block.begins_document = kind != Kind::kParts || !file_begun_;
  block.ends_document = kind != Kind::kParts || last;
  file_begun_ = true;
  block.end = {static_cast<int64_t>(next_slice_) - 1, given_, line_};
  return block;
}

// None at the end of the file.
std::optional<Block> BlockReader::read_block() {
  Kind kind = kind_of(file_->format, rules_);
  while (!file_ended_) {
    size_t size = rest_.size();
    file_ended_ = !read_more();
    if (file_ended_ && kind == Kind::kPages) check_dump_end();
    size_t end = rest_.size();
    // What follows a mark may have come with this reading.
    if (!file_ended_)
      end = end < static_cast<size_t>(kBlockBytes)
                ? 0
                : last_cut(rest_, size == 0 ? 0 : size - 1, kind, rules_.separator);
    if (end > 0) return take(end);
  }
  return std::nullopt;
}

std::optional<Block> BlockReader::next() {
  for (;;) {
    if (!stream_) {
      if (!open_slice()) return std::nullopt;
      consumed_ = given_ - left_;
    }
    if (!file_ && !open_file()) {
      left_ = slice_.end - consumed_;
      stream_ = nullptr;
      continue;
    }
    if (auto block = read_block()) return block;
    file_ = nullptr;
  }
}

}  // namespace neox
