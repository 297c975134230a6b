// Looks through a dataset for all that may be wrong with it, tokens included.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/indexed_dataset.h"
#include "dataset/new_dataset.h"

namespace neox {

struct VerifyOptions {
  int64_t vocab = IndexedDataset::kAnyToken;  // ids from this on are findings; negative ones always
  std::optional<int64_t> end_of_document;     // counted where it is known
  int threads = 1;
  int64_t limit = 100;  // findings of a kind that are listed; the others are counted
};

struct Verification {
  Totals totals;
  std::vector<std::string> findings;  // what is wrong, each with its place
  std::vector<std::string> notes;     // what may be meant so
  bool sound() const { return findings.empty(); }
};

// Reads .idx and .bin once, each thread its own stretches. Throws Error (74) where a file is
// missing, cannot be read, or has no header that makes sense.
Verification verify_dataset(const std::string& prefix, const VerifyOptions& options);

}  // namespace neox
