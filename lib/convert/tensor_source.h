// Named tensors in files, read one at a time: what the files of every kind of checkpoint come down
// to.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "shard/box.h"

namespace neox {

struct TensorInfo {
  std::string name;
  at::ScalarType dtype = at::ScalarType::Float;
  Dims shape;
  int64_t bytes() const {
    return num_elements(shape) * static_cast<int64_t>(c10::elementSize(dtype));
  }
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  // On the CPU, contiguous. Throws (74) for a name that tensors() does not have.
  virtual at::Tensor read(const std::string& name) const = 0;
};

// Are type, shape and bytes the same? Of what holds NaN equal() says no.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

// "fp32", "fp16", "bf16", "fp64", and for the types that parameters do not have torch's words.
std::string type_words(at::ScalarType dtype);
// The type of those words, for the four; nothing for others.
std::optional<at::ScalarType> parameter_type(const std::string& words);

}  // namespace neox
