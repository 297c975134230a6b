#include "dataset/verify.h"

#include <fcntl.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/progress.h"
#include "base/tasks.h"
#include "base/text.h"
#include "dataset/raw_index.h"

namespace neox {
namespace {

constexpr int64_t kPieceBytes = int64_t{4} << 20;  // that a thread reads at a time

struct BadToken {
  int64_t place, id;  // place: its number in .bin
  auto operator<=>(const BadToken&) const = default;
};

// The least of many values.
template <class T>
class Least {
 public:
  explicit Least(int64_t limit) : limit_(static_cast<size_t>(limit)) {}
  void add(const T& value) {
    values_.push_back(value);
    if (values_.size() > 2 * limit_ + 1000) sort();
  }
  void sort() {
    std::ranges::sort(values_);
    values_.resize(std::min(values_.size(), limit_));
  }
  const std::vector<T>& first() const { return values_; }

 private:
  size_t limit_;
  std::vector<T> values_;
};

// Tokens that are no ids of a vocabulary.
template <class T>
class Range {
 public:
  explicit Range(int64_t vocab)
      : most_(static_cast<Unsigned>(std::min<int64_t>(vocab - 1, std::numeric_limits<T>::max()))) {}

  // A negative number is a great one.
  bool holds(T token) const { return static_cast<Unsigned>(token) <= most_; }
  bool holds(std::span<const T> tokens) const {
    Unsigned greatest = 0;
    for (T token : tokens) greatest = std::max(greatest, static_cast<Unsigned>(token));
    return greatest <= most_;
  }

 private:
  using Unsigned = std::make_unsigned_t<T>;
  Unsigned most_;
};

class TokenScan {
 public:
  TokenScan(const RawIndex& index, const VerifyOptions& options, bool knows_documents)
      : index_(index),
        options_(options),
        content_(content_of(index.prefix, index.type)),
        eod_(knows_documents ? options.end_of_document : std::nullopt),
        file_(index.bin_path(), O_RDONLY, "open"),
        num_tokens_(index.num_tokens()),
        bad_(options.limit),
        open_(options.limit) {
    ::posix_fadvise(file_.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  }

  void run(Progress& progress) {
    auto pieces = static_cast<size_t>((index_.bin_bytes + kPieceBytes - 1) / kPieceBytes);
    run_tasks(pieces, static_cast<size_t>(options_.threads), [&](size_t i) {
      int64_t at = static_cast<int64_t>(i) * kPieceBytes;
      int64_t size = std::min(kPieceBytes, index_.bin_bytes - at);
      look_at_piece(at, static_cast<size_t>(size));
      progress.add(size);
    });
    bad_.sort();
    open_.sort();
  }

  int64_t num_bad() const { return num_bad_; }
  const std::vector<BadToken>& bad() const { return bad_.first(); }
  int64_t num_ended() const { return num_ended_; }
  int64_t num_open() const { return num_open_; }
  const std::vector<int64_t>& open() const { return open_.first(); }

 private:
  void look_at_piece(int64_t at, size_t size) {
    auto bytes = std::make_unique_for_overwrite<std::byte[]>(size);
    std::span piece(bytes.get(), size);
    read(piece, at);
    with_token_type(index_.type, [&]<class T>(T*) { scan<T>(piece, at); });
  }

  void read(std::span<std::byte> bytes, int64_t at) const {
    auto [done, error] = pread_all(file_.get(), bytes, at);
    check_io(error == 0, "cannot read ", index_.bin_path(), " at byte ",
             at + static_cast<int64_t>(done), ": ", describe_errno(error));
    check_io(done == bytes.size(), index_.bin_path(),
             " became shorter while it was read: it ends at byte ",
             at + static_cast<int64_t>(done));
  }

  template <class T>
  void scan(std::span<const std::byte> bytes, int64_t at) {
    std::span tokens(reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T));
    const int64_t first = at / static_cast<int64_t>(sizeof(T));
    Range<T> range(options_.vocab);
    if (!range.holds(tokens))
      for (size_t i = 0; i < tokens.size(); ++i)
        if (!range.holds(tokens[i]) && !may_be(tokens[i]))
          add_bad({first + static_cast<int64_t>(i), tokens[i]});
    if (eod_) look_at_ends(tokens, first);
  }

  bool may_be(int64_t number) const {
    return content_ == Content::kRewards ||
           (content_ == Content::kLabels && number == kMaskedLabel);
  }

  void add_bad(const BadToken& token) {
    std::lock_guard lock(mutex_);
    ++num_bad_;
    bad_.add(token);
  }

  // Tokens before the end of a document; only of sound boundaries.
  int64_t end_of(int64_t document) const {
    int64_t sequence = index_.documents[document + 1];
    return sequence < index_.num_sequences() ? index_.positions[sequence] / token_bytes(index_.type)
                                             : num_tokens_;
  }

