// Random tensors as functions of (key, position in the global tensor), so that any slice of a
// parameter, on any rank, gets the values that the whole one would have.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "ops/philox.h"

namespace neox {

// Standard normal values (Box-Muller) at positions [begin, begin + out.size()) of the global
// tensor.
void normal_at(uint64_t key, int64_t begin, std::span<float> out);

// Uniform values in [0, 1).
void uniform_at(uint64_t key, int64_t begin, std::span<float> out);

// Where the elements of a dropout's input lie in the global tensor: dimension 0 counts samples,
// from first_sample on; the rest of a sample, flattened, starts at position `offset` of that
// sample's global elements.
struct DropoutSite {
  uint64_t key = 0;
  int64_t first_sample = 0;
  int64_t offset = 0;
};

// Zeroes each element with probability p and scales the others by 1 / (1 - p); differentiable. The
// mask is a function of the site, so recomputation, and any layout, drops the same elements. p = 0
// returns x.
at::Tensor dropout(const at::Tensor& x, double p, const DropoutSite& site);

// y = x * mask / (1 - p), of one device; the kernel behind dropout().
void dropout_kernel(const at::Tensor& x, at::Tensor& y, double p, const DropoutSite& site);

// The CUDA half: n elements, per_sample in each sample. dtype: see DropoutType.
enum class DropoutType { kFloat, kDouble, kHalf, kBFloat16 };
void dropout_cuda(const void* x, void* y, DropoutType type, int64_t n, int64_t per_sample, double p,
                  const DropoutSite& site);

}  // namespace neox
