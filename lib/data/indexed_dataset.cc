#include "data/indexed_dataset.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <type_traits>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace neox {
namespace {

constexpr char kMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
constexpr char kOldMagic[8] = {'T', 'N', 'T', 'I', 'D', 'X', 0, 0};
constexpr const char* kAgain = "; write the data again with neox-prepare-data, or copy it again";

template <class T>
T load(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

void check_header(std::span<const std::byte> bytes, const std::string& path) {
  bool old = bytes.size() >= sizeof kOldMagic &&
             std::memcmp(bytes.data(), kOldMagic, sizeof kOldMagic) == 0;
  check_io(
      !old, path,
      ": this is the old format TNTIDX (dataset implementations 'lazy' and 'cached'), which is "
      "not read here; neox-data import turns it into today's");
  size_t seen = std::min(bytes.size(), sizeof kMagic);
  check_io(seen == 0 || std::memcmp(bytes.data(), kMagic, seen) == 0, path,
           ": not the index of a dataset: it does not begin with MMIDIDX", kAgain);
  check_io(bytes.size() >= kIdxHeaderBytes, path, " is truncated: ", bytes.size(),
           " bytes, and the header alone has ", kIdxHeaderBytes, kAgain);
  auto version = load<uint64_t>(bytes, 9);
  check_io(version == 1, path, ": version ", version, " of the format; only 1 is known", kAgain);
  int code = load<uint8_t>(bytes, 17);
  check_io(code != 6 && code != 7, path, ": type code ", code,
           " says that the .bin holds floating-point numbers, not tokens");
  check_io((code >= 1 && code <= 5) || code == 8, path, ": unknown type code ", code,
           " (1 to 5 and 8 are integers)", kAgain);
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
  if (is_found(path)) return;
  if (other_exists)
    fail(Exit::kIo, path, " is missing: a dataset is a .bin and an .idx of one name, and only the ",
         path.ends_with(".bin") ? ".idx" : ".bin", " is there", kAgain);
  std::error_code error;
  if (fs::is_directory(prefix, error))
    fail(Exit::kIo, prefix, " is a directory; a dataset is named by its prefix, the path without ",
         ".bin and .idx.", advice(fs::path(prefix) / ""));
  fail(Exit::kIo, "no dataset ", prefix, ": neither ", prefix, ".bin nor ", prefix,
       ".idx exists. A prefix is the path without .bin and .idx.", advice(prefix));
}

}  // namespace

DatasetIndex read_index(std::span<const std::byte> bytes, const std::string& path) {
  check_header(bytes, path);
  auto sequences = load<uint64_t>(bytes, 18), boundaries = load<uint64_t>(bytes, 26);
  constexpr uint64_t kTooMany = uint64_t{1} << 56;
  check_io(sequences < kTooMany && boundaries < kTooMany, path, " is damaged: its header says ",
           sequences, " sequences and ", boundaries, " document boundaries", kAgain);
  uint64_t wanted = kIdxHeaderBytes + 12 * sequences + 8 * boundaries;
  check_io(bytes.size() >= wanted, path, " is truncated: its header says ", sequences,
           " sequences and ", boundaries, " document boundaries, which take ", wanted,
           " bytes, but it has ", bytes.size(), kAgain);
  bool multimodal = bytes.size() == wanted + sequences && sequences > 0;
  check_io(multimodal || bytes.size() == wanted, path, " has ", bytes.size() - wanted,
           " bytes more than its header says", kAgain);
  return {.type = static_cast<TokenType>(load<uint8_t>(bytes, 17)),
          .lengths = bytes.subspan(kIdxHeaderBytes, 4 * sequences),
          .positions = bytes.subspan(kIdxHeaderBytes + 4 * sequences, 8 * sequences),
          .documents = bytes.subspan(kIdxHeaderBytes + 12 * sequences, 8 * boundaries),
          .multimodal = multimodal};
}

int64_t token_bytes(TokenType type) {
  return with_token_type(type, []<class T>(T*) { return static_cast<int64_t>(sizeof(T)); });
}

TokenType token_type_of(int64_t vocab) {
  return vocab < 65500 ? TokenType::kUint16 : TokenType::kInt32;
}

void check_dataset_exists(const std::string& prefix) {
  std::error_code error;
  std::string idx = prefix + ".idx", bin = prefix + ".bin";
  check_exists(idx, prefix, fs::exists(bin, error));
  check_exists(bin, prefix, fs::exists(idx, error));
}

IndexedDataset::IndexedDataset(const std::string& prefix, int64_t vocab)
    : prefix_(trim(prefix)),
      idx_path_(prefix_ + ".idx"),
      bin_path_(prefix_ + ".bin"),
      vocab_(vocab) {
  check_dataset_exists(prefix_);
  idx_ = MappedFile(idx_path_, MappedFile::Access::kSequential);
  bin_ = MappedFile(bin_path_);
  index_ = read_index(idx_.bytes(), idx_path_);
  if (index_.multimodal)
    warnings_.push_back(idx_path_ + " is multimodal; the modes of its sequences are ignored");
  check_positions();
  check_documents();
}

void IndexedDataset::check_positions() {
  const int64_t size = token_bytes(index_.type),
                available = static_cast<int64_t>(bin_.bytes().size());
  int64_t outside = -1, not_empty = 0;
  for (int64_t i = 0; i < num_sequences(); ++i) {
    int64_t length = index_.lengths[i], position = index_.positions[i];
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
         index_.positions[outside], " and has ", index_.lengths[outside], " tokens, but ",
         bin_path_, " has ", available, " bytes", kAgain);
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
  check_io(index_.documents.size() > 0 && index_.documents[0] == 0, idx_path_,
           " is damaged: its document boundaries do not begin with 0", kAgain);
  int64_t last = index_.documents[index_.documents.size() - 1];
  if (last != num_sequences())
    warnings_.push_back(concat(idx_path_, ": the last document boundary is ", last,
                               ", but there are ", num_sequences(),
                               " sequences; the sequences are used"));
}

template <class T>
void IndexedDataset::copy(int64_t sequence, int64_t offset, std::span<int64_t> tokens) const {
  UnalignedSpan<T> source(bin_.bytes().subspan(
      static_cast<size_t>(index_.positions[sequence] + offset * static_cast<int64_t>(sizeof(T))),
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
  check(offset >= 0 && offset + static_cast<int64_t>(tokens.size()) <= index_.lengths[sequence],
        prefix_, ": tokens ", offset, " + ", tokens.size(), " of sequence ", sequence,
        ", which has ", index_.lengths[sequence]);
  with_token_type(index_.type, [&]<class T>(T*) { copy<T>(sequence, offset, tokens); });
}

void IndexedDataset::expect(MappedFile::Access access) const {
  std::span<const std::byte> bytes = bin_.bytes();
  ::madvise(const_cast<std::byte*>(bytes.data()), bytes.size(),
            access == MappedFile::Access::kRandom ? MADV_RANDOM : MADV_SEQUENTIAL);
}

void IndexedDataset::prefetch(int64_t sequence, int64_t offset, int64_t tokens) const {
  static const auto kPage = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const int64_t size = token_bytes(index_.type);
  auto first = reinterpret_cast<uintptr_t>(bin_.bytes().data()) +
               static_cast<uintptr_t>(index_.positions[sequence] + offset * size);
  const uintptr_t end = first + static_cast<uintptr_t>(tokens * size);
  first -= first % kPage;
  ::madvise(reinterpret_cast<void*>(first), end - first, MADV_WILLNEED);
}

void IndexedDataset::fail_token(int64_t sequence, int64_t position, int64_t token) const {
  fail(Exit::kIo, bin_path_, ": token id ", token, " at position ", position, " of sequence ",
       sequence, " (byte ", index_.positions[sequence] + position * token_bytes(index_.type),
       ") is outside the vocabulary of ", vocab_,
       " entries: the data were prepared with another tokenizer; prepare them with the one of this "
       "configuration, or set the vocabulary to theirs");
}

}  // namespace neox
