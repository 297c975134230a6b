// Tokenized corpora in the format of GPT-NeoX and Megatron: <prefix>.idx (lengths, positions,
// document boundaries) beside <prefix>.bin (the tokens). docs/data.md has the grammar. Both files
// are mapped, nothing is copied; any number of threads may read at once. Byte order: little-endian,
// like the machines this runs on.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace neox {

// A read-only array at an address of any alignment: arrays in .idx start at odd offsets.
template <class T>
class UnalignedSpan {
 public:
  UnalignedSpan() = default;
  UnalignedSpan(std::span<const std::byte> bytes) : bytes_(bytes) {}
  UnalignedSpan(std::span<const T> values) : bytes_(std::as_bytes(values)) {}
  int64_t size() const { return static_cast<int64_t>(bytes_.size() / sizeof(T)); }
  std::span<const std::byte> bytes() const { return bytes_; }
  T operator[](int64_t i) const {
    T value;
    std::memcpy(&value, bytes_.data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
};

// What stands in a .bin: the codes of the format (6 and 7 are floating-point numbers).
enum class TokenType : uint8_t {
  kUint8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUint16 = 8
};
int64_t token_bytes(TokenType type);
// Calls work(T*) with a null pointer of the type.
template <class Work>
auto with_token_type(TokenType type, const Work& work) {
  switch (type) {
    case TokenType::kUint8:
      return work(static_cast<uint8_t*>(nullptr));
    case TokenType::kInt8:
      return work(static_cast<int8_t*>(nullptr));
    case TokenType::kInt16:
      return work(static_cast<int16_t*>(nullptr));
    case TokenType::kInt32:
      return work(static_cast<int32_t*>(nullptr));
    case TokenType::kInt64:
      return work(static_cast<int64_t*>(nullptr));
    case TokenType::kUint16:
      return work(static_cast<uint16_t*>(nullptr));
  }
  fail(Exit::kInternal, "no type of tokens has the code ", static_cast<int>(type));
}
// What the numbers of a dataset are: labels are kMaskedLabel where nothing is learnt, rewards any.
enum class Content { kTokens, kLabels, kRewards };
// In a dataset of labels: nothing is learnt from this token (GPT-NeoX's and PyTorch's value).
inline constexpr int32_t kMaskedLabel = -100;
// The rule of the tools that write these files: uint16 below 65,500 entries, else int32.
TokenType token_type_of(int64_t vocab);

// What an .idx says. Only its header and its size were checked.
struct DatasetIndex {
  TokenType type = TokenType::kUint16;
  UnalignedSpan<int32_t> lengths;    // tokens of each sequence
  UnalignedSpan<int64_t> positions;  // bytes from the start of .bin
  // The first sequence of each document, then the number of sequences.
  UnalignedSpan<int64_t> documents;
  bool multimodal = false;  // the modes of the sequences stand behind these

  int64_t num_sequences() const { return lengths.size(); }
  int64_t num_documents() const { return documents.size() - 1; }
};
// Of the bytes of a file, which the index refers to. Throws Error (74) that names `path`.
DatasetIndex read_index(std::span<const std::byte> bytes, const std::string& path);

inline constexpr size_t kIdxHeaderBytes = 34;

// Throws Error (74) that says what is there instead where a prefix has no .bin or no .idx.
void check_dataset_exists(const std::string& prefix);

class IndexedDataset {
 public:
  static constexpr int64_t kAnyToken = INT64_MAX;
  static constexpr int64_t kAnyNumber = -1;  // also negative ones: labels

  // Opens and checks both files of the prefix. Throws Error (74) that names the file, what is wrong
  // with it and the cure. get() accepts the tokens 0 .. vocab - 1.
  explicit IndexedDataset(const std::string& prefix, int64_t vocab = kAnyToken);

  const std::string& prefix() const { return prefix_; }
  TokenType type() const { return index_.type; }
  int64_t num_sequences() const { return index_.num_sequences(); }
  int64_t num_documents() const { return index_.num_documents(); }
  int64_t num_tokens() const { return num_tokens_; }
  UnalignedSpan<int32_t> lengths() const { return index_.lengths; }
  UnalignedSpan<int64_t> documents() const { return index_.documents; }

  // tokens = tokens offset .. offset + tokens.size() - 1 of a sequence.
  void get(int64_t sequence, int64_t offset, std::span<int64_t> tokens) const;

  // How the tokens are read from here on; at random at first. Any thread.
  void expect(MappedFile::Access access) const;
  // Begins to read these tokens from the disk.
  void prefetch(int64_t sequence, int64_t offset, int64_t tokens) const;

  // Oddities that do not keep the data from being used; to be said once.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  void check_positions();
  void check_documents();
  template <class T>
  void copy(int64_t sequence, int64_t offset, std::span<int64_t> tokens) const;
  [[noreturn]] void fail_token(int64_t sequence, int64_t position, int64_t token) const;

  std::string prefix_, idx_path_, bin_path_;
  int64_t vocab_;
  MappedFile idx_, bin_;
  DatasetIndex index_;
  int64_t num_tokens_ = 0;
  std::vector<std::string> warnings_;
};

}  // namespace neox
