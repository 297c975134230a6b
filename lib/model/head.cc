#include "model/head.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

#include "config/estimate.h"
#include "ops/bf16_product.h"
#include "ops/cross_entropy.h"
#include "ops/leaf_gradient.h"
#include "ops/product.h"
#include "ops/split_softmax.h"

namespace neox {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// Products of this many columns leave logits in the second-level cache for the pass over them.
constexpr int64_t kColumns = 1536;
constexpr int64_t kEvenRows = 64;  // chunks of a multiple are multiplied faster

// How many of so many rows have logits at one time. On a GPU more: each chunk reads and writes the
// gradient of the weights once, which is in the caches of a CPU while a block of columns is, and
// the products of few rows leave multiprocessors without work.
int64_t rows_at_a_time(int64_t rows, int64_t vocab, bool cuda) {
  int64_t most = std::max<int64_t>(1, (cuda ? kGpuLogitElements : kLogitElements) / vocab);
  if (rows <= most) return std::max<int64_t>(1, rows);
  if (most > kEvenRows) most = most / kEvenRows * kEvenRows;
  int64_t chunks = (rows + most - 1) / most, each = (rows + chunks - 1) / chunks;
  return std::min(most, (each + kEvenRows - 1) / kEvenRows * kEvenRows);
}

class Head {
 public:
  Head(const Tensor& x, const Tensor& weight, const HeadTargets& t, Communicator& tp, bool training)
      : type_(x.scalar_type()),
        product_(multiplied_in_fp32(x) ? at::kFloat : type_),
        wide_(at::toOpMathType(type_)),
        x_(x.to(product_)),
        weight_(weight),
        t_(t),
        tp_(tp),
        first_(weight.size(0) * tp.rank()),
        rows_(rows_at_a_time(x.size(0), weight.size(0), x.is_cuda())),
        by_columns_(x.is_cpu() && wide_ == at::kFloat),
        by_kernels_(bf16_multiplies(x_)),
        training_(training) {
    losses_ = at::empty({x.size(0)}, x.options().dtype(wide_));
    if (by_columns_) logits_ = at::empty({rows_ * weight.size(0)}, x.options().dtype(kept_type()));
    if (!training) return;
    share_ = t.weights.to(at::kDouble).mul(t.seed).to(wide_);
    dx_ = by_kernels_ ? at::zeros(x_.sizes(), x_.options().dtype(wide_)) : at::empty_like(x_);
    dweight_ = kept_gradient(weight, wide_);
    in_place_ = dweight_.defined();
    if (!in_place_) dweight_ = at::zeros(weight.sizes(), weight.options().dtype(wide_));
  }
  void run() {
    for (int64_t from = 0; from < x_.size(0); from += rows_) {
      int64_t rows = std::min(rows_, x_.size(0) - from);
      by_columns_ ? run_by_columns(from, rows) : run_rows(from, rows);
    }
  }
  Tensor loss() const { return (losses_ * t_.weights.to(wide_)).to(at::kDouble).sum(); }
  Tensor dx() const { return dx_.to(type_); }
  // Undefined where it has been added to the kept gradient already.
  Tensor dweight() const { return in_place_ ? Tensor() : dweight_; }

 private:
  void run_rows(int64_t from, int64_t rows) {
    Tensor x = x_.narrow(0, from, rows), dx = training_ ? dx_.narrow(0, from, rows) : Tensor();
    Tensor logits = at::mm(x, weight_of(0, weight_.size(0)).t());
    Tensor share = training_ ? share_.narrow(0, from, rows) : Tensor();
    losses_.narrow(0, from, rows)
        .copy_(to_gradients(logits, t_.targets.narrow(0, from, rows), share));
    if (training_) add_gradients(0, x, logits, dx);
  }

  // The losses of rows, whose logits become gradients where there is a share to multiply them.
  Tensor to_gradients(Tensor& logits, const Tensor& targets, const Tensor& share) {
    if (tp_.size() == 1) return cross_entropy_(logits, targets, share);  // in one kernel
    LogitTargets columns{targets, first_};
    Tensor own = row_statistics(logits, columns), top = own[0].clone();
    tp_.all_reduce(top, Communicator::Op::kMax);
    Tensor sums = sums_below(top, own);
    tp_.all_reduce(sums);
    if (share.defined()) gradients_(logits, top, sums, columns, share);
    return sums[0].log() - (sums[1] - top);
  }

