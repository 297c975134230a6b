#include "model/head.h"

#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <ATen/record_function.h>
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
// Where logits are computed again for their gradients: rows that are multiplied by one packed block
// of the weights, and of them those whose scores stay in a thread's cache.
constexpr int64_t kRowsAgain = 2048, kColumnsAgain = 1024, kScoreRows = 128;

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

// Whether `here` is true on every rank of tp.
bool everywhere(bool here, Communicator& tp) {
  Tensor not_all = at::full({1}, here ? 0 : 1, at::kFloat);
  tp.all_reduce(not_all, Communicator::Op::kMax);
  return not_all.item<float>() == 0;
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
        by_columns_(x.is_cpu() && wide_ == at::kFloat),
        by_kernels_(bf16_multiplies(x_)),
        again_(by_columns_ && everywhere(by_kernels_ && bf16_kernels()->outruns_memory, tp)),
        columns_(again_ ? kColumnsAgain : kColumns),
        rows_(again_ ? std::min(kRowsAgain, std::max<int64_t>(1, x.size(0)))
                     : rows_at_a_time(x.size(0), weight.size(0), x.is_cuda())),
        training_(training) {
    losses_ = at::empty({x.size(0)}, x.options().dtype(wide_));
    int64_t columns = again_ ? std::min(columns_, weight.size(0)) : weight.size(0);
    if (by_columns_) logits_ = at::empty({rows_ * columns}, x.options().dtype(kept_type()));
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
  const Tensor& losses() const { return losses_; }
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
    Tensor log_sum = sums[0].log().add_(top);
    for (size_t i = 0; i < blocks.size(); ++i) {
      SoftmaxBlock& block = blocks[i];
      if (again_) {
        block.kept = kept_block(0, rows, columns_of(i));
        each_part(i, x, block, [&](SoftmaxBlock& part, int64_t r, int64_t n) {
          softmax_again(part, log_sum.narrow(0, r, n), share.narrow(0, r, n),
                        at_targets.narrow(0, r, n));
        });
      } else {
        softmax_backward(block, (block.top - top).exp_().mul_(factor), at_targets);
      }
      add_gradients(i, x, block.kept.to(product_), dx);
    }
  }

  // Statistics of all blocks, and what is kept of their logits.
  std::vector<SoftmaxBlock> forward(const Tensor& x, const Tensor& target, Tensor& at_target) {
    std::vector<SoftmaxBlock> blocks;
    int64_t rows = x.size(0), V = weight_.size(0);
    bool apart = by_kernels_ && !again_;  // from what is kept
    auto scores = at::empty({apart ? rows * columns_ : 0}, x.options().dtype(wide_));
    auto row_values = [&] { return at::empty({rows}, x.options().dtype(wide_)); };
    for (int64_t first = 0; first < V; first += columns_) {
      int64_t n = columns_of(blocks.size());
      SoftmaxBlock block{{}, {}, target - first, row_values(), row_values()};
      if (again_) {
        each_part(blocks.size(), x, block, [&](SoftmaxBlock& part, int64_t r, int64_t m) {
          Tensor at = at_target.narrow(0, r, m);
          softmax_forward(part, at);
        });
      } else {
        block.kept = kept_block(first, rows, n);
        block.scores = apart ? scores.narrow(0, 0, n * rows).view({rows, n}) : block.kept;
        multiply(block.scores, x, weight_of(first, n));
        softmax_forward(block, at_target);
      }
      blocks.push_back(std::move(block));
    }
    return blocks;
  }

  void multiply(Tensor& scores, const Tensor& x, const Tensor& weight) const {
    if (by_kernels_)
      bf16_product_out(scores, x, weight);
    else if (product_ == wide_)
      at::mm_out(scores, x, weight.t());
    else
      scores.copy_(at::mm(x, weight.t()));
  }

  // f(part, r, n) of n rows of block i from row r on, whose scores have been computed.
  template <class F>
  void each_part(size_t i, const Tensor& x, const SoftmaxBlock& block, F f) const {
    int64_t rows = x.size(0), most = std::min(rows, kScoreRows * at::get_num_threads());
    PackedFactor weight(weight_of(first_of(i), columns_of(i)));
    Tensor scores = at::empty({most, columns_of(i)}, x.options().dtype(wide_));
    for (int64_t r = 0; r < rows; r += most) {
      int64_t n = std::min(most, rows - r);
      auto of = [&](const Tensor& t) { return t.defined() ? t.narrow(0, r, n) : t; };
      SoftmaxBlock part{scores.narrow(0, 0, n), of(block.kept), of(block.column), of(block.top),
                        of(block.sum)};
      weight.product_out(part.scores, of(x));
      f(part, r, n);
    }
  }

  // Of a block: its first column and how many it has.
  int64_t first_of(size_t i) const { return static_cast<int64_t>(i) * columns_; }
  int64_t columns_of(size_t i) const { return std::min(columns_, weight_.size(0) - first_of(i)); }

  // The blocks lie one behind the other, so that products write and read consecutive memory.
  Tensor kept_block(int64_t first, int64_t rows, int64_t columns) const {
    return logits_.narrow(0, first * rows, columns * rows).view({rows, columns});
  }

  // What is kept of the logits of some rows: kernels round it for their products in any case.
  at::ScalarType kept_type() const { return by_kernels_ ? at::kBFloat16 : wide_; }

  Tensor weight_of(int64_t first, int64_t n) const {
    return weight_.narrow(0, first, n).to(product_);
  }

  void add_gradients(size_t i, const Tensor& x, const Tensor& dlogits, Tensor& dx) {
    int64_t first = first_of(i), n = dlogits.size(1);
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
  // again_: logits are not kept but computed again, which lets all rows meet the weights and their
  // gradient in one pass over these. The ranks of tp agree on it: their processors may differ, and
  // what they sum is of rows_ rows.
  bool by_columns_, by_kernels_, again_;
  int64_t columns_, rows_;  // at a time
  bool training_, in_place_ = false;
  Tensor losses_, share_;  // of each row; what its gradients are multiplied by
  Tensor logits_, dx_, dweight_;
};

class HeadLoss : public torch::autograd::Function<HeadLoss> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const Tensor& targets, const Tensor& weights, const Tensor& seed,
                        int64_t tp) {
    RECORD_FUNCTION("neox::head_loss", std::vector<c10::IValue>({x, weight}));
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

Tensor token_losses(const Tensor& x, const Tensor& weight, const Tensor& targets,
                    Communicator& tp) {
  at::NoGradGuard no_grad;
  HeadTargets t{targets, {}, {}};
  Head head(x.detach(), weight, t, tp, false);
  head.run();
  return head.losses();
}

Tensor head_loss(const Tensor& x, const Tensor& weight, const HeadTargets& t, Communicator& tp) {
  if (at::GradMode::is_enabled())
    return HeadLoss::apply(x, weight, t.targets, t.weights, t.seed, reinterpret_cast<int64_t>(&tp));
  Head head(x, weight, t, tp, false);
  head.run();
  return head.loss();
}

}  // namespace neox
