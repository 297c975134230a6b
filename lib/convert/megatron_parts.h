// Parameters that lie in parts, one for each tensor-parallel rank, as if they were whole.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "convert/tensor_source.h"
#include "convert/tp_parts.h"
#include "torchfile/torch_file.h"

namespace neox {

struct TensorPart {
  std::string where;  // "mp_rank_01/model_optim_rng.pt: language_model.encoder..."
  at::ScalarType dtype = at::ScalarType::Float;
  Dims shape;
  std::function<at::Tensor()> read;  // in memory of its own
};

// A part that is a tensor of a file.
TensorPart file_part(std::shared_ptr<const torchfile::TorchFile> file,
                     const torchfile::TensorRef& tensor, const std::string& name);

// By the name that the whole has; the parts in the order of their ranks.
using TensorParts = std::map<std::string, std::vector<TensorPart>>;

class JoinedTensors : public TensorSource {
 public:
  // forms: of those names that are not TpSplit::kNone. Throws (74) where parts of a tensor differ
  // in type or shape, or do not make a whole.
  JoinedTensors(TensorParts parts, std::map<std::string, TpForm> forms);
  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  at::Tensor read(const std::string& name) const override;

 private:
  TpForm form_of(const std::string& name) const;

  TensorParts parts_;
  std::map<std::string, TpForm> forms_;
  std::vector<TensorInfo> infos_;
};

}  // namespace neox
