#include "ops/row_products.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>

#include "base/error.h"
#include "ops/activation.h"

namespace neox {
namespace {

using at::Tensor;

// Rows, weight and bias of a norm, that fit into a block's memory beside its sums.
constexpr size_t kMostNormedBytes = 40 << 10;

// By ATen's operations.
Tensor result(const RowSum& sum, const NormOptions& options) {
  Tensor y = sum.residual;
  for (const RowTerm& term : sum.terms) {
    Tensor x = term.norm.weight.defined() ? norm(term.x, term.norm, options) : term.x;
    Tensor part = at::linear(x, term.weight, term.bias);
    y = y.defined() ? y + part : part;
  }
  if (sum.gated) return gated(y, {}, sum.activation);
  return sum.activation == Activation::kIdentity ? y : activated(y, {}, sum.activation);
}

void check_operand(const Tensor& x, at::IntArrayRef shape, const Tensor& like) {
  if (!x.defined()) return;
  check(x.sizes() == shape && x.is_contiguous() && x.scalar_type() == like.scalar_type(),
        "an operand of a product of rows is ", x.scalar_type(), " ", x.sizes(), ", expected ",
        like.scalar_type(), " ", shape, ", contiguous");
  check(takes_wide_loads(x.const_data_ptr()), "an operand of a product of rows ", shape,
        " does not begin at a multiple of 16 bytes");
}

const void* pointer(const Tensor& x) { return x.defined() ? x.const_data_ptr() : nullptr; }

ProductRows::Term term_of(const RowTerm& term, int64_t N) {
  int64_t B = term.x.size(0), C = term.x.size(1);
  check(B <= kMostProductRows && C % kRowProductColumns == 0, "a product of ", B, " rows of ", C,
        ": expected up to ", kMostProductRows, " rows of a multiple of ", kRowProductColumns);
  check_operand(term.x, {B, C}, term.x);
  check_operand(term.weight, {N, C}, term.x);
  check_operand(term.bias, {N}, term.x);
  check_operand(term.norm.weight, {C}, term.x);
  check_operand(term.norm.bias, {C}, term.x);
  return {pointer(term.x),           pointer(term.weight),    pointer(term.bias),
          pointer(term.norm.weight), pointer(term.norm.bias), C};
}

// With norms that are not part of the kernel computed.
RowSum with_large_norms(RowSum sum, const NormOptions& options) {
  for (RowTerm& term : sum.terms) {
    if (!term.norm.weight.defined()) continue;
    if (term.x.nbytes() + 2 * term.norm.weight.nbytes() <= kMostNormedBytes) continue;
    term.x = norm(term.x, term.norm, options);
    term.norm = {};
  }
  return sum;
}

ProductRows::Sum sum_of(const RowSum& sum, const Tensor& out) {
  const Tensor& x = sum.terms.front().x;
  int64_t B = x.size(0), N = sum.terms.front().weight.size(0);
  check(sum.terms.size() <= RowSum::kMostTerms && (!sum.gated || N % 2 == 0), sum.terms.size(),
        " products are added, of ", N, " columns");
  check(!sum.terms.back().early, "the last product of a sum does not wait for its rows");
  check_operand(sum.residual, {B, N}, x);
  ProductRows::Sum s{.terms = {},
                     .num_terms = static_cast<int>(sum.terms.size()),
                     .num_early = sum.terms.front().early ? 1 : 0,
                     .residual = pointer(sum.residual),
                     .out = out.mutable_data_ptr(),
                     .rows = N,
                     .activation = sum.activation,
                     .gated = sum.gated};
  for (size_t i = 0; i < sum.terms.size(); ++i) {
    const RowTerm& term = sum.terms[i];
    check(term.x.size(0) == B && (i == 0 || !sum.terms[0].norm.weight.defined()),
          "products that are added have ", term.x.size(0), " rows and ", B, ", or a norm");
    s.terms[i] = term_of(term, N);
  }
  return s;
}

}  // namespace

std::vector<Tensor> row_products(const std::vector<RowSum>& sums, const NormOptions& options) {
  std::vector<Tensor> results;
  std::vector<RowSum> kept;  // until the kernel is launched
  const Tensor& x = sums.front().terms.front().x;
  if (!x.is_cuda()) {
    for (const RowSum& sum : sums) results.push_back(result(sum, options));
    return results;
  }
  ProductRows rows{.type = element_of("a product of rows", x.scalar_type()),
                   .B = x.size(0),
                   .options = options,
                   .sums = {},
                   .num_sums = static_cast<int>(sums.size())};
  check(sums.size() <= std::size(rows.sums), sums.size(), " products of rows at once");
  for (size_t i = 0; i < sums.size(); ++i) {
    int64_t N = sums[i].terms.front().weight.size(0);
    results.push_back(at::empty({rows.B, sums[i].gated ? N / 2 : N}, x.options()));
    kept.push_back(with_large_norms(sums[i], options));
    rows.sums[i] = sum_of(kept.back(), results.back());
  }
  row_products_cuda(rows);
  return results;
}

}  // namespace neox
