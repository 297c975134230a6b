// The rows of a table; their gradient goes straight to the table's.
#pragma once
#include <ATen/core/Tensor.h>

namespace neox {

// weight [V, hidden], rows int64 [...], each of 0 .. V - 1: [..., hidden].
at::Tensor embedding_rows(const at::Tensor& weight, const at::Tensor& rows);

}  // namespace neox
