// A tensor times a number that is mostly 1.
#pragma once
#include <ATen/core/Tensor.h>

namespace neox {

// x itself where the factor is 1; x may be undefined.
inline at::Tensor scaled(const at::Tensor& x, double factor) {
  return factor == 1 || !x.defined() ? x : x.mul(factor);
}

}  // namespace neox
