#include "train/pipeline.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <utility>

#include "model/preference.h"

namespace neox {
namespace {

using Transfer = Communicator::Transfer;

constexpr int kPoolOfItsOwn = -1;  // those of slots can be given up with their recordings

std::vector<Tensor> inputs_of(const Batch& b, const Tensor& seed) {
  return {b.tokens,    b.targets, b.weights, b.first_sample, b.documents, b.positions,
          b.reference, b.rewards, seed};
}

Batch batch_of(const std::vector<Tensor>& in) {
  return {in[0], in[1], in[2], in[3], in[4], in[5], in[6], in[7]};
}

// What the loss of a batch is a mean over.
Tensor weight_of(const Batch& batch, bool scores) {
  if (!batch.reference.defined() && !scores) return batch.weights.to(at::kDouble).sum();
  return counted_samples(batch.weights, batch.rewards.defined() ? 1 : 2).sum();
}

}  // namespace

// A micro-batch between its forward and its backward.
struct Pipeline::Slot {
  Slot(GraphRecorder* recorder, int pool, int warm, bool is_last)
      : replay(recorder, "the training step", pool, warm), last_of_step(is_last) {}

  // A place to receive into that stays where it is.
  static void reserve(Tensor& place, at::IntArrayRef shape, const at::TensorOptions& options) {
    if (!place.defined() || place.sizes() != shape) place = at::empty(shape, options);
  }

  // Lets go of what only this micro-batch needed.
  void rest() {
    batch = Batch();
    x.reset();
    y.reset();
  }

