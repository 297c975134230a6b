#include "dataset/repair.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/progress.h"
#include "base/text.h"
#include "dataset/raw_index.h"

namespace neox {
namespace {

// The tokens of a .bin by their number, which are asked for from the first to the last.
class Tokens {
 public:
  explicit Tokens(const RawIndex& index)
      : type_(index.type), file_(index.bin_path(), MappedFile::Access::kSequential) {}
  int64_t size() const { return std::ssize(file_.bytes()) / token_bytes(type_); }
  int64_t operator[](int64_t at) const {
    return with_token_type(type_, [&]<class T>(T*) {
      return static_cast<int64_t>(UnalignedSpan<T>(file_.bytes())[at]);
    });
  }

 private:
  TokenType type_;
  MappedFile file_;
};

constexpr const char* kRefused = "; nothing was written. Prepare the data again";

std::vector<int32_t> lengths_of(const RawIndex& index) {
  std::vector<int32_t> lengths(static_cast<size_t>(index.num_sequences()));
  for (int64_t i = 0; i < index.num_sequences(); ++i) {
    lengths[static_cast<size_t>(i)] = index.lengths[i];
    check_io(index.lengths[i] >= 0, index.idx_path(), ": sequence ", i, " has the length ",
             index.lengths[i], kRefused);
  }
  return lengths;
}

std::vector<int64_t> boundaries_of(const RawIndex& index) {
  std::vector<int64_t> found;
  for (int64_t i = 0; i < index.documents.size(); ++i) found.push_back(index.documents[i]);
  return found;
}

// Boundaries that end at the number of sequences.
std::vector<int64_t> mended_boundaries(const RawIndex& index) {
  std::vector<int64_t> found = boundaries_of(index);
  const std::string path = index.idx_path();
  check_io(!found.empty() && found.front() == 0 && std::ranges::is_sorted(found), path,
           ": the boundaries of its documents do not rise from 0, so that they say nothing",
           kRefused);
  int64_t sequences = index.num_sequences();
  if (found.back() == sequences) return found;
  bool singles = found.size() > 1;
  for (size_t i = 0; i < found.size(); ++i) singles &= found[i] == static_cast<int64_t>(i);
  check_io(singles, path, ": the last document ends at sequence ", found.back(), " of ", sequences,
           found.size() > 1 ? ", and documents have several sequences"
                            : ", and no other document is known",
           ", so that it cannot be told where the others ended", kRefused);
  found.resize(static_cast<size_t>(sequences) + 1);
  std::iota(found.begin(), found.end(), int64_t{0});
  return found;
}

// The last sequence with tokens of each document that has some.
std::vector<int64_t> ends(const std::vector<int32_t>& lengths,
                          const std::vector<int64_t>& boundaries) {
  std::vector<int64_t> found;
  for (size_t d = 0; d + 1 < boundaries.size(); ++d) {
    int64_t last = boundaries[d + 1] - 1;
    while (last >= boundaries[d] && lengths[static_cast<size_t>(last)] == 0) --last;
    if (last >= boundaries[d]) found.push_back(last);
  }
  return found;
}

// Decides for each document whether its last token was counted.
class Counting {
 public:
  Counting(const RawIndex& index, std::vector<int32_t>& lengths, const RepairOptions& options)
      : index_(index), tokens_(index), lengths_(lengths), eod_(options.end_of_document) {}

  // last: of each document, the last sequence with tokens.
  void mend(const std::vector<int64_t>& last) {
    int64_t surplus = tokens_.size() - index_.num_tokens();
    check_io(surplus <= std::ssize(last), index_.bin_path(), " has ", with_commas(surplus),
             " tokens more than .idx speaks of, but only ", with_commas(std::ssize(last)),
             " documents with tokens, each of which may lack one", kRefused);
    bool all = surplus == std::ssize(last);
    if (!eod_) find_end(last, all);
    Progress progress({.label = "repair", .unit = "documents", .total = std::ssize(last)});
    int64_t end = 0, sequence = 0, shown = 0;
    for (int64_t l : last) {
      for (; sequence <= l; ++sequence) end += lengths_[static_cast<size_t>(sequence)];
      if (!is_counted(l, end, all)) {
        check_io(lengths_[static_cast<size_t>(l)]++ < INT32_MAX, "sequence ", l, " is too long");
        ++end;
        ++lengthened_;
      }
      if (++shown % 65536 == 0) progress.update(shown);
    }
    check_io(end == tokens_.size(), index_.bin_path(), " has ", with_commas(tokens_.size() - end),
             " tokens behind the last document, whichever end in the token ", *eod_, kRefused);
  }

  int64_t lengthened() const { return lengthened_; }
  std::optional<int64_t> end_of_document() const { return eod_; }

