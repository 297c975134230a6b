// Joins datasets, and cuts one into parts. Documents stay whole and keep their order; the files are
// those that Megatron's tools/merge_datasets.py writes, byte for byte.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "dataset/new_dataset.h"

namespace neox {

// inputs: prefixes, and directories, which stand for the datasets in them in the order of their
// names. Throws Error: 64 where the types of the tokens differ, 74 for a dataset that is damaged.
Totals merge_datasets(const std::vector<std::string>& inputs, const std::string& output_prefix);

struct SplitRule {
  enum class By {
    kDocuments,  // parts of `size` documents
    kTokens,     // parts of whole documents with at most `size` tokens; a longer one is alone
    kShares,     // train, valid, test by `shares` of the documents, as the key `split` cuts
  };
  By by = By::kDocuments;
  int64_t size = 0;
  std::string shares = {};
};

struct DatasetInfo {
  std::string prefix;
  TokenType type;
  Totals totals;
};

// Writes <output_prefix>_00000, _00001, ... or _train, _valid, _test (without those that have no
// documents).
std::vector<DatasetInfo> split_dataset(const std::string& prefix, const std::string& output_prefix,
                                       const SplitRule& rule);

// Of the index alone, which is read in whole and checked.
DatasetInfo count_dataset(const std::string& prefix);

}  // namespace neox
