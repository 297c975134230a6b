// Mends the index of a dataset whose .bin is whole. Two kinds of damage, which tools are known to
// make, are undone where what was meant can be told for certain:
//
//  - The tokens that end documents were written and not counted (Megatron from November 2022 to
//    August 2023, and Megatron-DeepSpeed). Every document then has one token more than .idx says,
//    and that must be the end-of-document token. Where only some were not counted (two datasets
//    were merged), each document must end in that token at exactly one of the two places.
//  - The last document ends elsewhere than at the last sequence. Where every document is one
//    sequence, so are those that are missing.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "dataset/new_dataset.h"

namespace neox {

struct RepairOptions {
  std::string output_prefix;               // "": in place, and the old index is kept as .idx.old
  std::optional<int64_t> end_of_document;  // none: found out, where all documents agree
};

struct Repaired {
  int64_t lengthened = 0;                         // documents
  int64_t boundaries_before = 0, boundaries = 0;  // documents
  std::optional<int64_t> end_of_document;         // as it was found, or given
  Totals totals;
  bool any() const { return lengthened > 0 || boundaries != boundaries_before; }
};

// Writes nothing where nothing is wrong. Throws Error (74) where the damage is of another kind, or
// what was meant is not certain.
Repaired repair_dataset(const std::string& prefix, const RepairOptions& options);

}  // namespace neox
