#include "data/indexed_dataset.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <type_traits>

#include "base/error.h"
#include "base/text.h"

namespace neox {
namespace {

constexpr char kMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
constexpr char kOldMagic[8] = {'T', 'N', 'T', 'I', 'D', 'X', 0, 0};
constexpr size_t kHeaderBytes = 34;
constexpr const char* kAgain = "; write the data again with neox-prepare-data, or copy it again";

template <class T>
T load(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// The prefixes of whole datasets in a directory: each .idx that has its .bin.
std::vector<std::string> datasets_in(const fs::path& dir) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    fs::path prefix = it->path();
    if (prefix.extension() != ".idx") continue;
    prefix.replace_extension();
    if (fs::exists(prefix.string() + ".bin", error)) found.push_back(prefix.filename().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// What the user may have meant by a prefix without files: " Did you mean ...?" or a list.
std::string advice(const fs::path& prefix) {
  fs::path dir = directory_of(prefix);
  std::error_code error;
  if (!fs::is_directory(dir, error)) return " The directory " + dir.string() + " does not exist.";
  std::vector<std::string> found = datasets_in(dir);
  if (found.empty()) return " No dataset is in " + dir.string() + "; neox-prepare-data makes one.";
  std::string name = prefix.filename().string(), meant;
  for (const std::string& other : found)
    if (!name.empty() && other.starts_with(name + "_") && meant.empty()) meant = other;
  for (const char* ending : {".bin", ".idx"})
    if (name.ends_with(ending)) meant = nearest(name.substr(0, name.size() - 4), found);
  if (meant.empty()) meant = nearest(name, found);
  if (!meant.empty()) return " Did you mean " + (prefix.parent_path() / meant).string() + "?";
  size_t shown = std::min<size_t>(found.size(), 10);
  return concat(" In ", dir.string(), " there ", found.size() == 1 ? "is " : "are ",
                join(std::span(found).first(shown), ", "), shown < found.size() ? ", ..." : "",
                ".");
}

void check_exists(const std::string& path, const std::string& prefix, bool other_exists) {
  std::error_code error;
  if (fs::exists(path, error)) return;
  if (other_exists)
    fail(Exit::kIo, path, " is missing: a dataset is a .bin and an .idx of one name, and only the ",
         path.ends_with(".bin") ? ".idx" : ".bin", " is there", kAgain);
  fail(Exit::kIo, "no dataset ", prefix, ": neither ", prefix, ".bin nor ", prefix,
       ".idx exists. A prefix is the path without .bin and .idx.", advice(prefix));
}

}  // namespace

int64_t token_bytes(TokenType type) {
  switch (type) {
    case TokenType::kUint8:
    case TokenType::kInt8:
      return 1;
    case TokenType::kInt16:
    case TokenType::kUint16:
      return 2;
    case TokenType::kInt32:
      return 4;
    case TokenType::kInt64:
      return 8;
  }
  return 0;
}

TokenType token_type_of(int64_t vocab) {
  return vocab < 65500 ? TokenType::kUint16 : TokenType::kInt32;
}

IndexedDataset::IndexedDataset(const std::string& prefix, int64_t vocab)
    : prefix_(trim(prefix)),
      idx_path_(prefix_ + ".idx"),
      bin_path_(prefix_ + ".bin"),
      vocab_(vocab) {
  std::error_code error;
  check_exists(idx_path_, prefix_, fs::exists(bin_path_, error));
  check_exists(bin_path_, prefix_, fs::exists(idx_path_, error));
  idx_ = MappedFile(idx_path_, MappedFile::Access::kSequential);
  bin_ = MappedFile(bin_path_);
  read_index();
  check_positions();
  check_documents();
}

void IndexedDataset::check_header(std::span<const std::byte> bytes) const {
  bool old = bytes.size() >= sizeof kOldMagic &&
             std::memcmp(bytes.data(), kOldMagic, sizeof kOldMagic) == 0;
  check_io(
      !old, idx_path_,
      ": this is the old format TNTIDX (dataset implementations 'lazy' and 'cached'), which is "
      "not read here; neox-data import turns it into today's");
  size_t seen = std::min(bytes.size(), sizeof kMagic);
  check_io(seen == 0 || std::memcmp(bytes.data(), kMagic, seen) == 0, idx_path_,
           ": not the index of a dataset: it does not begin with MMIDIDX", kAgain);
  check_io(bytes.size() >= kHeaderBytes, idx_path_, " is truncated: ", bytes.size(),
           " bytes, and the header alone has ", kHeaderBytes, kAgain);
  auto version = load<uint64_t>(bytes, 9);
  check_io(version == 1, idx_path_, ": version ", version, " of the format; only 1 is known",
           kAgain);
  int code = load<uint8_t>(bytes, 17);
  check_io(code != 6 && code != 7, idx_path_, ": type code ", code,
           " says that the .bin holds floating-point numbers, not tokens");
  check_io((code >= 1 && code <= 5) || code == 8, idx_path_, ": unknown type code ", code,
           " (1 to 5 and 8 are integers)", kAgain);
}

void IndexedDataset::read_index() {
  std::span<const std::byte> bytes = idx_.bytes();
  check_header(bytes);
  type_ = static_cast<TokenType>(load<uint8_t>(bytes, 17));
  auto sequences = load<uint64_t>(bytes, 18), boundaries = load<uint64_t>(bytes, 26);
  constexpr uint64_t kTooMany = uint64_t{1} << 56;
  check_io(sequences < kTooMany && boundaries < kTooMany, idx_path_,
           " is damaged: its header says ", sequences, " sequences and ", boundaries,
           " document boundaries", kAgain);
  uint64_t wanted = kHeaderBytes + 12 * sequences + 8 * boundaries;
  check_io(bytes.size() >= wanted, idx_path_, " is truncated: its header says ", sequences,
           " sequences and ", boundaries, " document boundaries, which take ", wanted,
           " bytes, but it has ", bytes.size(), kAgain);
  if (bytes.size() == wanted + sequences && sequences > 0)
    warnings_.push_back(idx_path_ + " is multimodal; the modes of its sequences are ignored");
  else
    check_io(bytes.size() == wanted, idx_path_, " has ", bytes.size() - wanted,
             " bytes more than its header says", kAgain);
  lengths_ = bytes.subspan(kHeaderBytes, 4 * sequences);
  positions_ = bytes.subspan(kHeaderBytes + 4 * sequences, 8 * sequences);
  documents_ = bytes.subspan(kHeaderBytes + 12 * sequences, 8 * boundaries);
}

void IndexedDataset::check_positions() {
  const int64_t size = token_bytes(type_), available = static_cast<int64_t>(bin_.bytes().size());
  int64_t outside = -1, not_empty = 0;
  for (int64_t i = 0; i < num_sequences(); ++i) {
    int64_t length = lengths_[i], position = positions_[i];
    check_io(length >= 0, idx_path_, " is damaged: sequence ", i, " has the length ", length,
             kAgain);
    num_tokens_ += length;
    not_empty += length > 0;
    if (position < 0 || position > available || length * size > available - position)
      if (outside < 0) outside = i;
  }
  int64_t wanted = num_tokens_ * size;
  check_io(available >= wanted, bin_path_, " is truncated: ", idx_path_, " speaks of ", wanted,
           " bytes (", with_commas(num_tokens_), " tokens), but it has ", available, kAgain);
  if (outside >= 0)
    fail(Exit::kIo, idx_path_, " is damaged: sequence ", outside, " starts at byte ",
         positions_[outside], " and has ", lengths_[outside], " tokens, but ", bin_path_, " has ",
         available, " bytes", kAgain);
  if (available == wanted) return;
  std::string text =
      concat(bin_path_, " has ", available - wanted, " bytes more than ", idx_path_, " speaks of");
  if (available - wanted == not_empty * size)
    text +=
        ", one token for each document: versions of Megatron's tool from 2022 and 2023 wrote "
        "end-of-document tokens and did not count them, so each document begins with the end "
        "of the one before; neox-data repair mends it";
  warnings_.push_back(text);
}

void IndexedDataset::check_documents() {
  check_io(documents_.size() > 0 && documents_[0] == 0, idx_path_,
           " is damaged: its document boundaries do not begin with 0", kAgain);
  int64_t last = documents_[documents_.size() - 1];
  if (last != num_sequences())
    warnings_.push_back(concat(idx_path_, ": the last document boundary is ", last,
                               ", but there are ", num_sequences(),
                               " sequences; the sequences are used"));
}

template <class T>
void IndexedDataset::copy(int64_t sequence, int64_t offset, std::span<int64_t> tokens) const {
  UnalignedSpan<T> source(bin_.bytes().subspan(
      static_cast<size_t>(positions_[sequence] + offset * static_cast<int64_t>(sizeof(T))),
      tokens.size() * sizeof(T)));
  std::make_unsigned_t<T> greatest = 0;  // narrow, as it takes the most of them at once
  for (size_t i = 0; i < tokens.size(); ++i) {
    const T token = source[static_cast<int64_t>(i)];
    greatest = std::max(greatest, static_cast<std::make_unsigned_t<T>>(token));
    tokens[i] = token;
  }
  if (vocab_ == kAnyNumber) return;
  const bool negative = greatest > std::make_unsigned_t<T>(std::numeric_limits<T>::max());
  if (!negative && static_cast<uint64_t>(greatest) < static_cast<uint64_t>(vocab_)) return;
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= vocab_)
      fail_token(sequence, offset + static_cast<int64_t>(i), tokens[i]);
}

void IndexedDataset::get(int64_t sequence, int64_t offset, std::span<int64_t> tokens) const {
  check(sequence >= 0 && sequence < num_sequences(), prefix_, ": sequence ", sequence, " of ",
        num_sequences());
  check(offset >= 0 && offset + static_cast<int64_t>(tokens.size()) <= lengths_[sequence], prefix_,
        ": tokens ", offset, " + ", tokens.size(), " of sequence ", sequence, ", which has ",
        lengths_[sequence]);
  switch (type_) {
    case TokenType::kUint8:
      return copy<uint8_t>(sequence, offset, tokens);
    case TokenType::kInt8:
      return copy<int8_t>(sequence, offset, tokens);
    case TokenType::kInt16:
      return copy<int16_t>(sequence, offset, tokens);
    case TokenType::kInt32:
      return copy<int32_t>(sequence, offset, tokens);
    case TokenType::kInt64:
      return copy<int64_t>(sequence, offset, tokens);
    case TokenType::kUint16:
      return copy<uint16_t>(sequence, offset, tokens);
  }
}

void IndexedDataset::prefetch(int64_t sequence, int64_t offset, int64_t tokens) const {
  static const auto kPage = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const int64_t size = token_bytes(type_);
  auto first = reinterpret_cast<uintptr_t>(bin_.bytes().data()) +
               static_cast<uintptr_t>(positions_[sequence] + offset * size);
  const uintptr_t end = first + static_cast<uintptr_t>(tokens * size);
  first -= first % kPage;
  ::madvise(reinterpret_cast<void*>(first), end - first, MADV_WILLNEED);
}

void IndexedDataset::fail_token(int64_t sequence, int64_t position, int64_t token) const {
  fail(Exit::kIo, bin_path_, ": token id ", token, " at position ", position, " of sequence ",
       sequence, " (byte ", positions_[sequence] + position * token_bytes(type_),
       ") is outside the vocabulary of ", vocab_,
       " entries: the data were prepared with another tokenizer; prepare them with the one of this "
       "configuration, or set the vocabulary to theirs");
}

}  // namespace neox