  Replay replay;
  int64_t step = 0;  // the last one that it had a part in
  bool last_of_step, training = false;
  Batch batch;
  Tensor seed;
  Tensor received, dy;  // from the stage before, the hidden state; from the one behind, a gradient
  Tensor x, y;          // the hidden states as autograd knows them
};

Pipeline::Pipeline(GptNeoX& model, GraphRecorder* recorder)
    : model_(model),
      pp_(model.mesh().pp()),
      recorder_(recorder),
      own_time_(model.hidden_options().device(), model.mesh().world()),
      begin_(recorder, "the start of the training step", kPoolOfItsOwn) {
  auto zeros = [&](at::IntArrayRef shape) {
    return at::zeros(shape, model.hidden_options().dtype(at::kDouble));
  };
  int64_t measures = model.preference() ? num_measures(*model.preference()) : 0;
  sum_ = {zeros({}), zeros({}), zeros({measures})};
}

Pipeline::~Pipeline() = default;

// NCCL connects two ranks in the groups in which they first send or receive, and hangs or fails
// where these are not the same on both: with fewer micro-batches than stages one sends and receives
// together what the other does apart.
void Pipeline::meet_neighbours() {
  if (std::exchange(met_, true)) return;
  std::vector<Transfer> both;
  for (int peer : {pp_.rank() - 1, pp_.rank() + 1}) {
    if (peer < 0 || peer >= pp_.size()) continue;
    both.push_back({Transfer::kSend, peer, at::zeros({1}, model_.hidden_options())});
    both.push_back({Transfer::kReceive, peer, at::zeros({1}, model_.hidden_options())});
  }
  pp_.exchange(both);
}

LossSum Pipeline::train(int64_t microbatches, const BatchSource& batches, const Tensor& seed) {
  meet_neighbours();
  ++step_;
  begin_.begin({});
  begin_.run([this] {
    for (ParamBuffer* buffer : model_.buffers()) buffer->begin_step();
  });
  int64_t in_flight = std::min<int64_t>(pp_.size() - pp_.rank(), microbatches);
  LossSum sum = run(one_f_one_b(pp_.rank(), pp_.size(), microbatches),
                    {microbatches, batches, seed, true, in_flight});
  for (ParamBuffer* buffer : model_.buffers()) buffer->finish_sync();
  return sum;
}

LossSum Pipeline::evaluate(int64_t microbatches, const BatchSource& batches,
                           std::vector<Tensor>* rows) {
  at::NoGradGuard no_grad;
  meet_neighbours();
  LossSum sum = run(forward_only(microbatches), {microbatches, batches, {}, false, 1, rows});
  own_time_.take();  // no step's
  return sum;
}

// The sends of the last action and the receives of the next go out as one group: one at a time
// could deadlock.
LossSum Pipeline::run(const std::vector<Action>& actions, const Run& run) {
  {
    at::NoGradGuard no_grad;
    sum_.loss.zero_(), sum_.weight.zero_(), sum_.measures.zero_();
  }
  for (const Action& action : actions) {
    if (action.kind == Action::kForward)
      forward(action.microbatch, run);
    else
      backward(action.microbatch, run);
  }
  flush();
  return sum_;
}

Pipeline::Slot& Pipeline::slot_of(int64_t m, const Run& run) {
  int64_t number = run.training ? m % run.slots : -1;  // evaluation is not recorded
  bool last_of_step = run.training && m == run.microbatches - 1;
  std::unique_ptr<Slot>& slot = slots_[{number, last_of_step}];
  if (!slot)
    slot = std::make_unique<Slot>(
        run.training ? recorder_ : nullptr, static_cast<int>(std::max<int64_t>(number, 0)),
        static_cast<int>(std::min<int64_t>(step_ - 1, Replay::kWarmUps)), last_of_step);
  return *slot;
}

void Pipeline::forward(int64_t m, const Run& run) {
  Slot& slot = slot_of(m, run);
  slot.training = run.training;
  Batch batch;
  own_time_.of_host([&] { batch = run.batches(m); });
  if (!first()) Slot::reserve(slot.received, model_.hidden_shape(batch), model_.hidden_options());
  first() ? flush() : receive(pp_.rank() - 1, slot.received);
  using Pass = Replay::Pass;
  Pass pass = std::exchange(slot.step, step_) == step_ ? Pass::kAgain : Pass::kNext;
  std::vector<Tensor> inputs = slot.replay.begin(inputs_of(batch, run.seed), pass);
  slot.batch = batch_of(inputs);
  slot.seed = inputs.back();
  bool together = alone() && run.training;  // with its backward
  if (!together)
    own_time_.of_device(
        [&] { slot.replay.run([this, &slot, &run] { forward_pass(slot, run.rows); }); });
  if (!last()) send(pp_.rank() + 1, slot.y.detach());
}

void Pipeline::backward(int64_t m, const Run& run) {
  Slot& slot = slot_of(m, run);
  if (!last()) Slot::reserve(slot.dy, slot.y.sizes(), slot.y.options());
  last() ? flush() : receive(pp_.rank() + 1, slot.dy);
  own_time_.of_device([&] {
    slot.replay.run([this, &slot] {
      if (alone()) forward_pass(slot);
      backward_pass(slot);
    });
  });
  if (!first()) send(pp_.rank() - 1, slot.x.grad());
  if (!slot.replay.recorded()) slot.rest();
}

void Pipeline::forward_pass(Slot& slot, std::vector<Tensor>* rows) {
  RECORD_USER_SCOPE("forward");
  slot.y.reset();  // all that a recording made which was given up
  if (!first()) slot.x = slot.received.detach().set_requires_grad(slot.training);
  LossDetails details;
  bool wanted = rows || slot.batch.reference.defined() || model_.config().scores;
  slot.y = model_.forward(slot.x, slot.batch, slot.seed, wanted ? &details : nullptr);
  if (!last()) return;
  at::NoGradGuard no_grad;
  sum_.loss += slot.y;
  sum_.weight += weight_of(slot.batch, model_.config().scores);
  if (rows) rows->push_back(details.rows);
  if (details.measures.defined()) sum_.measures += details.measures;
}

void Pipeline::backward_pass(Slot& slot) {
  RECORD_USER_SCOPE("backward");
  for (ParamBuffer* buffer : model_.buffers()) buffer->before_backward(slot.last_of_step);
  Tensor y = slot.y;
  slot.y = y.detach();  // without what its gradient needed
  y.backward(last() ? Tensor() : slot.dy);
  for (ParamBuffer* buffer : model_.buffers()) buffer->after_backward();
}

// Where all tp ranks of a stage have the same hidden state, each sends and receives a part of it,
// and those of the next stage, neighbours on a node, put the parts together.
Tensor Pipeline::part_of(const Tensor& x) const {
  if (model_.splits_tokens()) return x;
  Communicator& tp = model_.mesh().tp();
  return x.view({tp.size(), -1})[tp.rank()];
}

void Pipeline::send(int peer, const Tensor& x) {
  pending_.push_back({Transfer::kSend, peer, part_of(x.contiguous())});
}

void Pipeline::receive(int peer, Tensor& x) {
  pending_.push_back({Transfer::kReceive, peer, part_of(x)});
  flush();
  if (!model_.splits_tokens()) model_.mesh().tp().all_gather(part_of(x), x);
}

void Pipeline::flush() {
  pp_.exchange(pending_);
  pending_.clear();
}

}  // namespace neox
