// Dropout whose mask is a function of the run, the place and the position in the global tensor, and
// with it what stands around it in a residual network: bias and sum, in one pass.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "ops/element.h"
#include "ops/philox.h"

namespace neox {

// Where the elements of a dropout's input lie in the global tensor: dimension 0 counts samples,
// from first_sample on; the rest of a sample, flattened, starts at position `offset` of that
// sample's global elements. The number lies where the input does, so that a step that is recorded
// once can run for any samples.
struct DropoutSite {
  uint64_t key = 0;
  at::Tensor first_sample = {};  // 0-dim int64; undefined: 0
  int64_t offset = 0;
  // The input is a part of whole samples, flattened: so many elements of them are before it, each
  // has so many. per_sample 0: it is whole samples itself.
  int64_t before = 0, per_sample = 0;
  // Elements of a row there, of which the input's rows hold the first; 0: rows are whole.
  int64_t row = 0;
};

// A site as an autograd function keeps it: its numbers, beside the saved tensor first_sample.
std::vector<int64_t> numbers_of(const DropoutSite& site);
DropoutSite site_of(const std::vector<int64_t>& numbers, const at::Tensor& first_sample);

// Zeroes each element with probability p and scales the others by 1 / (1 - p); differentiable. The
// mask is a function of the site, so recomputation, and any layout, drops the same elements. p = 0
// returns x.
at::Tensor dropout(const at::Tensor& x, double p, const DropoutSite& site);

// residual + dropout(x + bias): the first two [B, ..., C], bias [C] or undefined. The gradient of
// the bias is summed in a fixed order.
at::Tensor dropped_sum(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& bias,
                       double p, const DropoutSite& site);

// What the kernels take: y = residual + mask(x + bias), where residual and bias may be null. Rows
// of `columns` elements, the first of `stride` each; per_sample elements in each sample, of which
// `stride` is a divisor; before these rows come `before` others. partial [parts, columns], float or
// of double double: sums of the rows of y; or null. first_sample may be null, for 0.
struct DropoutRows {
  Element type;
  int64_t rows, columns, stride, per_sample, before, parts;
  uint64_t key;
  const int64_t* first_sample;
  int64_t offset;
  uint32_t drop_below;  // of the 32 random bits of an element
  double scale;
  const void *residual, *x, *bias;
  void *y, *partial;
};

// The CUDA half.
void dropout_cuda(const DropoutRows& rows);
int64_t dropout_parts_cuda(int64_t rows, int64_t columns);

}  // namespace neox
