#include "convert/tp_parts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include "base/error.h"
#include "base/log.h"

namespace neox {
namespace {

// The rows of `part` as [sizes..., what else it has].
at::Tensor rows_as(const at::Tensor& part, Dims sizes) {
  for (int64_t dim = 1; dim < part.dim(); ++dim) sizes.push_back(part.size(dim));
  return part.reshape(sizes);
}

at::Tensor thirds_to_ours(const at::Tensor& part, const ModelConfig& model) {
  int64_t D = model.head_size(), G = model.group_queries();
  int64_t groups = part.size(0) / ((G + 2) * D);
  auto thirds = part.split_with_sizes({groups * G * D, groups * D, groups * D}, 0);
  return at::cat({rows_as(thirds[0], {groups, G, D}), rows_as(thirds[1], {groups, 1, D}),
                  rows_as(thirds[2], {groups, 1, D})},
                 1);
}

at::Tensor ours_to_thirds(const at::Tensor& part, const ModelConfig& model) {
  int64_t D = model.head_size(), G = model.group_queries();
  at::Tensor groups = rows_as(part, {part.size(0) / ((G + 2) * D), G + 2, D});
  Dims rows = {-1};
  return at::cat({rows_as(groups.narrow(1, 0, G).flatten(0, 2), rows),
                  rows_as(groups.narrow(1, G, 1).flatten(0, 2), rows),
                  rows_as(groups.narrow(1, G + 1, 1).flatten(0, 2), rows)},
                 0);
}

at::Tensor to_ours(const at::Tensor& part, RowOrder order, const ModelConfig& model) {
  int64_t D = model.head_size(), n = part.size(0);
  at::Tensor ours = part;
  if (order == RowOrder::kThirds) ours = thirds_to_ours(part, model);
  if (order == RowOrder::kHeadsLast) ours = rows_as(part, {n / (3 * D), D, 3}).transpose(1, 2);
  if (order == RowOrder::kGateUp) ours = rows_as(part, {2, n / 2}).transpose(0, 1);
  if (order == RowOrder::kUpGate) ours = rows_as(part, {2, n / 2}).flip(0).transpose(0, 1);
  return ours.reshape(part.sizes());
}

at::Tensor from_ours(const at::Tensor& part, RowOrder order, const ModelConfig& model) {
  int64_t D = model.head_size(), n = part.size(0);
  at::Tensor theirs = part;
  if (order == RowOrder::kThirds) theirs = ours_to_thirds(part, model);
  if (order == RowOrder::kHeadsLast) theirs = rows_as(part, {n / (3 * D), 3, D}).transpose(1, 2);
  if (order == RowOrder::kGateUp) theirs = rows_as(part, {n / 2, 2}).transpose(0, 1);
  if (order == RowOrder::kUpGate) theirs = rows_as(part, {n / 2, 2}).transpose(0, 1).flip(0);
  return theirs.reshape(part.sizes());
}

at::Tensor join_copies(const std::vector<at::Tensor>& parts, const std::string& name) {
  bool same = true;
  for (const at::Tensor& part : parts) same &= part.equal(parts[0]);
  if (same) return parts[0];
  at::Tensor all = at::stack(parts).to(at::kDouble), mean = all.mean(0);
  log_warning("the ", parts.size(), " copies of ", name, " lie up to ",
              (all - mean).abs().max().item<double>(), " from their mean, which is taken");
  return mean.to(parts[0].scalar_type());
}

}  // namespace

PartRule part_rule(const ParamSpec& ours, const ModelConfig& model, const PartLayout& layout) {
  auto is = [&](const char* name) { return ours.name.find(name) != std::string::npos; };
  if (!ours.tp_dim) {
    bool output = is(".attention.dense.bias") || is(".dense_4h_to_h.bias");
    return {output ? layout.output_bias : Cut::kCopies, RowOrder::kOurs};
  }
  PartRule rule{*ours.tp_dim == 0 ? Cut::kRows : Cut::kColumns, RowOrder::kOurs};
  if (is(".query_key_value.")) rule.order = layout.qkv;
  if (is(".dense_h_to_4h.") && model.gated) rule.order = layout.gated;
  return rule;
}

Dims part_shape(const ParamSpec& ours, const PartRule& rule, const ModelConfig& model,
                int64_t parts) {
  Dims shape = ours.shape;
  if (rule.cut != Cut::kRows && rule.cut != Cut::kColumns) return shape;
  int64_t& size = shape[rule.cut == Cut::kRows ? 0 : 1];
  int64_t units = size;
  if (ours.name.find(".query_key_value.") != std::string::npos) units = model.groups();
  if (ours.name.find(".attention.dense.") != std::string::npos) units = model.groups();
  if (ours.name.find(".dense_h_to_4h.") != std::string::npos) units = model.intermediate;
  check_usage(parts > 0 && units % parts == 0, ours.name, " ", to_string(ours.shape),
              " does not divide into ", parts, " parts: it has ", units,
              units == size ? " rows or columns" : " groups of heads, or columns of the MLP");
  size /= parts;
  return shape;
}

at::Tensor join_parts(const std::vector<at::Tensor>& parts, const ParamSpec& ours,
                      const PartRule& rule, const ModelConfig& model) {
  check(!parts.empty(), ours.name, ": no parts");
  if (rule.cut == Cut::kCopies) return join_copies(parts, ours.name).contiguous();
  if (rule.cut == Cut::kSum) {
    at::Tensor sum = at::stack(parts).to(at::kDouble).sum(0);
    return parts.size() == 1 ? parts[0].contiguous() : sum.to(parts[0].scalar_type());
  }
  std::vector<at::Tensor> ordered;
  for (const at::Tensor& part : parts) ordered.push_back(to_ours(part, rule.order, model));
  return at::cat(ordered, rule.cut == Cut::kRows ? 0 : 1);
}

at::Tensor cut_part(const at::Tensor& whole, const ParamSpec& ours, const PartRule& rule,
                    const ModelConfig& model, int64_t part, int64_t parts) {
  if (rule.cut == Cut::kCopies) return whole.contiguous();
  if (rule.cut == Cut::kSum) return part == 0 ? whole.contiguous() : at::zeros_like(whole);
  int64_t size = part_shape(ours, rule, model, parts)[rule.cut == Cut::kRows ? 0 : 1];
  at::Tensor mine = whole.narrow(rule.cut == Cut::kRows ? 0 : 1, part * size, size);
  return from_ours(mine, rule.order, model).contiguous();
}

}  // namespace neox
