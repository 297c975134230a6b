#include "convert/torch_tensors.h"

#include <ATen/ops/empty.h>

#include "base/error.h"
#include "torchfile/tensor.h"

namespace neox {

using torchfile::Kind;

TorchTensors::TorchTensors(const fs::path& path) : file_(path) {
  torchfile::Value root = file_.root();
  check_io(root.is(Kind::kDict), file_.name(), ": holds ", kind_name(root.kind()),
           " instead of a state dict: names and tensors");
  for (const torchfile::Entry& entry : root.entries()) {
    check_io(entry.key.is(Kind::kString), file_.name(), ": a state dict has names as keys, not ",
             kind_name(entry.key.kind()));
    std::string name(entry.key.as_string());
    check_io(entry.value.is(Kind::kTensor), file_.name(), ": ", name, " is ",
             kind_name(entry.value.kind()), ", not a tensor: is this a state dict?");
    const torchfile::TensorRef& tensor = entry.value.tensor();
    tensors_.push_back({name, torchfile::scalar_type(tensor.dtype), tensor.sizes});
    values_.emplace(name, entry.value);
  }
}

at::Tensor TorchTensors::read(const std::string& name) const {
  auto found = values_.find(name);
  check_io(found != values_.end(), file_.name(), " holds no tensor ", name);
  at::Tensor view = torchfile::to_tensor(found->second.tensor());
  at::Tensor copy = at::empty(view.sizes(), view.options());
  copy.copy_(view);
  file_.release_memory();
  return copy;
}

}  // namespace neox
