// What lies where in the files of a checkpoint: a few tables. Each rank file holds the catalog of
// its own boxes; index.h5 holds the merger of all.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checksum.h"
#include "checkpoint/hdf5_file.h"
#include "checkpoint/raw_file.h"
#include "shard/box.h"

namespace neox {

struct StoredFile {
  std::string name;
  int64_t bytes = 0;
  Checksum rest;  // of all bytes that belong to no box
};

struct StoredDataset {
  int64_t file = 0;  // position in the table of files
  std::string name;
  int64_t offset = 0;  // in the file
};

struct StoredTensor {
  std::string state, name;
  c10::ScalarType dtype;
  Dims shape;  // global
};

struct StoredBox {
  int64_t tensor = 0, dataset = 0;  // positions in their tables
  Box box;
  int64_t offset = 0;  // elements from the start of the dataset
  Checksum sum;        // of its bytes
};

struct Catalog {
  std::vector<StoredFile> files;  // empty in a rank file
  std::vector<StoredDataset> datasets;
  std::vector<StoredTensor> tensors;
  std::vector<StoredBox> boxes;

  ByteRange range(const StoredBox& box) const;  // in its file
  // Of each file (of the one, in a rank file), the ranges of its boxes, ascending. Throws where two
  // share a byte.
  std::vector<std::vector<ByteRange>> ranges() const;
  int64_t file_of(const StoredBox& box) const {
    return datasets[static_cast<size_t>(box.dataset)].file;
  }
  // "param of layers.0.norm.weight"
  std::string label(int64_t tensor) const;
};

void put_catalog(Hdf5File& file, const Catalog& catalog);
// Throws unless the tables agree with each other; `where` is for messages.
Catalog get_catalog(const Hdf5File& file, const std::string& where);

// Puts the catalogs of rank files together. Throws where files disagree about a tensor.
class CatalogMerger {
 public:
  void add(const StoredFile& file, const Catalog& part);
  const Catalog& all() const { return all_; }

 private:
  int64_t tensor_id(const StoredTensor& tensor, const std::string& file);
  Catalog all_;
  std::map<std::pair<std::string, std::string>, int64_t> ids_;  // by state and name
  std::vector<std::string> first_file_;                         // that named the tensor
};

// Throws unless every element of every tensor lies in exactly one box.
void check_covered_once(const Catalog& catalog);

}  // namespace neox
