#include "model/head.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "config/estimate.h"
#include "ops/product.h"

namespace neox {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// Rows whose logits exist at one time.
int64_t rows_at_a_time(int64_t vocab) { return std::max<int64_t>(1, kLogitElements / vocab); }

class Head {
 public:
  Head(const Tensor& x, const Tensor& weight, const HeadTargets& t, Communicator& tp, bool training)
      : type_(x.scalar_type()),
        x_(multiplied_in_fp32(x) ? x.to(at::kFloat) : x),
        weight_(multiplied_in_fp32(x) ? weight.to(at::kFloat) : weight),
        t_(t),
        tp_(tp),
        first_(weight.size(0) * tp.rank()),
        training_(training) {
    loss_ = at::zeros({}, x.options().dtype(at::kDouble));
    if (!training) return;
    dx_ = at::empty_like(x_);
    auto type = type_ == at::kDouble ? at::kDouble : at::kFloat;
    dweight_ = at::zeros(weight.sizes(), weight.options().dtype(type));
  }
  void run() {
    int64_t rows = rows_at_a_time(weight_.size(0));
    for (int64_t from = 0; from < x_.size(0); from += rows)
      run_rows(from, std::min(rows, x_.size(0) - from));
  }
  const Tensor& loss() const { return loss_; }
  Tensor dx() const { return dx_.to(type_); }
  const Tensor& dweight() const { return dweight_; }

 private:
  void run_rows(int64_t from, int64_t rows) {
    Tensor x = x_.narrow(0, from, rows);
    Tensor local = t_.targets.narrow(0, from, rows) - first_;
    Tensor mine = (local >= 0).logical_and_(local < weight_.size(0));
    Tensor column = local.clamp(0, weight_.size(0) - 1).unsqueeze(1);  // [rows, 1]
    Tensor logits = at::linear(x, weight_);
    if (logits.scalar_type() != at::kDouble) logits = logits.to(at::kFloat);
    Tensor top = logits.amax(1);
    tp_.all_reduce(top, Communicator::Op::kMax);
    logits.sub_(top.unsqueeze(1));
    Tensor at_target = logits.gather(1, column).squeeze(1) * mine;
    logits.exp_();
    Tensor sums = at::stack({logits.sum(1), at_target});  // [2, rows]
    tp_.all_reduce(sums);
    Tensor weights = t_.weights.narrow(0, from, rows).to(logits.scalar_type());
    loss_ += ((sums[0].log() - sums[1]) * weights).to(at::kDouble).sum();
    if (!training_) return;
    Tensor factor =
        weights.to(at::kDouble).mul_(t_.seed).to(logits.scalar_type());  // d loss / d token loss
    logits.mul_((factor / sums[0]).unsqueeze(1));
    logits.scatter_add_(1, column, (mine * -factor).unsqueeze(1));
    add_gradients(from, rows, x, logits.to(x.scalar_type()));
  }

  void add_gradients(int64_t from, int64_t rows, const Tensor& x, const Tensor& dlogits) {
    Tensor dx = dx_.narrow(0, from, rows);
    at::mm_out(dx, dlogits, weight_);
    if (dweight_.scalar_type() == x.scalar_type())
      at::addmm_out(dweight_, dweight_, dlogits.t(), x);
    else
      dweight_.add_(at::mm(dlogits.t(), x));
  }

  at::ScalarType type_;
  Tensor x_, weight_;
  const HeadTargets& t_;
  Communicator& tp_;
  int64_t first_;  // global id of the first row of weight
  bool training_;
  Tensor loss_, dx_, dweight_;
};

class HeadLoss : public torch::autograd::Function<HeadLoss> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const Tensor& targets, const Tensor& weights, const Tensor& seed,
                        int64_t tp) {
    HeadTargets t{targets, weights, seed};
    Head head(x, weight, t, *reinterpret_cast<Communicator*>(tp), true);
    head.run();
    context->saved_data["dx"] = head.dx();
    context->saved_data["dweight"] = head.dweight();
    return head.loss();
  }
  static tensor_list backward(AutogradContext* context, tensor_list) {
    return {context->saved_data["dx"].toTensor(),
            context->saved_data["dweight"].toTensor(),
            {},
            {},
            {},
            {}};
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
