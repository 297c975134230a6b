#include "convert/tp_parts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include <algorithm>

#include "base/error.h"
#include "convert/tensor_source.h"

namespace neox {
namespace {

int64_t dim_of(TpSplit split) { return split == TpSplit::kColumns ? 1 : 0; }

bool is_stack(TpSplit split) {
  return split == TpSplit::kExperts || split == TpSplit::kExpertsTurned;
}

bool is_split(TpSplit split) { return split != TpSplit::kNone && split != TpSplit::kSummed; }

bool is_of_groups(TpSplit split) {
  return split == TpSplit::kQkv || split == TpSplit::kQkvSlots || split == TpSplit::kQkvLast;
}

// Of all ranks: what a run must be a multiple of.
int64_t units(const TpForm& form, const Dims& shape) {
  if (is_of_groups(form.split)) return form.groups;
  auto n = shape.at(static_cast<size_t>(dim_of(form.split)));
  return form.split == TpSplit::kGated || form.split == TpSplit::kGateUp ? n / 2 : n;
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

// Rows of some groups, from our order to slots [group, query, {D of q, s of k, s of v}], of which
// the slices of a group, one after the other, are its key and its value.
at::Tensor to_slots(const at::Tensor& rows, int64_t groups, int64_t queries) {
  int64_t size = rows.size(0) / groups / (queries + 2), slice = size / queries;
  at::Tensor all = rows.reshape({groups, (queries + 2) * size, -1});
  auto run = [&](int64_t from, int64_t n) {
    return all.narrow(1, from * size, queries * n).reshape({groups, queries, n, -1});
  };
  return at::cat({run(0, size), run(queries, slice), run(queries + 1, slice)}, 2)
      .reshape(rows.sizes());
}

at::Tensor from_slots(const at::Tensor& part, int64_t groups, int64_t queries) {
  int64_t size = part.size(0) / groups / (queries + 2), slice = size / queries;
  at::Tensor all = part.reshape({groups, queries, size + 2 * slice, -1});
  auto run = [&](int64_t from, int64_t n) {
    return all.narrow(2, from, n).reshape({groups, queries * n, -1});
  };
  return at::cat({run(0, size), run(size, slice), run(size + slice, slice)}, 1)
      .reshape(part.sizes());
}

// Rows [outer, n, m] as [outer, m, n].
at::Tensor transposed(const at::Tensor& rows, int64_t outer, int64_t n, int64_t m) {
  return rows.reshape({outer, n, m, -1}).transpose(1, 2).reshape(rows.sizes());
}

at::Tensor swapped_halves(const at::Tensor& rows) {
  return rows.reshape({2, rows.size(0) / 2, -1}).flip(0).reshape(rows.sizes());
}

// Rows of some groups or columns, from our order to a rank's.
at::Tensor to_rank(const TpForm& form, const at::Tensor& rows, int64_t ranks) {
  int64_t n = rows.size(0), groups = form.groups / ranks;
  switch (form.split) {
    case TpSplit::kQkv:
      return to_qkv(rows, groups, form.group_queries);
    case TpSplit::kQkvSlots:
      return to_slots(rows, groups, form.group_queries);
    case TpSplit::kQkvLast:
      return transposed(rows, groups, 3, n / groups / 3);
    case TpSplit::kGateUp:  // of [column, {gate, up}]
      return transposed(rows, 1, n / 2, 2);
    case TpSplit::kGated:
      return swapped_halves(transposed(rows, 1, n / 2, 2));
    case TpSplit::kExperts:
      return rows.flatten(0, 1);
    case TpSplit::kExpertsTurned:
      return rows.transpose(1, 2).flatten(0, 1);
    default:
      return rows;
  }
}

at::Tensor from_rank(const TpForm& form, const at::Tensor& part, int64_t ranks) {
  int64_t n = part.size(0), groups = form.groups / ranks;
  switch (form.split) {
    case TpSplit::kQkv:
      return from_qkv(part, groups, form.group_queries);
    case TpSplit::kQkvSlots:
      return from_slots(part, groups, form.group_queries);
    case TpSplit::kQkvLast:
      return transposed(part, groups, n / groups / 3, 3);
    case TpSplit::kGateUp:
      return transposed(part, 1, 2, n / 2);
    case TpSplit::kGated:
      return transposed(swapped_halves(part), 1, 2, n / 2);
    case TpSplit::kExperts:
      return part.reshape({groups, n / groups, -1});
    case TpSplit::kExpertsTurned:
      return part.reshape({groups, n / groups, -1}).transpose(1, 2);
    default:
      return part;
  }
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
              is_of_groups(form.split) ? "groups of heads"
              : is_stack(form.split)   ? "experts"
                                       : "rows or columns",
              " cannot be shared out over ", ranks, " tensor-parallel ranks");
  bool turned = form.split == TpSplit::kExpertsTurned;
  if (is_stack(form.split)) return {n / ranks * shape[turned ? 2 : 1], shape[turned ? 1 : 2]};
  Dims part = shape;
  part[static_cast<size_t>(dim_of(form.split))] /= ranks;
  return part;
}

at::Tensor part_of(const TpForm& form, const at::Tensor& tensor, int64_t rank, int64_t ranks) {
  if (form.split == TpSplit::kNone) return tensor.contiguous();
  if (form.split == TpSplit::kSummed)
    return (tensor.to(at::kDouble) / static_cast<double>(ranks)).to(tensor.scalar_type());
  part_shape(form, tensor.sizes().vec(), ranks);  // throws where that does not go
  int64_t dim = dim_of(form.split), n = tensor.size(dim) / ranks;
  return to_rank(form, tensor.narrow(dim, rank * n, n), ranks).contiguous();
}

bool all_equal(const std::vector<at::Tensor>& parts) {
  return std::ranges::all_of(parts,
                             [&](const at::Tensor& part) { return same_bits(part, parts[0]); });
}

at::Tensor join_parts(const TpForm& form, const std::vector<at::Tensor>& parts, Summands summands) {
  auto ranks = static_cast<int64_t>(parts.size());
  if (form.split == TpSplit::kNone) return mean_of(parts);
  if (form.split == TpSplit::kSummed && summands == Summands::kMean) return mean_of(parts);
  if (form.split == TpSplit::kSummed)
    return ranks == 1 ? parts[0].clone() : sum_of(parts).to(parts[0].scalar_type());
  std::vector<at::Tensor> runs;
  for (const at::Tensor& part : parts) runs.push_back(from_rank(form, part, ranks));
  return at::cat(runs, dim_of(form.split));
}

}  // namespace neox
