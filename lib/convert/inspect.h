// Looking at what is in a checkpoint of any format, and at how two differ.
#pragma once
#include <string>

#include "base/file.h"
#include "convert/formats.h"
#include "convert/tensor_source.h"

namespace neox {

struct Statistics {
  int64_t elements = 0, not_finite = 0;
  double min = 0, max = 0, mean = 0, deviation = 0;  // of the finite ones
};

// In double, a piece at a time.
Statistics statistics(const at::Tensor& tensor);

// The tree of tensors with shapes, types and statistics, and of a checkpoint of neox.cpp the train
// state.
std::string inspect(const Format& format, const fs::path& path);

// For each tensor that differs ||a - b|| / ||b|| and the greatest |a - b|, the largest first, and
// how many are equal bit for bit. Checkpoints of two formats are compared parameter by parameter.
struct Comparison {
  std::string text;
  bool equal = false;  // the same tensors, bit for bit
};
Comparison diff(const Format& first, const fs::path& a, const Format& second, const fs::path& b);

}  // namespace neox
