#include "train/pipeline.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>

#include <map>

#include "train/schedule.h"

namespace neox {
namespace {

using Transfer = Communicator::Transfer;

class Run {
 public:
  Run(GptNeoX& model, int64_t microbatches, const BatchSource& batches, const Tensor& seed)
      : model_(model),
        pp_(model.mesh().pp()),
        microbatches_(microbatches),
        batches_(batches),
        seed_(seed) {
    auto zero = [&] { return at::zeros({}, model.hidden_options().dtype(at::kDouble)); };
    sum_ = {zero(), zero()};
  }

  // The sends of the last action and the receives of the next go out as one group: one at a time
  // could deadlock.
  LossSum run(const std::vector<Action>& actions) {
    for (const Action& action : actions) {
      if (action.kind == Action::kForward)
        forward(action.microbatch);
      else
        backward(action.microbatch);
    }
    flush();
    return sum_;
  }

 private:
  struct Live {  // a micro-batch between its forward and its backward
    Tensor input, output;
  };

  void forward(int64_t m) {
    RECORD_USER_SCOPE("forward");
    Batch batch = batches_(m);
    Tensor x;
    if (!first()) {
      x = at::empty(model_.hidden_shape(batch), model_.hidden_options());
      pending_.push_back({Transfer::kReceive, pp_.rank() - 1, x});
    }
    flush();
    bool training = at::GradMode::is_enabled();
    if (!first()) x.set_requires_grad(training);
    Tensor y = model_.forward(x, batch, seed_);
    if (last()) {
      at::NoGradGuard no_grad;
      sum_.loss += y;
      sum_.weight += batch.weights.to(at::kDouble).sum();
    } else {
      pending_.push_back({Transfer::kSend, pp_.rank() + 1, y.detach().contiguous()});
    }
    if (training) live_[m] = {x, y};
  }

  void backward(int64_t m) {
    RECORD_USER_SCOPE("backward");
    Live live = live_.at(m);
    live_.erase(m);
    Tensor dy;
    if (!last()) {
      dy = at::empty_like(live.output);
      pending_.push_back({Transfer::kReceive, pp_.rank() + 1, dy});
    }
    flush();
    for (ParamBuffer* buffer : model_.buffers()) buffer->before_backward(m == microbatches_ - 1);
    live.output.backward(dy);
    if (!first())
      pending_.push_back({Transfer::kSend, pp_.rank() - 1, live.input.grad().contiguous()});
  }

  void flush() {
    pp_.exchange(pending_);
    pending_.clear();
  }
  bool first() const { return model_.mesh().first_stage(); }
  bool last() const { return model_.mesh().last_stage(); }

  GptNeoX& model_;
  Communicator& pp_;
  int64_t microbatches_;
  const BatchSource& batches_;
  Tensor seed_;
  std::vector<Transfer> pending_;
  std::map<int64_t, Live> live_;
  LossSum sum_;
};

}  // namespace

LossSum train_microbatches(GptNeoX& model, int64_t microbatches, const BatchSource& batches,
                           const Tensor& seed) {
  for (ParamBuffer* buffer : model.buffers()) buffer->begin_step();
  Communicator& pp = model.mesh().pp();
  LossSum sum =
      Run(model, microbatches, batches, seed).run(one_f_one_b(pp.rank(), pp.size(), microbatches));
  for (ParamBuffer* buffer : model.buffers()) buffer->finish_sync();
  return sum;
}

LossSum evaluate_microbatches(GptNeoX& model, int64_t microbatches, const BatchSource& batches) {
  at::NoGradGuard no_grad;
  return Run(model, microbatches, batches, {}).run(forward_only(microbatches));
}

}  // namespace neox