 private:
  void find_end(const std::vector<int64_t>& last, bool all) {
    check_io(all && last.size() > 1, index_.bin_path(),
             all ? " has one document only" : ": not every document lacks one token",
             ", so that the end-of-document token cannot be found out; name it with --eod or "
             "--vocab-file");
    eod_ = tokens_[tokens_.size() - 1];
  }

  // Whether the token that ends a document is among those that .idx counts; `end` is where those
  // end.
  bool is_counted(int64_t sequence, int64_t end, bool all) const {
    bool behind = end < tokens_.size() && tokens_[end] == *eod_;
    bool inside = !all && end <= tokens_.size() && tokens_[end - 1] == *eod_;
    check_io(behind || inside, index_.bin_path(), ": behind sequence ", sequence, ", at token ",
             with_commas(end), " (byte ", end * token_bytes(index_.type), "), there is ",
             end < tokens_.size() ? concat("the token ", tokens_[end]) : std::string("nothing"),
             ", not the end-of-document token ", *eod_, ", so that this is not the known damage",
             kRefused);
    check_io(!(behind && inside), index_.bin_path(), ": at the end of sequence ", sequence,
             " there are two end-of-document tokens (", *eod_, "), at token ", with_commas(end - 1),
             ", and it cannot be told whether the next document begins with the second", kRefused);
    return inside;
  }

  const RawIndex& index_;
  Tokens tokens_;
  std::vector<int32_t>& lengths_;
  std::optional<int64_t> eod_;
  int64_t lengthened_ = 0;
};

// Whether both are names of one file, as link() makes them; not where one is a symbolic link to the
// other.
bool is_link_of(const std::string& a, const std::string& b) {
  struct stat one {
  }, other{};
  return ::lstat(a.c_str(), &one) == 0 && ::lstat(b.c_str(), &other) == 0 &&
         one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

Totals replace_index(const RawIndex& index, const IndexPart& part) {
  std::string path = index.idx_path(), old = path + ".old";
  // One that was killed before it named the new index left the old one under both names.
  bool kept = is_link_of(old, path);
  check_usage(kept || !fs::exists(old), old,
              " exists, from an earlier repair; remove it first, or give --output-prefix");
  OutputFile idx(path);
  Totals totals = write_index(idx, index.type, std::span(&part, 1));
  idx.flush_to_disk();
  check_call(kept || ::link(path.c_str(), old.c_str()) == 0, "keep the old index as", old);
  try {
    idx.publish();
  } catch (...) {
    ::unlink(old.c_str());
    throw;
  }
  sync_directory(directory_of(path));
  return totals;
}

Totals write_beside(const RawIndex& index, const IndexPart& part, const std::string& prefix) {
  NewDataset made(prefix);
  Progress progress({.label = "copy", .unit = "B", .total = index.bin_bytes});
  made.copy(index.bin_path(), 0, index.bin_bytes, [&](int64_t n) { progress.add(n); });
  Totals totals = made.write_index(index.type, std::span(&part, 1));
  made.publish();
  progress.finish();
  return totals;
}

}  // namespace

Repaired repair_dataset(const std::string& prefix, const RepairOptions& options) {
  RawIndex index = read_raw_index(IndexedDataset(prefix).prefix());
  check_io(index.bin_bytes % token_bytes(index.type) == 0, index.bin_path(), " has ",
           index.bin_bytes, " bytes, which is no number of ", name_of(index.type), " tokens",
           kRefused);
  std::vector<int32_t> lengths = lengths_of(index);
  std::vector<std::string> misplaced = structure_findings(index, 1).sequences;
  check_io(misplaced.empty(), misplaced.empty() ? "" : misplaced.front(),
           ". Where its tokens are cannot be told", kRefused);
  std::vector<int64_t> boundaries = mended_boundaries(index);
  Repaired done{.boundaries_before = index.num_documents(),
                .boundaries = std::ssize(boundaries) - 1,
                .end_of_document = options.end_of_document};
  if (index.bin_bytes > index.num_tokens() * token_bytes(index.type)) {
    Counting counting(index, lengths, options);
    counting.mend(ends(lengths, boundaries));
    done.lengthened = counting.lengthened();
    done.end_of_document = counting.end_of_document();
  }
  IndexPart part{.lengths = std::span<const int32_t>(lengths),
                 .ends = std::span<const int64_t>(boundaries).subspan(1)};
  if (!done.any()) {
    std::vector<std::string> found = structure_findings(index, 1).all();
    check_io(found.empty(), found.empty() ? "" : found.front(),
             ". That is not a damage that can be mended", kRefused);
    return done;
  }
  done.totals = options.output_prefix.empty() ? replace_index(index, part)
                                              : write_beside(index, part, options.output_prefix);
  return done;
}

}  // namespace neox
