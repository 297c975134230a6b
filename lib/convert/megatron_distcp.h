// Directories of torch.distributed.checkpoint: .metadata, a pickle that says which part of which
// tensor lies where, and files of parts, each part as torch.save writes it. Read-only.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "shard/box.h"
#include "torchfile/torch_file.h"

namespace neox {

// Bytes of a file of the directory.
struct DistPlace {
  std::string file;
  int64_t offset = 0, length = 0;
};

struct DistTensor {
  at::ScalarType dtype = at::ScalarType::Float;
  Dims shape;
  std::vector<std::pair<Box, DistPlace>> chunks;
};

class DistDirectory {
 public:
  // Throws (74) where .metadata cannot be read as a whole, or where the chunks of a tensor overlap,
  // leave holes, or lie in no file.
  explicit DistDirectory(fs::path dir);
  const fs::path& dir() const { return dir_; }
  const std::map<std::string, DistTensor>& tensors() const { return tensors_; }
  // That part of a tensor.
  at::Tensor read(const std::string& name, const Box& box) const;
  // What is no tensor, as torch.save wrote it; null where there is none of the name.
  std::shared_ptr<const torchfile::TorchFile> object(const std::string& name) const;

 private:
  void check_place(const std::string& name, const DistPlace& place) const;

  fs::path dir_;
  std::map<std::string, DistTensor> tensors_;
  std::map<std::string, DistPlace> objects_;
};

}  // namespace neox
