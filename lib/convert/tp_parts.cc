#include "convert/tp_parts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "base/error.h"

namespace neox {
namespace {

int64_t dim_of(TpSplit split) { return split == TpSplit::kColumns ? 1 : 0; }

bool is_split(TpSplit split) { return split != TpSplit::kNone && split != TpSplit::kSummed; }

// Of all ranks: what a run must be a multiple of.
int64_t units(const TpForm& form, const Dims& shape) {
  if (form.split == TpSplit::kQkv) return form.groups;
  auto n = shape.at(static_cast<size_t>(dim_of(form.split)));
  return form.split == TpSplit::kGated ? n / 2 : n;
}

// Rows of some groups, from our order to a rank's.
at::Tensor to_qkv(const at::Tensor& rows, int64_t groups, int64_t queries) {
  at::Tensor all = rows.reshape({groups, queries + 2, -1});
  auto run = [&](int64_t from, int64_t n) {
    return all.narrow(1, from, n).reshape({groups * n, -1}).flatten();
  };
  return at::cat({run(0, queries), run(queries, 1), run(queries + 1, 1)}).view(rows.sizes());
}

at::Tensor from_qkv(const at::Tensor& part, int64_t groups, int64_t queries) {
  at::Tensor all = part.reshape({groups * (queries + 2), -1});
  auto run = [&](int64_t from, int64_t n) {
    return all.narrow(0, from * groups, n * groups).reshape({groups, n, -1});
  };
  return at::cat({run(0, queries), run(queries, 1), run(queries + 1, 1)}, 1).reshape(part.sizes());
}

at::Tensor to_gated(const at::Tensor& rows) {
  at::Tensor pairs = rows.reshape({rows.size(0) / 2, 2, -1});  // [column, {gate, up}, ...]
  return at::cat({pairs.select(1, 1), pairs.select(1, 0)}).reshape(rows.sizes());
}

at::Tensor from_gated(const at::Tensor& part) {
  at::Tensor halves = part.reshape({2, part.size(0) / 2, -1});  // [{up, gate}, column, ...]
  return at::stack({halves.select(0, 1), halves.select(0, 0)}, 1).reshape(part.sizes());
}

at::Tensor sum_of(const std::vector<at::Tensor>& parts) {
  at::Tensor sum = parts.at(0).to(at::kDouble);
  for (size_t i = 1; i < parts.size(); ++i) sum = sum + parts[i].to(at::kDouble);
  return sum;
}

at::Tensor mean_of(const std::vector<at::Tensor>& parts) {
  if (all_equal(parts)) return parts.at(0).clone();
  return (sum_of(parts) / static_cast<double>(parts.size())).to(parts.at(0).scalar_type());
}

}  // namespace

Dims part_shape(const TpForm& form, const Dims& shape, int64_t ranks) {
  if (!is_split(form.split)) return shape;
  int64_t n = units(form, shape);
  check_usage(n % ranks == 0, "a tensor ", to_string(shape), " of ", n, " ",
              form.split == TpSplit::kQkv ? "groups of heads" : "rows or columns",
              " cannot be shared out over ", ranks, " tensor-parallel ranks");
  Dims part = shape;
  part[static_cast<size_t>(dim_of(form.split))] /= ranks;
  return part;
}

at::Tensor part_of(const TpForm& form, const at::Tensor& tensor, int64_t rank, int64_t ranks) {
  if (form.split == TpSplit::kNone) return tensor.contiguous();
  if (form.split == TpSplit::kSummed)
    return (tensor.to(at::kDouble) / static_cast<double>(ranks)).to(tensor.scalar_type());
  int64_t dim = dim_of(form.split);
  int64_t n = part_shape(form, tensor.sizes().vec(), ranks)[static_cast<size_t>(dim)];
  at::Tensor run = tensor.narrow(dim, rank * n, n);
  if (form.split == TpSplit::kQkv) run = to_qkv(run, form.groups / ranks, form.group_queries);
  if (form.split == TpSplit::kGated) run = to_gated(run);
  return run.contiguous();
}

bool all_equal(const std::vector<at::Tensor>& parts) {
  return std::ranges::all_of(parts, [&](const at::Tensor& part) { return part.equal(parts[0]); });
}

at::Tensor join_parts(const TpForm& form, const std::vector<at::Tensor>& parts, Summands summands) {
  auto ranks = static_cast<int64_t>(parts.size());
  if (form.split == TpSplit::kNone) return mean_of(parts);
  if (form.split == TpSplit::kSummed && summands == Summands::kMean) return mean_of(parts);
  if (form.split == TpSplit::kSummed)
    return ranks == 1 ? parts[0].clone() : sum_of(parts).to(parts[0].scalar_type());
  std::vector<at::Tensor> runs;
  for (const at::Tensor& part : parts)
    runs.push_back(form.split == TpSplit::kQkv
                       ? from_qkv(part, form.groups / ranks, form.group_queries)
                   : form.split == TpSplit::kGated ? from_gated(part)
                                                   : part);
  return at::cat(runs, dim_of(form.split));
}

}  // namespace neox
