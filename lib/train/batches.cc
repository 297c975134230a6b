#include "train/batches.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "data/boundaries.h"

namespace neox {
namespace {

// [B, T] of the inputs among tokens [B, T + 1].
template <class Rule>
Tensor by_sample(const Tensor& tokens, int64_t end_of_document, const Rule& rule) {
  int64_t B = tokens.size(0), T = tokens.size(1) - 1;
  auto width = static_cast<size_t>(T);
  Tensor found = at::empty({B, T}, at::kLong);
  for (int64_t b = 0; b < B; ++b)
    rule(std::span(tokens.const_data_ptr<int64_t>() + b * (T + 1), width), end_of_document,
         std::span(found.mutable_data_ptr<int64_t>() + b * T, width));
  return found;
}

}  // namespace

Batches::Batches(const Sampler& sampler, Split split, const BatchForm& form, Mesh& mesh,
                 at::Device device)
    : sampler_(sampler),
      split_(split),
      form_(form),
      data_rank_{mesh.data().rank(), mesh.data().size()},
      device_(device) {}

Batch Batches::get(int64_t first, int64_t m) const {
  int64_t B = form_.plan.micro, T = form_.seq;
  SampleRun run = micro_batch(form_.plan, data_rank_, first, m);
  Tensor tokens = at::zeros({B, T + 1}, at::kLong), weights = at::zeros({B, T}, at::kFloat);
  auto width = static_cast<size_t>(T);
  for (int64_t b = 0; b < run.size; ++b) {
    sampler_.get(split_, run.first + b,
                 {tokens.mutable_data_ptr<int64_t>() + b * (T + 1), width + 1},
                 {weights.mutable_data_ptr<float>() + b * T, width});
    sampler_.prefetch(split_, run.first + form_.plan.global + b);  // of the next step
  }
  Batch batch{.first_sample = run.first};
  const BoundaryRules& rules = form_.boundaries;
  if (rules.attention == BoundaryRules::At::kRespected)
    batch.documents = by_sample(tokens, rules.end_of_document, number_documents).to(device_);
  if (rules.positions == BoundaryRules::At::kRespected)
    batch.positions = by_sample(tokens, rules.end_of_document, restart_positions).to(device_);
  tokens = tokens.to(device_);
  batch.tokens = tokens.narrow(1, 0, T);
  batch.targets = tokens.narrow(1, 1, T);
  batch.weights = weights.to(device_);
  return batch;
}

}  // namespace neox
