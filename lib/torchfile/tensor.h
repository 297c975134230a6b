// PyTorch's tensors of a file's tensors, and the other way round.
#pragma once
#include <ATen/core/Tensor.h>

#include "torchfile/torch_writer.h"
#include "torchfile/value.h"

namespace neox::torchfile {

at::ScalarType scalar_type(DType dtype);
// Throws (70) for types that files do not have here.
DType dtype_of(at::ScalarType type);

// The tensor with its sizes and strides, to be read only, and only as long as its TorchFile. It is
// a view of the mapped file; a copy where the bytes cannot be used where and as they are (a big-
// endian file, data that is not aligned, conjugated or negated values).
at::Tensor to_tensor(const TensorRef& tensor);

// To be written: of any strides and device; moved to the CPU when it is its turn.
NewTensor new_tensor(const at::Tensor& tensor);

}  // namespace neox::torchfile
