// Rules of scores that attention in blocks is tested with, and what ATen makes of them.
#pragma once
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/tensor.h>

#include <limits>
#include <string>
#include <vector>

#include "ops/score_rule.h"

namespace neox {

// For three heads: windows within a block, of a block and beyond one, slopes, and both.
inline std::vector<ScoreRule> score_rules(double scale) {
  std::vector<double> slopes = {0.5, 0.0625, 0.00390625};
  return {{scale, 1},   {scale, 50},      {scale, 127},       {scale, 128},
          {scale, 300}, {scale, 1 << 20}, {scale, 0, slopes}, {scale, 200, slopes}};
}

inline std::string text_of(const ScoreRule& rule) {
  return "window " + std::to_string(rule.window) + (rule.slopes.empty() ? "" : ", slopes");
}

// softmax(scale q k^T - slope distance) v with a mask, of q, k, v [B, 3, T, D].
inline at::Tensor attention_with_mask(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const ScoreRule& rule) {
  at::Tensor positions = at::arange(q.size(2), q.options()),
             distance = positions.unsqueeze(1) - positions, hidden = distance < 0;
  if (rule.window > 0) hidden = hidden.logical_or(distance > static_cast<double>(rule.window));
  at::Tensor mask = distance.expand({3, -1, -1}) * 0;
  if (!rule.slopes.empty()) mask = -at::tensor(rule.slopes, q.options()).view({3, 1, 1}) * distance;
  mask = mask.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  return at::scaled_dot_product_attention(q, k, v, mask, 0.0, false, rule.scale);
}

}  // namespace neox
