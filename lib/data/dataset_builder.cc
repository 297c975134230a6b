#include "data/dataset_builder.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace neox {
namespace {

constexpr int64_t kHeaderBytes = kIdxHeaderBytes;
constexpr int64_t kLengthsAtOnce = 1 << 17;  // lengths that are read back at once

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

// Behind the lengths that the .idx of a rank holds.
int64_t lengths_end(const DatasetState& state) {
  return kHeaderBytes + 4 * std::max<int64_t>(state.part.documents - 1, 0);
}

OutputFile open_part(const std::string& prefix, const char* ending, const DatasetOptions& options) {
  auto how = options.from ? OutputFile::Open::kTakeOver : OutputFile::Open::kCreate;
  make_directories(directory_of(prefix));
  return OutputFile(prefix + ending, std::to_string(options.rank), how);
}

// Calls use(span of lengths) for the first `count` lengths in an .idx, in order.
template <class Use>
void for_lengths(OutputFile& idx, int64_t count, const Use& use) {
  std::vector<int32_t> lengths;
  for (int64_t at = 0; at < count; at += std::ssize(lengths)) {
    lengths.resize(static_cast<size_t>(std::min(kLengthsAtOnce, count - at)));
    idx.read(std::as_writable_bytes(std::span(lengths)), kHeaderBytes + 4 * at);
    use(std::span<const int32_t>(lengths));
  }
}

}  // namespace

void append_tokens(std::span<const int32_t> tokens, TokenType type, int64_t vocab, int32_t least,
                   std::vector<std::byte>& bytes) {
  int32_t lowest = least, highest = least;
  for (int32_t token : tokens) {
    lowest = std::min(lowest, token);
    highest = std::max(highest, token);
  }
  check(lowest >= least && highest < vocab, "token id ", lowest < least ? lowest : highest,
        " is outside the vocabulary of ", vocab);
  size_t begin = bytes.size();
  if (type == TokenType::kInt32) {
    std::span<const std::byte> same = std::as_bytes(tokens);
    bytes.insert(bytes.end(), same.begin(), same.end());
    return;
  }
  bytes.resize(begin + 2 * tokens.size());
  auto* to = bytes.data() + begin;
  for (size_t i = 0; i < tokens.size(); ++i) {
    auto narrow = static_cast<uint16_t>(tokens[i]);
    std::memcpy(to + 2 * i, &narrow, 2);
  }
}

DatasetBuilder::DatasetBuilder(const std::string& prefix, const DatasetOptions& options)
    : prefix_(prefix),
      type_(options.type),
      vocab_(options.type == TokenType::kUint16 ? UINT16_MAX + 1 : INT32_MAX),
      rank_(options.rank),
      bin_(open_part(prefix, ".bin", options)),
      idx_(open_part(prefix, ".idx", options)) {
  check(type_ == TokenType::kUint16 || type_ == TokenType::kInt32, prefix_,
        ": tokens are written as uint16 or int32");
  go_back(options.from.value_or(DatasetState()));
}

DatasetBuilder::DatasetBuilder(const std::string& prefix, int64_t vocab)
    : DatasetBuilder(prefix, {.type = token_type_of(vocab)}) {
  vocab_ = vocab;
}

void DatasetBuilder::append(std::span<const std::byte> tokens) {
  bin_.write(tokens);
  state_.part.tokens += std::ssize(tokens) / token_bytes(type_);
}

void DatasetBuilder::check_length(int64_t tokens) const {
  check_io(tokens <= INT32_MAX, prefix_, ": a document has ", tokens,
           " tokens, more than the 2147483647 that the format can hold; split it");
}

void DatasetBuilder::begin_document(int64_t tokens) {
  end_document();
  check_length(tokens);
  state_.last = tokens;
  ++state_.part.documents;
}

void DatasetBuilder::end_document() {
  if (state_.part.documents > 0) idx_.write_value(static_cast<int32_t>(state_.last));
}

void DatasetBuilder::add_document(std::span<const int32_t> tokens) {
  for (int32_t token : tokens)
    check(token >= 0 && token < vocab_, prefix_, ": token id ", token, " in document ",
          num_documents(), " is outside the vocabulary of ", vocab_);
  encoded_.clear();
  append_tokens(tokens, type_, vocab_, 0, encoded_);
  append(encoded_);
  begin_document(std::ssize(tokens));
}

void DatasetBuilder::add_documents(std::span<const std::byte> tokens,
                                   std::span<const int64_t> lengths) {
  append(tokens);
  for (int64_t length : lengths)
    if (length > 0) begin_document(length);
}

void DatasetBuilder::add_to_document(std::span<const std::byte> tokens) {
  int64_t& length = state_.part.documents > 0 ? state_.last : state_.part.lead;
  length += std::ssize(tokens) / token_bytes(type_);
  check_length(length);
  append(tokens);
}

