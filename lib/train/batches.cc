#include "train/batches.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>

#include "config/batch.h"
#include "data/boundaries.h"

namespace neox {

Batch beginning(Batch batch, int64_t seq) {
  if (seq == batch.tokens.size(1)) return batch;
  for (Tensor* x :
       {&batch.tokens, &batch.targets, &batch.weights, &batch.documents, &batch.positions})
    if (x->defined()) *x = x->narrow(1, 0, seq).contiguous();
  return batch;
}

Batches::Batches(const Sampler& sampler, Split split, const BatchForm& form, Mesh& mesh,
                 at::Device device)
    : sampler_(sampler),
      split_(split),
      form_(form),
      data_rank_{mesh.data().rank(), mesh.data().size()},
      device_(device) {}

BatchPlan Batches::plan_at(int64_t first) const {
  return of_size(form_.plan, form_.batches.size_at(first), data_rank_.ranks);
}

Batch Batches::get(int64_t first, int64_t m) {
  Place place{first, m};
  bool known = ahead_.valid() && expected_ == place;
  HostBatch host = known ? ahead_.get() : read(place);
  if (form_.read == BatchForm::Read::kAhead) {
    expected_ = behind(place);
    ahead_ = std::async(std::launch::async, [this, next = expected_] {
      // A thread begins on the first GPU, where pinned memory would take a context of its own.
      c10::DeviceGuard on(device_);
      return read(next);
    });
  }
  return on_device(host);
}

Batch Batches::none() { return on_device(read(SampleRun{})); }

Batch Batches::on_device(const HostBatch& host) const {
  auto there = [this](const Tensor& x) { return x.defined() ? x.to(device_, true) : x; };
  Tensor tokens = there(host.tokens);
  return {.tokens = tokens.narrow(1, 0, form_.seq),
          .targets = tokens.narrow(1, 1, form_.seq),
          .weights = there(host.weights),
          .first_sample = there(host.first_sample),
          .documents = there(host.documents),
          .positions = there(host.positions),
          .rewards = there(host.rewards)};
}

Batches::Place Batches::behind(const Place& place) const {
  BatchPlan plan = plan_at(place.first);
  if (place.m + 1 < plan.accumulation) return {place.first, place.m + 1};
  return {place.first + plan.global, 0};
}

Batches::HostBatch Batches::read(const Place& place) const {
  return read(micro_batch(plan_at(place.first), data_rank_, place.first, place.m));
}

Batches::HostBatch Batches::read(const SampleRun& run) const {
  int64_t each = form_.rows_of_sample, B = form_.plan.micro * each, T = form_.seq;
  HostBatch batch{.tokens = host_tensor({B, T + 1}, at::kLong),
                  .weights = host_tensor({B, T}, at::kFloat),
                  .first_sample = host_tensor({}, at::kLong)};
  *batch.first_sample.mutable_data_ptr<int64_t>() = run.first * each;
  if (sampler_.has_rewards(split_)) batch.rewards = read_rewards(run);
  auto width = static_cast<size_t>(T);
  std::vector<int64_t> counts(static_cast<size_t>(B));
  for (int64_t b = 0; b < B; ++b) {
    std::span tokens(batch.tokens.mutable_data_ptr<int64_t>() + b * (T + 1), width + 1);
    std::span weights(batch.weights.mutable_data_ptr<float>() + b * T, width);
    if (b < run.size * each) {
      Answer answer = b % each == 0 ? Answer::kChosen : Answer::kRejected;
      int64_t id = run.first + b / each;
      counts[static_cast<size_t>(b)] = sampler_.get(split_, id, tokens, weights, answer);
      sampler_.prefetch(split_, id + form_.plan.global, answer);  // of the next step
    } else {
      std::ranges::fill(tokens, 0);
      std::ranges::fill(weights, 0.0F);
    }
  }
  using At = BoundaryRules::At;
  if (form_.boundaries.attention == At::kRespected)
    batch.documents = by_sample(batch.tokens, counts, number_documents);
  if (form_.boundaries.positions == At::kRespected)
    batch.positions = by_sample(batch.tokens, counts, restart_positions);
  return batch;
}

// [B]
Tensor Batches::read_rewards(const SampleRun& run) const {
  Tensor rewards = host_tensor({form_.plan.micro}, at::kDouble);
  for (int64_t b = 0; b < rewards.size(0); ++b)
    rewards.mutable_data_ptr<double>()[b] =
        b < run.size ? sampler_.reward(split_, run.first + b) : 0;
  return rewards;
}

Tensor Batches::host_tensor(at::IntArrayRef shape, at::ScalarType type) const {
  return at::empty(shape, at::dtype(type).pinned_memory(device_.is_cuda()));
}

// [B, T] of the inputs among tokens [B, T + 1], of which the first counts[b] are the sample's.
Tensor Batches::by_sample(const Tensor& tokens, const std::vector<int64_t>& counts,
                          Rule rule) const {
  int64_t B = tokens.size(0), T = form_.seq;
  Tensor found = host_tensor({B, T}, at::kLong);
  for (int64_t b = 0; b < B; ++b) {
    auto inputs = static_cast<size_t>(std::min(counts[static_cast<size_t>(b)], T));
    rule(std::span(tokens.const_data_ptr<int64_t>() + b * (T + 1), inputs),
         form_.boundaries.end_of_document,
         std::span(found.mutable_data_ptr<int64_t>() + b * T, static_cast<size_t>(T)));
  }
  return found;
}

}  // namespace neox
