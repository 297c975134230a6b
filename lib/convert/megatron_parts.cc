#include "convert/megatron_parts.h"

#include "base/error.h"
#include "base/log.h"
#include "torchfile/tensor.h"

namespace neox {
namespace {

// What all tensors of the name must look like, and the whole of them.
TensorInfo whole_of(const std::string& name, const std::vector<TensorPart>& parts,
                    const TpForm& form) {
  const TensorPart& first = parts.at(0);
  for (const TensorPart& part : parts)
    check_io(part.dtype == first.dtype && part.shape == first.shape, part.where, " is ",
             to_string(part.shape), " ", type_words(part.dtype), ", but ", first.where, " is ",
             to_string(first.shape), " ", type_words(first.dtype));
  TensorInfo info{name, first.dtype, first.shape};
  if (form.split == TpSplit::kNone) return info;
  auto ranks = static_cast<int64_t>(parts.size());
  bool qkv = form.split == TpSplit::kQkv || form.split == TpSplit::kQkvLast;
  check_io(!qkv || form.groups % ranks == 0, first.where, ": ", ranks,
           " tensor-parallel ranks do not divide ", form.groups, " heads");
  size_t dim = form.split == TpSplit::kColumns ? 1 : 0;
  check_io(dim < info.shape.size(), first.where, " is ", to_string(info.shape), ", not a matrix");
  check_io(form.split != TpSplit::kGateUp || info.shape[0] % 2 == 0, first.where, " has ",
           info.shape[0], " rows, which are not two halves");
  info.shape[dim] *= ranks;
  return info;
}

}  // namespace

TensorPart file_part(std::shared_ptr<const torchfile::TorchFile> file,
                     const torchfile::TensorRef& tensor, const std::string& name) {
  TensorPart part{.where = concat(file->name(), ": ", name),
                  .dtype = torchfile::scalar_type(tensor.dtype),
                  .shape = tensor.sizes};
  part.read = [file, &tensor] {
    at::Tensor copy = torchfile::to_tensor(tensor).clone(at::MemoryFormat::Contiguous);
    file->release_memory();
    return copy;
  };
  return part;
}

JoinedTensors::JoinedTensors(TensorParts parts, std::map<std::string, TpForm> forms)
    : parts_(std::move(parts)), forms_(std::move(forms)) {
  for (const auto& [name, of] : parts_) infos_.push_back(whole_of(name, of, form_of(name)));
}

TpForm JoinedTensors::form_of(const std::string& name) const {
  auto found = forms_.find(name);
  return found == forms_.end() ? TpForm() : found->second;
}

at::Tensor JoinedTensors::read(const std::string& name) const {
  auto found = parts_.find(name);
  check_io(found != parts_.end(), "there is no tensor ", name);
  std::vector<at::Tensor> tensors;
  for (const TensorPart& part : found->second) tensors.push_back(part.read());
  TpForm form = form_of(name);
  if (form.split == TpSplit::kNone && !all_equal(tensors))
    log_warning("the copies of ", name, " on ", tensors.size(),
                " tensor-parallel ranks differ; their mean is taken");
  return join_parts(form, tensors);
}

}  // namespace neox