void DatasetBuilder::go_back(const DatasetState& state) {
  state_ = state;
  bin_.seek(state.part.tokens * token_bytes(type_));
  idx_.seek(lengths_end(state));
}

void DatasetBuilder::flush() {
  bin_.flush();
  idx_.flush();
}

void DatasetBuilder::sync() const {
  bin_.sync();
  idx_.sync();
}

bool DatasetBuilder::can_go_on(const std::string& prefix, const DatasetOptions& options) {
  const DatasetState& from = *options.from;
  auto holds = [&](const char* ending, int64_t bytes) {
    std::error_code error;
    auto size =
        fs::file_size(OutputFile::part_of(prefix + ending, std::to_string(options.rank)), error);
    return !error && size >= static_cast<uintmax_t>(bytes);
  };
  return holds(".bin", from.part.tokens * token_bytes(options.type)) &&
         holds(".idx", from.part.documents > 1 ? lengths_end(from) : 0);
}

void DatasetBuilder::keep_files() {
  bin_.keep();
  idx_.keep();
}

void DatasetBuilder::discard_files() {
  bin_.discard();
  idx_.discard();
}

// The arrays of .idx, of this rank's documents, the first of which begins at token `begin`; idx is
// rank 0's.
void DatasetBuilder::write_index(OutputFile& idx, std::span<const DatasetPart> parts,
                                 int64_t begin) {
  int64_t mine = num_documents(), all = sum(parts).documents;
  int64_t first = sum(parts.first(static_cast<size_t>(rank_))).documents;
  if (rank_ == 0) {
    idx.seek(0);
    write_index_header(idx, type_, all, all);
  } else {
    idx.seek(kHeaderBytes + 4 * first);
    idx.copy(idx_, kHeaderBytes, 4 * mine);
  }
  idx.seek(kHeaderBytes + 4 * all + 8 * first);
  for_lengths(idx_, mine, [&](std::span<const int32_t> lengths) {
    for (int32_t length : lengths) {
      idx.write_value(begin * token_bytes(type_));
      begin += length;
    }
  });
  idx.seek(kHeaderBytes + 12 * all + 8 * first);
  for (int64_t i = 0; i < mine; ++i) idx.write_value(first + i);
  if (static_cast<size_t>(rank_) + 1 == parts.size()) idx.write_value(all);
}

void DatasetBuilder::place(std::span<const DatasetPart> parts) {
  auto rank = static_cast<size_t>(rank_);
  int64_t begin = sum(parts.first(rank)).tokens;
  DatasetPart all = sum(parts);
  if (num_documents() > 0) state_.last += tail(parts.subspan(rank + 1));
  check_length(state_.last);
  if (rank_ == 0 && parts.size() > 1) idx_.share();
  end_document();
  flush();
  if (rank_ == 0) {
    bin_.set_size(all.tokens * token_bytes(type_));
    idx_.set_size(kHeaderBytes + 12 * all.documents + 8 * (all.documents + 1));
    write_index(idx_, parts, state_.part.lead);
    return flush(), sync();
  }
  OutputFile bin(prefix_ + ".bin", "0", OutputFile::Open::kShare);
  OutputFile idx(prefix_ + ".idx", "0", OutputFile::Open::kShare);
  bin.seek(begin * token_bytes(type_));
  bin.copy(bin_, 0, num_tokens() * token_bytes(type_));
  write_index(idx, parts, begin + state_.part.lead);
  bin.flush_to_disk();
  idx.flush_to_disk();
}

void DatasetBuilder::publish() { publish_dataset(prefix_, bin_, idx_); }

void DatasetBuilder::finish() {
  DatasetPart alone = part();
  place(std::span(&alone, 1));
  publish();
}

void write_index_header(OutputFile& idx, TokenType type, int64_t sequences, int64_t documents) {
  idx.write(std::as_bytes(std::span("MMIDIDX\0", 9)));
  idx.write_value<uint64_t>(1);
  idx.write_value(static_cast<uint8_t>(type));
  idx.write_value(sequences);
  idx.write_value(documents + 1);
}

void publish_dataset(const std::string& prefix, OutputFile& bin, OutputFile& idx) {
  // An .idx is never beside a .bin that is not its own, whenever the machine stops.
  ::unlink((prefix + ".idx").c_str());
  bin.publish();
  try {
    idx.publish();
  } catch (...) {
    ::unlink((prefix + ".bin").c_str());
    throw;
  }
  sync_directory(directory_of(prefix));
}

void remove_parts(const std::string& prefix, int first) {
  for (const char* ending : {".bin", ".idx"})
    remove_numbered(OutputFile::part_of(prefix + ending, ""), first);
}

}  // namespace neox
