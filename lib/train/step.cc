#include "train/step.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <ATen/record_function.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "ops/adamw.h"
#include "optim/schedule.h"

namespace neox {

namespace {

// A copy to the host that the device makes when it has come so far.
ReportToCome to_host(const Tensor& x) {
  if (x.is_cpu()) return {x.clone(), std::nullopt};
  Tensor host = at::empty(x.sizes(), x.options().device(at::kCPU).pinned_memory(true));
  host.copy_(x, true);
  c10::Event arrival(x.device().type(), c10::EventFlag::BACKEND_DEFAULT);  // with a clock
  arrival.record(c10::impl::VirtualGuardImpl(x.device().type()).getStream(x.device()));
  return {host, std::move(arrival)};
}

}  // namespace

TrainStep::TrainStep(GptNeoX& model, const Config& config, GraphRecorder* recorder)
    : model_(model),
      pipeline_(model, recorder),
      clip_(config.optimizer.gradient_clipping),
      optimizer_(make_optimizer(config.optimizer, model.buffers(), model.mesh())),
      loss_scale_(config.precision, model.hidden_options().device()),
      add_up_(host_work().empty() ? recorder : nullptr, "the norm of gradients"),
      update_(host_work().empty() ? recorder : nullptr, "the update of parameters"),
      recorded_(recorder != nullptr) {
  at::Device device = model.hidden_options().device();
  // A batch that is not ramped up may be given by its parts; then any gives the same rates.
  BatchSchedule batches = batch_schedule(config, config.batch.global.value_or(1));
  rates_ = at::tensor(learning_rates(config.schedule, config.train.iters, batches), at::kDouble)
               .to(device);
  steps_ = at::zeros({}, at::dtype(at::kLong).device(device));
  stops_ = at::zeros({}, at::dtype(at::kDouble).device(device));
  lacks_ = at::zeros_like(stops_);
  nominal_weight_ = at::zeros_like(stops_);
}

ReportToCome TrainStep::run(int64_t microbatches, const BatchSource& batches, double nominal_weight,
                            const std::function<RankState()>& state) {
  RECORD_USER_SCOPE("step");
  if (std::exchange(said_weight_, nominal_weight) != nominal_weight)
    nominal_weight_.fill_(nominal_weight);
  // The seed keeps half-precision gradients in range; update() replaces the nominal divisor by the
  // true one.
  LossSum sum = pipeline_.train(microbatches, batches, loss_scale_.value() / nominal_weight_);
  at::NoGradGuard no_grad;
  RankState mine = state();
  if (mine.stop != said_.stop) stops_.fill_(mine.stop ? 1.0 : 0.0);
  if (mine.lacks_data != said_.lacks_data) lacks_.fill_(mine.lacks_data ? 1.0 : 0.0);
  said_ = mine;
  add_up_.begin({});
  add_up_.run([this, sum] { totals_ = totals(sum); });
  model_.mesh().world().all_reduce(totals_);
  before_update_();
  update_.begin({});
  update_.run([this] { result_ = update(totals_); });
  ReportToCome report = to_host(result_);
  report.own_time = pipeline_.take_own_time();
  return report;
}

Tensor TrainStep::totals(const LossSum& sum) const {
  std::vector<WeightedSquares> squares;
  for (const ParamBuffer* buffer : model_.buffers()) squares.push_back(buffer->squares());
  Tensor norm = sum_of_squares(squares);
  bool first = model_.mesh().tp().rank() == 0;  // tp ranks hold the same samples
  auto of_first = [&](const Tensor& x) { return first ? x : at::zeros_like(x); };
  Tensor all = at::cat({at::stack({norm, of_first(sum.loss), of_first(sum.weight), stops_, lacks_}),
                        of_first(sum.measures)});
  return model_.config().moe ? at::cat({all, model_.take_expert_load()}) : all;
}

Tensor TrainStep::update(const Tensor& totals) {
  RECORD_USER_SCOPE("update");
  Tensor weight = totals[2].clamp_min(1e-20), loss = totals[1] / weight;
  unscale_ = nominal_weight_ / (weight * loss_scale_.value());
  Tensor norm = totals[0].sqrt() * unscale_;
  Tensor whole = totals[4] == 0;
  Tensor finite =
      at::isfinite(norm).logical_and_(at::isfinite(loss)).logical_and_(whole).to(at::kDouble);
  Tensor scale = unscale_;
  if (clip_ > 0) scale = unscale_ * (clip_ / (norm + 1e-6)).clamp_max(1);
  Tensor lr = rates_.index_select(0, steps_.clamp_max(rates_.numel() - 1).view({1})).squeeze(0);
  int64_t behind = totals.numel() - (model_.config().moe ? 2 : 0);  // the measures
  Tensor result =
      at::cat({at::stack({loss, norm, lr, loss_scale_.value(), finite, totals[3], totals[4]}),
               totals.slice(0, 5, behind) / weight});
  if (model_.config().moe)
    result = at::cat({result, totals.narrow(0, behind, 1) / totals[behind + 1]});
  optimizer_->step({lr, scale, (steps_ + 1).to(at::kDouble), finite});
  steps_ += finite.to(at::kLong);
  loss_scale_.update(finite, whole);
  publish();
  if (recorded_)
    for (ParamBuffer* buffer : model_.buffers()) buffer->finish_publish();
  return result;
}

StepReport TrainStep::read(const ReportToCome& report) const {
  if (report.arrival) report.arrival->synchronize();
  const auto* v = report.values.const_data_ptr<double>();
  const double* end = v + report.values.numel();
  double load = model_.config().moe ? *--end : 0;
  double loss = without_sign_of_nan(v[0]), norm = without_sign_of_nan(v[1]);
  return {.loss = loss,
          .grad_norm = norm,
          .lr = v[2],
          .loss_scale = v[3],
          .finite = v[4] != 0,
          .stop = v[5] != 0,
          .lacks_data = v[6] != 0,
          .measures = {v + 7, end},
          .expert_load = load,
          .own_seconds = report.own_time.seconds()};
}

void TrainStep::publish() {
  for (ParamBuffer* buffer : model_.buffers()) buffer->publish();
}

TrainStep::Memory TrainStep::memory() const {
  Memory all;
  auto buffers = model_.buffers();
  for (size_t i = 0; i < buffers.size(); ++i) {
    ParamBuffer::Memory m = buffers[i]->memory();
    all.parameters += m.params;
    all.gradients += m.grads;
    all.optimizer += m.master;
    for (const auto& [name, state] : optimizer_->state(i))
      all.optimizer += static_cast<int64_t>(state.nbytes());
  }
  return all;
}

std::vector<StateChunk> TrainStep::owned() {
  std::vector<StateChunk> chunks;
  auto buffers = model_.buffers();
  for (size_t i = 0; i < buffers.size(); ++i) {
    auto placements = buffers[i]->placements();
    chunks.push_back({buffers[i]->name(), "param", buffers[i]->master(), placements});
    for (const auto& [state, tensor] : optimizer_->state(i))
      chunks.push_back({buffers[i]->name(), state, tensor, placements});
  }
  return chunks;
}

std::vector<StateChunk> TrainStep::written() {
  std::vector<StateChunk> chunks = owned();
  auto chunk = chunks.begin();
  for (ParamBuffer* buffer : model_.buffers()) {
    auto range = buffer->written();
    for (; chunk != chunks.end() && chunk->buffer == buffer->name(); ++chunk)
      *chunk = elements_of(*chunk, range);
  }
  return chunks;
}

std::vector<StateChunk> TrainStep::gradients() {
  std::vector<StateChunk> chunks;
  for (ParamBuffer* buffer : model_.buffers()) {
    StateChunk whole{buffer->name(), "gradient", buffer->grad(), buffer->placements()};
    chunks.push_back(elements_of(whole, buffer->written()));
  }
  return chunks;
}

int64_t TrainStep::optimizer_steps() const { return steps_.item<int64_t>(); }

void TrainStep::restore(int64_t optimizer_steps) {
  steps_.fill_(optimizer_steps);
  optimizer_->begin(optimizer_steps);
}

}  // namespace neox
