// Sums over rows, such as gradients of biases: parts of the rows have sums of their own, which are
// added up at the end. How many there are does not depend on the number of threads, so neither does
// a bit of the result.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>

namespace neox {

// How many parts a CPU makes of so many rows.
int64_t row_parts(int64_t rows);

// work(from, to, part) of all parts, over the threads.
void each_row_part(int64_t rows, int64_t parts,
                   const std::function<void(int64_t, int64_t, int64_t)>& work);

// Zeros for the sums of the parts, where the rows are of the type of `like`: float or double.
at::Tensor part_sums(at::IntArrayRef shape, const at::Tensor& like);

}  // namespace neox
