// The two files of a dataset as they are, for the tools that look for damage, cut, join or mend.
// (IndexedDataset, with which training reads, accepts some oddities and stops at the first damage.)
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/indexed_dataset.h"

namespace neox {

struct RawIndex : DatasetIndex {
  std::string prefix;
  MappedFile file;
  int64_t bin_bytes = 0;  // size of the .bin

  std::string idx_path() const { return prefix + ".idx"; }
  std::string bin_path() const { return prefix + ".bin"; }
  // Of the lengths; positive ones alone.
  int64_t num_tokens() const;
};

// Throws Error (74) where a file is missing, or header and size of .idx do not agree.
RawIndex read_raw_index(const std::string& prefix);

// What is wrong with a dataset's structure, each named by its place. In a sound one the lengths are
// not negative, the positions are their sums, the documents rise from 0 to the number of sequences,
// and .bin has the tokens of the lengths and no more.
struct StructureFindings {
  std::vector<std::string> size;       // of .bin
  std::vector<std::string> documents;  // boundaries
  std::vector<std::string> sequences;  // lengths and positions
  std::vector<std::string> all() const;
};
// limit: of each kind; what is beyond is counted.
StructureFindings structure_findings(const RawIndex& index, int64_t limit);

// Throws Error (74) with the first finding where there is one.
RawIndex open_sound(const std::string& prefix);

// By its name and type, as neox-prepare-data and GPT-NeoX's tools write them.
Content content_of(const std::string& prefix, TokenType type);
const char* name_of(Content content);

// "uint16" and the like.
const char* name_of(TokenType type);

}  // namespace neox
