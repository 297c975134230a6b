#include "dataset/raw_index.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace neox {
namespace {

// Findings up to a limit, and how many more there were.
class List {
 public:
  explicit List(int64_t limit) : limit_(limit) {}
  template <class... Parts>
  void add(const Parts&... parts) {
    if (std::ssize(texts_) < limit_)
      texts_.push_back(concat(parts...));
    else
      ++more_;
  }
  std::vector<std::string> take(const std::string& path) {
    if (more_) texts_.push_back(concat(path, ": ", with_commas(more_), " more of the kind"));
    return std::move(texts_);
  }

 private:
  int64_t limit_, more_ = 0;
  std::vector<std::string> texts_;
};

void add_positions(const RawIndex& index, List& list) {
  const int64_t size = token_bytes(index.type);
  int64_t wanted = 0;
  for (int64_t i = 0; i < index.num_sequences(); ++i) {
    int64_t length = index.lengths[i], position = index.positions[i];
    if (length < 0)
      list.add(index.idx_path(), ": sequence ", i, " has the length ", length);
    else if (position < 0 || position > index.bin_bytes ||
             length > (index.bin_bytes - position) / size)
      list.add(index.idx_path(), ": sequence ", i, " starts at byte ", position, " and has ",
               length, " tokens, but ", index.bin_path(), " has ", index.bin_bytes, " bytes");
    else if (position != wanted)
      list.add(index.idx_path(), ": sequence ", i, " starts at byte ", position,
               ", but the lengths before it sum to byte ", wanted);
    wanted += std::max<int64_t>(length, 0) * size;
  }
}

void add_documents(const RawIndex& index, List& list) {
  const UnalignedSpan<int64_t>& documents = index.documents;
  if (documents.size() == 0)
    return list.add(index.idx_path(), ": there are no document boundaries");
  if (documents[0] != 0)
    list.add(index.idx_path(), ": document 0 begins at sequence ", documents[0], ", not at 0");
  for (int64_t i = 1; i < documents.size(); ++i)
    if (documents[i] < documents[i - 1])
      list.add(index.idx_path(), ": document ", i - 1, " begins at sequence ", documents[i - 1],
               " and ends at ", documents[i]);
  if (int64_t last = documents[documents.size() - 1]; last != index.num_sequences())
    list.add(index.idx_path(), ": the last document ends at sequence ", last, ", but there are ",
             index.num_sequences(), "; neox-data repair may mend it");
}

void add_surplus(const RawIndex& index, List& list) {
  const int64_t size = token_bytes(index.type), wanted = index.num_tokens() * size;
  if (index.bin_bytes < wanted)
    list.add(index.bin_path(), " is truncated: ", index.idx_path(), " speaks of ", wanted,
             " bytes, but it has ", index.bin_bytes);
  if (index.bin_bytes <= wanted) return;
  int64_t surplus = index.bin_bytes - wanted;
  if (surplus % size != 0)
    return list.add(index.bin_path(), " has ", surplus, " bytes more than ", index.idx_path(),
                    " speaks of, which is no number of ", name_of(index.type), " tokens");
  list.add(index.bin_path(), " has ", with_commas(surplus / size), " tokens more than ",
           index.idx_path(), " speaks of, from byte ", wanted,
           " on. Tools of Megatron and Megatron-DeepSpeed wrote the tokens that end documents and "
           "did not count them, so that each document begins with the end of the one before; "
           "neox-data repair mends that");
}

}  // namespace

int64_t RawIndex::num_tokens() const {
  int64_t sum = 0;
  for (int64_t i = 0; i < num_sequences(); ++i) sum += std::max(lengths[i], 0);
  return sum;
}

Content content_of(const std::string& path, TokenType type) {
  if (type != TokenType::kInt32) return Content::kTokens;
  std::string_view prefix = path;  // without what split_dataset() puts behind it
  for (std::string_view part : {"_train", "_valid", "_test"})
    if (prefix.ends_with(part)) prefix.remove_suffix(part.size());
  size_t digits = prefix.find_last_not_of("0123456789") + 1;
  if (prefix.size() - digits >= 5 && digits > 0 && prefix[digits - 1] == '_')
    prefix = prefix.substr(0, digits - 1);
  if (prefix.ends_with("_reward_document")) return Content::kRewards;
  return prefix.ends_with("label_document") ? Content::kLabels : Content::kTokens;
}

const char* name_of(Content content) {
  return content == Content::kTokens   ? "tokens"
         : content == Content::kLabels ? "labels"
                                       : "rewards";
}

const char* name_of(TokenType type) {
  switch (type) {
    case TokenType::kUint8:
      return "uint8";
    case TokenType::kInt8:
      return "int8";
    case TokenType::kInt16:
      return "int16";
    case TokenType::kInt32:
      return "int32";
    case TokenType::kInt64:
      return "int64";
    case TokenType::kUint16:
      return "uint16";
  }
  return "unknown";
}

RawIndex read_raw_index(const std::string& prefix) {
  check_dataset_exists(prefix);
  RawIndex index;
  index.prefix = prefix;
  index.file = MappedFile(index.idx_path());
  static_cast<DatasetIndex&>(index) = read_index(index.file.bytes(), index.idx_path());
  check_io(!index.multimodal, index.idx_path(),
           " is multimodal (it has a mode for each sequence), which neox-data does not handle");
  std::error_code error;
  index.bin_bytes = static_cast<int64_t>(fs::file_size(index.bin_path(), error));
  check_io(!error, "cannot read ", index.bin_path(), ": ", describe_errno(error.value()));
  return index;
}

StructureFindings structure_findings(const RawIndex& index, int64_t limit) {
  auto list = [&](auto* add) {
    List found(limit);
    add(index, found);
    return found.take(index.idx_path());
  };
  return {.size = list(add_surplus),
          .documents = list(add_documents),
          .sequences = list(add_positions)};
}

std::vector<std::string> StructureFindings::all() const {
  std::vector<std::string> found;
  for (const auto* some : {&size, &documents, &sequences})
    found.insert(found.end(), some->begin(), some->end());
  return found;
}

RawIndex open_sound(const std::string& prefix) {
  IndexedDataset opened(prefix);  // whose messages for missing and damaged files say what to do
  RawIndex index = read_raw_index(opened.prefix());
  std::vector<std::string> found = structure_findings(index, 1).all();
  check_io(found.empty(), found.empty() ? "" : found.front(), "; neox-data verify ", prefix,
           " lists what is wrong with it");
  return index;
}

}  // namespace neox
