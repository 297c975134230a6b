// Golden values of tests/oracle/optim.py.
#pragma once
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>

#include <nlohmann/json.hpp>

#include "base/file.h"

namespace neox {

using at::Tensor;

inline const nlohmann::json& golden() {
  static const auto all = nlohmann::json::parse(
      read_file(fs::path(NEOX_SOURCE_DIR) / "tests" / "golden" / "model_optim.json"));
  return all;
}

inline Tensor scalar(double value) { return at::full({}, value, at::kDouble); }

inline double relative(const Tensor& a, const Tensor& b) {
  return ((a - b).norm() / b.norm()).to(at::kDouble).item<double>();
}

}  // namespace neox
