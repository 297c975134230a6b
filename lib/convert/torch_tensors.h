// A state dict that torch.save wrote (pytorch_model.bin): names and tensors, and nothing else.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "convert/tensor_source.h"
#include "torchfile/torch_file.h"

namespace neox {

class TorchTensors : public TensorSource {
 public:
  // Throws (74) where the file is damaged, or holds anything but named tensors.
  explicit TorchTensors(const fs::path& path);
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  // A copy, so that the file's pages go back to the kernel.
  at::Tensor read(const std::string& name) const override;

 private:
  torchfile::TorchFile file_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, torchfile::Value> values_;
};

}  // namespace neox
