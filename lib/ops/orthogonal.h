// The orthogonal factor of a matrix, nearly: Muon's step (Jordan et al. 2024,
// kellerjordan.github.io/posts/muon).
#pragma once
#include <ATen/core/Tensor.h>

namespace neox {

// matrix: [rows, columns], or a stack of such, float or double, on any device. Returns U S' V^T of
// its singular value decomposition U S V^T, the values of S' lying between about 0.7 and 1.2: five
// steps of the Newton-Schulz iteration with the coefficients 3.4445, -4.7750, 2.0315, in the
// matrix's type; of float ones on a GPU in bf16, as the authors and DeepSpeed have it.
at::Tensor orthogonalized(const at::Tensor& matrix);

}  // namespace neox