  void run_by_columns(int64_t from, int64_t rows) {
    Tensor x = x_.narrow(0, from, rows), local = t_.targets.narrow(0, from, rows) - first_;
    Tensor at_target = at::zeros({rows}, x.options().dtype(wide_));
    std::vector<SoftmaxBlock> blocks = forward(x, local, at_target);
    Tensor top = blocks[0].top.clone();
    for (const SoftmaxBlock& block : blocks) at::maximum_out(top, top, block.top);
    tp_.all_reduce(top, Communicator::Op::kMax);
    Tensor sums = at::stack({at::zeros_like(top), at_target});  // [2, rows]
    for (const SoftmaxBlock& block : blocks) sums[0] += (block.top - top).exp_().mul_(block.sum);
    tp_.all_reduce(sums);
    losses_.narrow(0, from, rows).copy_(sums[0].log() - (sums[1] - top));
    if (!training_) return;
    Tensor share = share_.narrow(0, from, rows), factor = share / sums[0];
    Tensor dx = dx_.narrow(0, from, rows);
    Tensor at_targets = (sums[1] - top).exp_().mul_(factor).sub_(share);
    for (size_t i = 0; i < blocks.size(); ++i) {
      softmax_backward(blocks[i], (blocks[i].top - top).exp_().mul_(factor), at_targets);
      add_gradients(i, x, blocks[i].kept.to(product_), dx);
    }
  }

  // The blocks lie one behind the other, so that products write and read consecutive memory.
  std::vector<SoftmaxBlock> forward(const Tensor& x, const Tensor& target, Tensor& at_target) {
    std::vector<SoftmaxBlock> blocks;
    int64_t rows = x.size(0), V = weight_.size(0);
    auto scores = at::empty({by_kernels_ ? rows * kColumns : 0}, x.options().dtype(wide_));
    auto row_values = [&] { return at::empty({rows}, x.options().dtype(wide_)); };
    for (int64_t first = 0; first < V; first += kColumns) {
      int64_t n = std::min(kColumns, V - first);
      Tensor kept = logits_.narrow(0, first * rows, n * rows).view({rows, n});
      SoftmaxBlock block{by_kernels_ ? scores.narrow(0, 0, n * rows).view({rows, n}) : kept, kept,
                         target - first, row_values(), row_values()};
      if (by_kernels_)
        bf16_product_out(block.scores, x, weight_of(first, n));
      else if (product_ == wide_)
        at::mm_out(block.scores, x, weight_of(first, n).t());
      else
        block.scores.copy_(at::mm(x, weight_of(first, n).t()));
      softmax_forward(block, at_target);
      blocks.push_back(std::move(block));
    }
    return blocks;
  }

  // What is kept of the logits of some rows: kernels round it for their products in any case.
  at::ScalarType kept_type() const { return by_kernels_ ? at::kBFloat16 : wide_; }

  Tensor weight_of(int64_t first, int64_t n) const {
    return weight_.narrow(0, first, n).to(product_);
  }

  void add_gradients(size_t i, const Tensor& x, const Tensor& dlogits, Tensor& dx) {
    int64_t first = static_cast<int64_t>(i) * kColumns, n = dlogits.size(1);
    Tensor weight = weight_of(first, n);
    if (i == 0 && !by_kernels_)  // with kernels dx is zeros
      at::mm_out(dx, dlogits, weight);
    else
      add_product(dx, dlogits, weight);
    add_product(dweight_.narrow(0, first, n), dlogits.t(), x);
  }

  at::ScalarType type_, product_, wide_;  // of x, of what is multiplied, of sums
  Tensor x_;
  const Tensor& weight_;
  const HeadTargets& t_;
  Communicator& tp_;
  int64_t first_;  // global id of the first row of weight
  int64_t rows_;
  bool by_columns_, by_kernels_, training_, in_place_ = false;
  Tensor losses_, share_;  // of each row; what its gradients are multiplied by
  Tensor logits_, dx_, dweight_;
};

class HeadLoss : public torch::autograd::Function<HeadLoss> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const Tensor& targets, const Tensor& weights, const Tensor& seed,
                        int64_t tp) {
    HeadTargets t{targets, weights, seed};
    Head head(x, weight, t, *reinterpret_cast<Communicator*>(tp), true);
    head.run();
    context->saved_data["gradients"] = std::vector<Tensor>{head.dx(), head.dweight()};
    return head.loss();
  }
  static tensor_list backward(AutogradContext* context, tensor_list) {
    auto gradients = context->saved_data["gradients"].toTensorVector();
    return {gradients[0], gradients[1], {}, {}, {}, {}};
  }
};

}  // namespace

Tensor head_loss(const Tensor& x, const Tensor& weight, const HeadTargets& t, Communicator& tp) {
  if (at::GradMode::is_enabled())
    return HeadLoss::apply(x, weight, t.targets, t.weights, t.seed, reinterpret_cast<int64_t>(&tp));
  Head head(x, weight, t, tp, false);
  head.run();
  return head.loss();
}

}  // namespace neox