  // The documents whose last token is among these.
  template <class T>
  void look_at_ends(std::span<const T> tokens, int64_t first) {
    int64_t low = 0, high = index_.num_documents();
    while (low < high) {
      int64_t middle = low + (high - low) / 2;
      end_of(middle) > first ? high = middle : low = middle + 1;
    }
    int64_t last = first + std::ssize(tokens), before = low > 0 ? end_of(low - 1) : 0;
    std::lock_guard lock(mutex_);
    for (int64_t end; low < index_.num_documents() && (end = end_of(low)) <= last; ++low) {
      if (end == std::exchange(before, end)) continue;  // a document without tokens
      bool is_end = int64_t{tokens[static_cast<size_t>(end - 1 - first)]} == *eod_;
      ++(is_end ? num_ended_ : num_open_);
      if (!is_end) open_.add(low);
    }
  }

  const RawIndex& index_;
  const VerifyOptions& options_;
  const Content content_;
  std::optional<int64_t> eod_;
  Descriptor file_;
  const int64_t num_tokens_;
  std::mutex mutex_;  // guards what follows
  Least<BadToken> bad_;
  Least<int64_t> open_;  // documents that do not end in the end-of-document token
  int64_t num_bad_ = 0, num_ended_ = 0, num_open_ = 0;
};

// Where a token lies, by the sequences where these can be trusted.
std::string place_of(const RawIndex& index, int64_t place, bool knows_sequences) {
  int64_t byte = place * token_bytes(index.type), low = 0, high = index.num_sequences();
  while (low < high) {  // the first sequence that begins behind it
    int64_t middle = low + (high - low) / 2;
    index.positions[middle] > byte ? high = middle : low = middle + 1;
  }
  if (!knows_sequences || low == 0) return concat("at byte ", byte);
  int64_t offset = (byte - index.positions[low - 1]) / token_bytes(index.type);
  if (offset >= index.lengths[low - 1]) return concat("behind the last sequence, at byte ", byte);
  return concat("at position ", offset, " of sequence ", low - 1, " (byte ", byte, ")");
}

void add_bad_tokens(const RawIndex& index, const TokenScan& scan, const VerifyOptions& options,
                    bool knows_sequences, std::vector<std::string>& findings) {
  for (const BadToken& token : scan.bad())
    findings.push_back(
        concat(index.bin_path(), ": token id ", token.id, " ",
               place_of(index, token.place, knows_sequences),
               token.id < 0 ? std::string(" is negative")
                            : concat(" is outside the vocabulary of ", options.vocab, " entries")));
  if (int64_t more = scan.num_bad() - std::ssize(scan.bad()); more > 0)
    findings.push_back(concat(index.bin_path(), ": ", with_commas(more),
                              " more token ids that are no entries of the vocabulary"));
}

void add_ends(const RawIndex& index, const TokenScan& scan, int64_t eod,
              std::vector<std::string>& notes) {
  int64_t ended = scan.num_ended(), open = scan.num_open();
  notes.push_back(concat(index.prefix, ": ", with_commas(ended), " of ", with_commas(ended + open),
                         " documents with tokens end in the end-of-document token ", eod));
  if (ended == 0 || open == 0) return;
  std::vector<std::string> numbers;
  for (int64_t document : scan.open()) numbers.push_back(std::to_string(document));
  notes.back() +=
      concat("; the others are ", join(numbers, ", "), open > std::ssize(numbers) ? ", ..." : "");
}

void add_empty(const RawIndex& index, std::vector<std::string>& notes) {
  int64_t empty = 0, first = 0;
  for (int64_t d = index.num_documents() - 1; d >= 0; --d) {
    if (index.documents[d + 1] != index.documents[d]) continue;
    ++empty;
    first = d;
  }
  if (empty > 0)
    notes.push_back(concat(index.prefix, ": ", with_commas(empty),
                           " documents have no sequence, the first is document ", first));
}

}  // namespace

Verification verify_dataset(const std::string& prefix, const VerifyOptions& options) {
  RawIndex index = read_raw_index(prefix);
  StructureFindings structure = structure_findings(index, options.limit);
  bool knows_sequences = structure.sequences.empty();
  bool sound = knows_sequences && structure.size.empty() && structure.documents.empty();
  Verification verdict{.totals = {.documents = std::max<int64_t>(index.num_documents(), 0),
                                  .sequences = index.num_sequences(),
                                  .tokens = index.num_tokens(),
                                  .bytes = index.bin_bytes},
                       .findings = structure.all(),
                       .notes = {}};
  TokenScan scan(index, options, sound);
  Progress progress({.label = "verify", .unit = "B", .total = index.bin_bytes});
  scan.run(progress);
  progress.finish();
  add_bad_tokens(index, scan, options, knows_sequences, verdict.findings);
  if (sound && options.end_of_document)
    add_ends(index, scan, *options.end_of_document, verdict.notes);
  if (structure.documents.empty()) add_empty(index, verdict.notes);
  return verdict;
}

}  // namespace neox
