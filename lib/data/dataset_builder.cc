#include "data/dataset_builder.h"

#include <unistd.h>

#include <numeric>
#include <utility>

#include "base/error.h"

namespace neox {
namespace {

constexpr int64_t kHeaderBytes = 34;
constexpr size_t kBin = 0, kIdx = 1;

template <class T>
void write_value(OutputFile& file, T value) {
  file.write(std::as_bytes(std::span(&value, 1)));
}

DatasetPart sum(std::span<const DatasetPart> parts) {
  DatasetPart all;
  for (const DatasetPart& part : parts) {
    all.documents += part.documents;
    all.tokens += part.tokens;
  }
  return all;
}

// What the parts behind a rank add to its last document.
int64_t tail(std::span<const DatasetPart> behind) {
  int64_t tokens = 0;
  for (const DatasetPart& part : behind) {
    tokens += part.lead;
    if (part.documents > 0) break;
  }
  return tokens;
}

}  // namespace

DatasetBuilder::DatasetBuilder(const std::string& prefix, int64_t vocab, int rank, std::string life)
    : prefix_(prefix),
      vocab_(vocab),
      type_(token_type_of(vocab)),
      rank_(rank),
      life_(std::move(life)) {
  if (rank > 0) {
    held_ = std::make_unique<HeldBytes>(prefix + ".bin", concat(life_, ".", rank));
    return;
  }
  if (fs::path dir = fs::path(prefix).parent_path(); !dir.empty()) make_directories(dir);
  for (const char* ending : {".bin", ".idx"})
    files_.push_back(open(ending, OutputFile::Open::kCreate));
}

OutputFile DatasetBuilder::open(const char* ending, OutputFile::Open how) const {
  return OutputFile(prefix_ + ending, life_, how);
}

void DatasetBuilder::append(std::span<const int32_t> tokens) {
  for (int32_t token : tokens)
    check(token >= 0 && token < vocab_, prefix_, ": token id ", token, " in document ",
          num_documents(), " is outside the vocabulary of ", vocab_);
  std::span<const std::byte> bytes = std::as_bytes(tokens);
  if (type_ == TokenType::kUint16) {
    narrow_.assign(tokens.begin(), tokens.end());
    bytes = std::as_bytes(std::span(narrow_));
  }
  held_ ? held_->write(bytes) : files_[kBin].write(bytes);
  num_tokens_ += static_cast<int64_t>(tokens.size());
}

void DatasetBuilder::add_document(std::span<const int32_t> tokens) {
  append(tokens);
  lengths_.push_back(static_cast<int64_t>(tokens.size()));
}

void DatasetBuilder::add_to_document(std::span<const int32_t> tokens) {
  append(tokens);
  (lengths_.empty() ? lead_ : lengths_.back()) += static_cast<int64_t>(tokens.size());
}

void DatasetBuilder::keep(int64_t documents) {
  lengths_.resize(static_cast<size_t>(documents));
  num_tokens_ = std::accumulate(lengths_.begin(), lengths_.end(), lead_);
}

void DatasetBuilder::drop_all() {
  lead_ = 0;
  keep(0);
}

DatasetPart DatasetBuilder::part() const { return {lead_, num_documents(), num_tokens_}; }

// The three arrays of .idx, of this rank's documents, the first of which begins at token `begin`.
void DatasetBuilder::write_index(OutputFile& idx, std::span<const DatasetPart> parts,
                                 int64_t begin) {
  int64_t all = sum(parts).documents;
  int64_t first = sum(parts.first(static_cast<size_t>(rank_))).documents;
  if (rank_ == 0) {
    idx.write(std::as_bytes(std::span("MMIDIDX\0", 9)));
    write_value<uint64_t>(idx, 1);
    write_value<uint8_t>(idx, static_cast<uint8_t>(type_));
    write_value<int64_t>(idx, all);
    write_value<int64_t>(idx, all + 1);
  }
  idx.seek(kHeaderBytes + 4 * first);
  for (int64_t length : lengths_) {
    check_io(length <= INT32_MAX, prefix_, ": a document has ", length,
             " tokens, more than the format can hold; split it");
    write_value(idx, static_cast<int32_t>(length));
  }
  idx.seek(kHeaderBytes + 4 * all + 8 * first);
  for (int64_t length : lengths_) {
    write_value(idx, begin * token_bytes(type_));
    begin += length;
  }
  idx.seek(kHeaderBytes + 12 * all + 8 * first);
  for (int64_t i = 0; i < num_documents(); ++i) write_value(idx, first + i);
  if (static_cast<size_t>(rank_) + 1 == parts.size()) write_value(idx, all);
}

void DatasetBuilder::place(std::span<const DatasetPart> parts) {
  auto rank = static_cast<size_t>(rank_);
  int64_t begin = sum(parts.first(rank)).tokens;
  if (!lengths_.empty()) lengths_.back() += tail(parts.subspan(rank + 1));
  if (!files_.empty()) {
    write_index(files_[kIdx], parts, begin + lead_);
    for (OutputFile& file : files_) file.flush_to_disk();
    return;
  }
  OutputFile bin = open(".bin", OutputFile::Open::kShare);
  OutputFile idx = open(".idx", OutputFile::Open::kShare);
  bin.seek(begin * token_bytes(type_));
  held_->copy_to(bin, num_tokens_ * token_bytes(type_));
  held_.reset();
  write_index(idx, parts, begin + lead_);
  bin.flush_to_disk();
  idx.flush_to_disk();
}

void DatasetBuilder::publish() {
  // An .idx is never beside a .bin that is not its own, whenever the machine stops.
  ::unlink((prefix_ + ".idx").c_str());
  files_[kBin].publish();
  try {
    files_[kIdx].publish();
  } catch (...) {
    ::unlink((prefix_ + ".bin").c_str());
    throw;
  }
  fs::path dir = fs::path(prefix_).parent_path();
  sync_directory(dir.empty() ? "." : dir);
}

void DatasetBuilder::finish() {
  DatasetPart alone = part();
  place(std::span(&alone, 1));
  publish();
}

}  // namespace neox
