// Sums over rows, such as gradients of biases: parts of the rows have sums of their own, which are
// added up at the end. How many there are does not depend on the number of threads, so neither does
// a bit of the result.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>

#include "ops/element.h"

namespace neox {

// How many parts a CPU makes of so many rows.
int64_t row_parts(int64_t rows);

// work(from, to, part) of all parts, over the threads.
void each_row_part(int64_t rows, int64_t parts,
                   const std::function<void(int64_t, int64_t, int64_t)>& work);

// Room for the sums of the parts of the rows of `like`, float or double: on a CPU, and where there
// are no rows, zeros; on a GPU all of it is written.
at::Tensor part_sums(at::IntArrayRef shape, const at::Tensor& like);

// parts [parts, ...], contiguous: added up, in their order.
at::Tensor sum_of_parts(const at::Tensor& parts);

// What the CUDA half takes.
struct PartSums {
  Element type;  // float or double
  int64_t parts, columns;
  const void* from;  // [parts, columns]
  void* to;          // [columns]
};
void sum_of_parts_cuda(const PartSums& sums);

}  // namespace neox
