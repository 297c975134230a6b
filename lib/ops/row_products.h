// Products of a few rows, as in a step of generation: bound by reading the weights, so that what
// stands before and behind them (norm, bias, activation, residual) is part of the same pass, and
// products that take the same rows, or add up to the same sum, are one kernel.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "config/config.h"
#include "ops/element.h"
#include "ops/norm.h"

namespace neox {

// norm(x) weight^T + bias.
struct RowTerm {
  at::Tensor x;          // [B, C]
  at::Tensor weight;     // [N, C]
  at::Tensor bias = {};  // [N] or undefined
  NormWeight norm = {};  // its weight undefined: x as it is
  // x was there before the kernel that is launched last before this one let others begin, as for
  // what attention to a cache (ops/cached_attention.h) has waited for: its product need not wait.
  bool early = false;
};

// One result [B, N] of x's type: residual + the terms, or activation(terms), or, gated, of the
// terms {gate, up} [B, N / 2, 2] activation(gate) up [B, N / 2]. Sums are float, of double double.
struct RowSum {
  static constexpr size_t kMostTerms = 2;
  std::vector<RowTerm> terms;  // one or two; a norm only where there is one; early only the first
  at::Tensor residual = {};    // [B, N] or undefined
  Activation activation = Activation::kIdentity;
  bool gated = false;
};

// One or two results, in one kernel on a GPU, where the operands must be contiguous, begin at
// multiples of 16 bytes, C be a multiple of kRowProductColumns and B at most kMostProductRows.
std::vector<at::Tensor> row_products(const std::vector<RowSum>& sums, const NormOptions& options);

constexpr int64_t kMostProductRows = 8, kRowProductColumns = 8;

// What the kernel takes; null where a tensor is missing.
struct ProductRows {
  struct Term {
    const void *x, *weight, *bias, *norm_weight, *norm_bias;
    int64_t columns;
  };
  struct Sum {
    Term terms[RowSum::kMostTerms];
    int num_terms, num_early;
    const void* residual;
    void* out;
    int64_t rows;  // of the weights
    Activation activation;
    bool gated;
  };
  Element type;
  int64_t B;
  NormOptions options;
  Sum sums[2];
  int num_sums;
};

// The CUDA half.
void row_products_cuda(const ProductRows& rows);
// Whether a block of this GPU can have the shared memory that so many rows take: those of compute
// capability 8.6, 8.9 and 12 have too little for more than two of 16 bits.
bool row_products_fit(Element type, int64_t B);

}  // namespace neox
