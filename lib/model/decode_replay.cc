// Generation by GptNeoX's own layers in steps that can be recorded.
#include "model/decode_replay.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "model/gpt_neox.h"
#include "ops/cached_attention.h"
#include "ops/next_tokens.h"

namespace neox {
namespace {

// With zeros for the rows behind those that x has.
Tensor with_rows(const Tensor& x, int64_t rows) {
  if (!x.defined() || x.size(0) == rows) return x;
  std::vector<int64_t> padding(2 * static_cast<size_t>(x.dim()), 0);
  padding.back() = rows - x.size(0);
  return at::constant_pad_nd(x, padding);
}

}  // namespace

DecodeReplay::DecodeReplay(std::unique_ptr<GraphRecorder> by, int64_t num_rows, at::Device device)
    : recorder(std::move(by)) {
  if (recorder) recorder->keeps_memory = true;  // the next prompts take it again
  auto integers = at::device(device).dtype(at::kLong);
  tokens = at::zeros({num_rows, 1}, integers);
  rows = at::zeros({2, num_rows}, integers);
}

// Through memory from which a GPU copies by itself.
void DecodeReplay::place(std::vector<int64_t> lengths) {
  if (lengths == placed) return;
  auto options = at::dtype(at::kLong).pinned_memory(rows.is_cuda());
  Tensor host = at::zeros(rows.sizes(), options);
  std::ranges::copy(lengths, host.mutable_data_ptr<int64_t>());
  std::fill_n(host.mutable_data_ptr<int64_t>() + rows.size(1), lengths.size(), 1);
  rows.copy_(host, true);
  placed = std::move(lengths);
}

void DecodeReplay::use_row_kernels(int64_t heads) {
  arrived = at::zeros({rows.size(1) * heads}, rows.options().dtype(at::kInt));
}

void DecodeReplay::choose(const Tensor& logits, int64_t first_row) {
  next_tokens(logits, vocab, {.tokens = tokens.narrow(0, first_row, logits.size(0))});
}

void DecodeReplay::advance(const Tensor& logits) {
  if (logits.defined())
    next_tokens(logits, vocab, {.tokens = tokens, .lengths = lengths(), .more = in_use()});
  else
    lengths().add_(in_use());
}

Tensor GptNeoX::replayed_step(const Tensor& x, const Tensor& tokens, KvCache& cache) {
  int64_t used = cache.rows();
  cache.replay->tokens.narrow(0, 0, used).copy_(tokens, true);
  return replayed_logits(x, cache).narrow(0, 0, used).clone();
}

// [rows, V], or hidden states, of replay->tokens, which the likeliest next ones replace.
const Tensor& GptNeoX::replayed_logits(const Tensor& x, KvCache& cache) {
  DecodeReplay& replay = *cache.replay;
  int64_t rows = cache.keys.front().size(0), part = DecodeReplay::kSeen;
  int64_t longest = *std::ranges::max_element(cache.lengths) + 1;
  int64_t seen = std::min((longest + part - 1) / part * part, cache.capacity());
  replay.place(cache.lengths);
  DecodeReplay::Step& step = replay.step(seen);
  std::vector<Tensor> in = step.replay.begin({with_rows(x, rows)});
  KvCache all{.keys = cache.keys, .values = cache.values, .lengths = cache.lengths};
  step.replay.run([this, &replay, &step, all, in, seen]() mutable {
    step.output = step_output(in[0], replay.tokens, replayed_pass(replay, seen, all));
    replay.advance(mesh_.last_stage() ? step.output : Tensor());
  });
  for (int64_t& length : replay.placed) ++length;
  return step.output;
}

GptNeoX::Pass GptNeoX::replayed_pass(const DecodeReplay& replay, int64_t seen,
                                     KvCache& cache) const {
  Tensor lengths = replay.lengths();
  Pass pass{.cache = &cache, .positions = lengths.unsqueeze(1), .lengths = lengths, .seen = seen};
  pass.arrived = replay.arrived;
  if (pass.arrived.defined() && !scores_depend_on_distance()) return pass;
  pass.rotary = rows_at(rotary_, pass.positions);
  Tensor distance = lengths.view({-1, 1, 1, 1}) - at::arange(seen, lengths.options());
  pass.mask = mask_at(distance, {});
  if (Tensor bias = bias_at(distance); bias.defined()) pass.mask = pass.mask + bias;
  int64_t B = lengths.size(0), G = config_.group_queries(), H = config_.heads / mesh_.layout().tp;
  pass.mask = pass.mask.expand({B, H, 1, seen}).reshape({B * H / G, G, seen});
  return pass;
}

// Of one layer's keys and values.
CacheStep GptNeoX::cache_step(int64_t l, const Pass& pass) const {
  auto i = static_cast<size_t>(l - first_layer_);
  return {.keys = pass.cache->keys[i],
          .values = pass.cache->values[i],
          .lengths = pass.lengths,
          .seen = pass.seen,
          .scale = config_.score_scale(),
          .added = pass.mask,
          .arrived = pass.arrived};
}

}  // namespace neox
