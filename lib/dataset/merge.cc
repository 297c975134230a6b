#include "dataset/merge.h"

#include <sys/resource.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "data/sample_index.h"
#include "dataset/raw_index.h"

namespace neox {
namespace {

std::vector<std::string> datasets_of(const std::string& input) {
  std::error_code error;
  if (!fs::is_directory(input, error)) return {input};
  std::vector<std::string> found;
  for (fs::directory_iterator it(input, error), end; !error && it != end; it.increment(error)) {
    fs::path path = it->path();
    if (path.extension() == ".idx") found.push_back(path.replace_extension().string());
  }
  check_io(!error, "cannot list ", input, ": ", describe_errno(error.value()));
  check_io(!found.empty(), "no dataset is in the directory ", input);
  std::ranges::sort(found);
  return found;
}

UnalignedSpan<int64_t> ends_of(const RawIndex& index, int64_t first, int64_t end) {
  return index.documents.bytes().subspan(static_cast<size_t>(first + 1) * sizeof(int64_t),
                                         static_cast<size_t>(end - first) * sizeof(int64_t));
}

// Documents first .. end - 1.
IndexPart part_of(const RawIndex& index, int64_t first, int64_t end) {
  int64_t from = index.documents[first], to = index.documents[end];
  return {
      .lengths = index.lengths.bytes().subspan(static_cast<size_t>(from) * sizeof(int32_t),
                                               static_cast<size_t>(to - from) * sizeof(int32_t)),
      .ends = ends_of(index, first, end),
      .first = from};
}

// The byte of .bin at which a document begins.
int64_t begin_of(const RawIndex& index, int64_t document) {
  int64_t sequence = index.documents[document];
  return sequence < index.num_sequences() ? index.positions[sequence] : index.bin_bytes;
}

// The documents at which parts begin, and the number of documents.
std::vector<int64_t> cuts(const RawIndex& index, const SplitRule& rule) {
  std::vector<int64_t> found;
  if (rule.by == SplitRule::By::kShares) {
    check_usage(
        std::ranges::count(rule.shares, ',') < 3 && std::ranges::count(rule.shares, '/') < 3,
        "--shares ", rule.shares, " has more than the shares of train, valid and test");
    for (const SequenceRange& range : split_sequences(rule.shares, index.num_documents()))
      found.push_back(range.first);
  } else if (rule.by == SplitRule::By::kDocuments) {
    int64_t step = std::min(rule.size, std::max<int64_t>(index.num_documents(), 1));
    for (int64_t d = 0; d < index.num_documents(); d += step) found.push_back(d);
  } else {
    for (int64_t d = 0; d < index.num_documents(); ++d) {
      int64_t from = found.empty() ? -1 : begin_of(index, found.back());
      if (from < 0 || (begin_of(index, d + 1) - from) / token_bytes(index.type) > rule.size)
        found.push_back(d);
    }
  }
  found.push_back(index.num_documents());
  return found;
}

std::string part_name(const SplitRule& rule, size_t number) {
  constexpr const char* kNames[] = {"_train", "_valid", "_test"};
  if (rule.by == SplitRule::By::kShares) return kNames[number];
  return printed("_%05zu", number);
}

// Beside those that a program has anyway. All parts stay open, since they are named together.
void allow_open_files(int64_t files) {
  rlimit limit{};
  auto wanted = static_cast<rlim_t>(files + 64);
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  check_usage(limit.rlim_max >= wanted, "that would be ", with_commas(files),
              " files at once, and ", limit.rlim_max,
              " may be open (ulimit -n); make the parts larger");
  limit.rlim_cur = wanted;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
}

}  // namespace

Totals merge_datasets(const std::vector<std::string>& inputs, const std::string& output_prefix) {
  std::vector<RawIndex> indices;
  int64_t bytes = 0;
  for (const std::string& input : inputs) {
    for (const std::string& prefix : datasets_of(input)) {
      indices.push_back(open_sound(prefix));
      bytes += indices.back().bin_bytes;
      const RawIndex& first = indices.front();
      Content here = content_of(prefix, indices.back().type),
              there = content_of(first.prefix, first.type);
      bool named = (here == Content::kTokens ? prefix : first.prefix).ends_with("_document");
      check_usage(here == there || !named, prefix, " holds ", name_of(here), ", but ", first.prefix,
                  " ", name_of(there),
                  ": merge each kind by itself, with the same files in the same order");
      check_usage(indices.back().type == indices.front().type, indices.back().bin_path(),
                  " has tokens of the type ", name_of(indices.back().type), ", but ",
                  indices.front().bin_path(), " of ", name_of(indices.front().type),
                  ": they come from different vocabularies, and cannot be joined");
    }
  }
  check_usage(!indices.empty(), "no dataset to merge was named");
  NewDataset merged(output_prefix);
  Progress progress({.label = "merge", .unit = "B", .total = bytes});
  std::vector<IndexPart> parts;
  for (const RawIndex& index : indices) {
    merged.copy(index.bin_path(), 0, index.bin_bytes, [&](int64_t n) { progress.add(n); });
    parts.push_back(part_of(index, 0, index.num_documents()));
  }
  Totals totals = merged.write_index(indices.front().type, parts);
  merged.publish();
  progress.finish();
  return totals;
}

std::vector<DatasetInfo> split_dataset(const std::string& prefix, const std::string& output_prefix,
                                       const SplitRule& rule) {
  check_usage(rule.by == SplitRule::By::kShares || rule.size > 0, "parts of ", rule.size,
              rule.by == SplitRule::By::kTokens ? " tokens" : " documents", ", not at least 1");
  RawIndex index = open_sound(prefix);
  std::vector<int64_t> firsts = cuts(index, rule);
  check_usage(firsts.size() <= 100'000, "that would be ", with_commas(std::ssize(firsts) - 1),
              " parts; make them larger");
  allow_open_files(2 * std::ssize(firsts));
  Progress progress({.label = "split", .unit = "B", .total = index.bin_bytes});
  std::vector<NewDataset> parts;
  std::vector<DatasetInfo> infos;
  for (size_t i = 0; i + 1 < firsts.size(); ++i) {
    std::string name = output_prefix + part_name(rule, i);
    if (firsts[i] == firsts[i + 1]) {
      log_info("no documents are left for ", name);
      continue;
    }
    NewDataset& part = parts.emplace_back(name);
    int64_t begin = begin_of(index, firsts[i]), end = begin_of(index, firsts[i + 1]);
    part.copy(index.bin_path(), begin, end - begin, [&](int64_t n) { progress.add(n); });
    IndexPart documents = part_of(index, firsts[i], firsts[i + 1]);
    infos.push_back({name, index.type, part.write_index(index.type, std::span(&documents, 1))});
  }
  check_usage(!parts.empty(), prefix, " has no documents to split");
  for (NewDataset& part : parts) part.publish();
  progress.finish();
  return infos;
}

DatasetInfo count_dataset(const std::string& prefix) {
  IndexedDataset data(prefix);
  for (const std::string& warning : data.warnings()) log_warning(warning);
  return {.prefix = data.prefix(),
          .type = data.type(),
          .totals = {.documents = data.num_documents(),
                     .sequences = data.num_sequences(),
                     .tokens = data.num_tokens(),
                     .bytes = data.num_tokens() * token_bytes(data.type())}};
}

}  // namespace neox
