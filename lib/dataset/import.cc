#include "dataset/import.h"

#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "dataset/raw_index.h"

namespace neox {
namespace {

constexpr int64_t kOldHeaderBytes = 56;

struct OldIndex {
  std::string path;
  MappedFile file;
  TokenType type = TokenType::kInt32;
  UnalignedSpan<int64_t> dim_offsets;   // of each item, and the end: its first place in sizes
  UnalignedSpan<int64_t> data_offsets;  // of each item, and the end: its first token
  UnalignedSpan<int64_t> sizes;         // of each dimension
  UnalignedSpan<int64_t> documents;     // 0, then the items after each document
};

void check_header(const OldIndex& index, const UnalignedSpan<int64_t>& header) {
  auto magic = index.file.text().substr(0, 8);
  check_io(magic == std::string_view("TNTIDX\0\0", 8), index.path,
           magic.starts_with("MMIDIDX") ? ": this is today's format already"
                                        : ": not of the format TNTIDX");
  check_io(std::ssize(index.file.bytes()) >= kOldHeaderBytes, index.path,
           " is truncated: ", index.file.bytes().size(), " bytes, and the header alone has ",
           kOldHeaderBytes);
  check_io(header[1] == 1, index.path, ": version ", header[1], " of the format; only 1 is known");
  int64_t code = header[2];
  check_io((code >= 1 && code <= 5) || code == 8, index.path, ": type code ", code,
           " is none of an integer (1 to 5, and 8)");
  check_io(header[3] == token_bytes(static_cast<TokenType>(code)), index.path,
           " is damaged: its tokens have the type ", name_of(static_cast<TokenType>(code)), " and ",
           header[3], " bytes");
}

OldIndex read_old_index(const std::string& path) {
  OldIndex index{.path = path, .file = MappedFile(path)};
  std::span<const std::byte> bytes = index.file.bytes();
  UnalignedSpan<int64_t> header(bytes.first(std::min<size_t>(bytes.size(), kOldHeaderBytes)));
  check_header(index, header);
  index.type = static_cast<TokenType>(header[2]);
  int64_t items = header[4], sizes = header[5], documents = header[6];
  constexpr int64_t kTooMany = int64_t{1} << 56;
  for (int64_t n : {items, sizes, documents})
    check_io(n >= 0 && n < kTooMany, path, " is damaged: its header says ", items, " items, ",
             sizes, " sizes and ", documents, " documents");
  int64_t wanted = kOldHeaderBytes + 8 * (2 * (items + 1) + sizes + documents);
  check_io(std::ssize(bytes) == wanted, path, " is damaged or truncated: its header says ", items,
           " items, ", sizes, " sizes and ", documents, " documents, which take ", wanted,
           " bytes, but it has ", bytes.size());
  bytes = bytes.subspan(kOldHeaderBytes);
  for (auto [part, size] : {std::pair{&index.dim_offsets, items + 1},
                            {&index.data_offsets, items + 1},
                            {&index.sizes, sizes},
                            {&index.documents, documents}}) {
    *part = bytes.first(static_cast<size_t>(size) * 8);
    bytes = bytes.subspan(static_cast<size_t>(size) * 8);
  }
  return index;
}

std::vector<int32_t> lengths_of(const OldIndex& index) {
  std::vector<int32_t> lengths;
  int64_t sum = 0;
  for (int64_t i = 0; i + 1 < index.dim_offsets.size(); ++i) {
    check_io(
        index.dim_offsets[i] == i && index.dim_offsets[i + 1] == i + 1 && i < index.sizes.size(),
        index.path, ": item ", i, " is no sequence: its dimensions are ", index.dim_offsets[i],
        " .. ", index.dim_offsets[i + 1], ", and not the one at ", i);
    int64_t length = index.sizes[i];
    check_io(length >= 0 && length <= INT32_MAX, index.path, ": item ", i, " has the length ",
             length);
    check_io(index.data_offsets[i] == sum && index.data_offsets[i + 1] == sum + length, index.path,
             " is damaged: item ", i, " has ", length, " tokens, but lies at ",
             index.data_offsets[i], " .. ", index.data_offsets[i + 1],
             ", and those before it end at ", sum);
    lengths.push_back(static_cast<int32_t>(length));
    sum += length;
  }
  return lengths;
}

// Boundaries as in today's format. Where the old tool was not told of documents, each sequence is
// one.
std::vector<int64_t> documents_of(const OldIndex& index, int64_t sequences) {
  std::vector<int64_t> documents;
  for (int64_t i = 0; i < index.documents.size(); ++i) documents.push_back(index.documents[i]);
  if (documents.size() <= 1 && sequences > 0) {
    log_info(index.path, " names no documents; each of its ", sequences, " sequences becomes one");
    documents.clear();
    for (int64_t i = 0; i <= sequences; ++i) documents.push_back(i);
  }
  if (documents.empty()) documents.push_back(0);
  for (size_t i = 0; i < documents.size(); ++i)
    check_io(documents[i] >= (i ? documents[i - 1] : 0) && documents[i] <= sequences &&
                 (i > 0 || documents[i] == 0),
             index.path, " is damaged: boundary ", i, " of its documents is ", documents[i], " of ",
             sequences, " sequences");
  check_io(documents.back() == sequences, index.path, " is damaged: its documents end at sequence ",
           documents.back(), ", but there are ", sequences);
  return documents;
}

}  // namespace

Totals import_tntidx(const std::string& prefix, const std::string& output_prefix) {
  check_dataset_exists(prefix);
  OldIndex index = read_old_index(prefix + ".idx");
  std::vector<int32_t> lengths = lengths_of(index);
  std::vector<int64_t> documents = documents_of(index, std::ssize(lengths));
  std::string bin = prefix + ".bin";
  std::error_code error;
  auto available = static_cast<int64_t>(fs::file_size(bin, error));
  check_io(!error, "cannot read ", bin, ": ", describe_errno(error.value()));
  int64_t tokens = index.data_offsets[std::ssize(lengths)];
  int64_t wanted = tokens * token_bytes(index.type);
  check_io(available == wanted, bin,
           available < wanted ? " is truncated: " : " is too long: ", prefix, ".idx speaks of ",
           wanted, " bytes, but it has ", available);
  NewDataset made(output_prefix);
  Progress progress({.label = "import", .unit = "B", .total = wanted});
  made.copy(bin, 0, wanted, [&](int64_t n) { progress.add(n); });
  IndexPart part{.lengths = std::span<const int32_t>(lengths),
                 .ends = std::span<const int64_t>(documents).subspan(1)};
  Totals totals = made.write_index(index.type, std::span(&part, 1));
  made.publish();
  progress.finish();
  return totals;
}

}  // namespace neox
