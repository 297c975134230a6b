// Generation by GptNeoX's own layers: prompts, and steps that no fused kernel covers; the reference
// for those that one does.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/pad_sequence.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/tensor.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "model/decode_replay.h"
#include "model/fused_decode.h"
#include "model/gpt_neox.h"
#include "ops/bf16_product.h"
#include "ops/cached_attention.h"
#include "ops/cpu_arena.h"
#include "ops/product.h"

namespace neox {
namespace {

bool all_equal(const std::vector<int64_t>& lengths) {
  return std::ranges::all_of(lengths, [&](int64_t n) { return n == lengths.front(); });
}

// The positions filled after T more tokens.
int64_t filled_after(int64_t T, const KvCache& cache) {
  int64_t last = *std::ranges::max_element(cache.lengths) + T;
  check(last <= cache.capacity(), "the key/value cache holds ", cache.capacity(),
        " positions, not ", last);
  return last;
}

}  // namespace

KvCache KvCache::narrow(int64_t first, int64_t count) const {
  auto from = lengths.begin() + first;
  KvCache part{.lengths = {from, from + count}, .fused = fused};
  for (const Tensor& k : keys) part.keys.push_back(k.narrow(0, first, count));
  for (const Tensor& v : values) part.values.push_back(v.narrow(0, first, count));
  return part;
}

KvCache KvCache::rows_behind(size_t count) const {
  KvCache all = *this;
  all.lengths.resize(lengths.size() + count);
  return all.narrow(rows(), static_cast<int64_t>(count));
}

void KvCache::drop_row(int64_t b) {
  int64_t last = rows() - 1, length = lengths.back();
  bool kernels = fused || (replay && replay->arrived.defined());  // see what is filled, and no more
  auto move = [&](const Tensor& x) {
    if (b != last) x[b].narrow(1, 0, length).copy_(x[last].narrow(1, 0, length));
    if (!kernels && b != last) x[b].narrow(1, length, capacity() - length).zero_();
    if (!kernels) x[last].zero_();
  };
  for (size_t l = 0; l < keys.size(); ++l) move(keys[l]), move(values[l]);
  if (replay && b != last) replay->tokens[b].copy_(replay->tokens[last]);
  lengths[static_cast<size_t>(b)] = length;
  lengths.pop_back();
}

KvCache GptNeoX::new_cache(int64_t batch, int64_t capacity) {
  at::NoGradGuard no_grad;
  int64_t D = config_.head_size(), K = config_.groups() / mesh_.layout().tp;
  KvCache cache{.lengths = std::vector<int64_t>(static_cast<size_t>(batch), 0)};
  // Zeros, also behind rows that are dropped, because what lies behind a short row is read, with
  // weight 0, beside a longer one; of what is not finite that would be no zero.
  // On a CPU they take memory as texts become longer.
  std::vector<int64_t> shape = {2, last_layer_ - first_layer_, batch, K, capacity, D};
  Tensor all = untouched_zeros(c10::multiply_integers(shape), hidden_options()).view(shape);
  cache.keys = all[0].unbind(), cache.values = all[1].unbind();
  at::ScalarType type = options_.dtypes.param;
  bool whole = mesh_.tp().size() == 1 && mesh_.pp().size() == 1;
  if (!packed_ && options_.packing != WeightPacking::kNever)
    packed_ = std::make_shared<PackedModel>(options_.packing);
  if (packed_) packed_->leave(static_cast<int64_t>(all.nbytes()));
  if (whole && options_.device.is_cpu() && (type == at::kFloat || type == at::kBFloat16))
    cache.fused = std::make_shared<FusedDecode>(decode_source(capacity));
  if (auto recorder = config_.moe ? nullptr : options_.recorder(options_.device)) {
    cache.replay = std::make_shared<DecodeReplay>(std::move(recorder), batch, options_.device);
    if (takes_row_kernels(batch)) cache.replay->use_row_kernels(config_.heads);
  }
  return cache;
}

DecodeSource GptNeoX::decode_source(int64_t capacity) {
  bool learned = config_.position_embedding == PositionEmbedding::kLearned;
  DecodeSource source{
      .config = config_,
      .first_layer = first_layer_,
      .last_layer = last_layer_,
      .param = [this](const std::string& name) { return bias(name); },
      .norm = [this](const std::string& name, int64_t size) { return norm_weight(name, size); },
      .rotary = rotary_,
      .positions = learned ? param("embed_positions.weight") : sinusoids_,
      .attend = [this](const Tensor& q, const Tensor& k,
                       const Tensor& v) { return attend_prompt(q, k, v); },
      .packed = packed_};
  Tensor by_distance = score_bias(capacity - 1, capacity);
  if (slopes_.defined() || by_distance.defined()) {
    Tensor added = score_mask(capacity - 1, capacity, {});
    if (by_distance.defined()) added = added + by_distance;
    source.added = added.view({-1, capacity});
  }
  return source;
}

Tensor GptNeoX::generate_step(const Tensor& x, const Tensor& tokens, KvCache& cache,
                              const AfterLayer& after_layer) {
  at::NoGradGuard no_grad;
  int64_t B = cache.rows(), T = tokens.size(1);
  check(tokens.size(0) == B, "tokens of ", tokens.size(0), " rows for a key/value cache of ", B);
  int64_t last = filled_after(T, cache);
  if (cache.fused && T == 1) return cache.fused->step(tokens, cache);
  if (cache.fused && B == 1 && last == T && cache.fused->prompts_together({&T, 1}) == 1)
    return cache.fused->prompts(tokens, {&T, 1}, cache, after_layer);
  Tensor y;
  if (cache.replay && T == 1) {
    y = replayed_step(x, tokens, cache);
  } else {
    Pass pass = cached_pass(T, cache);
    pass.after_layer = after_layer;
    y = step_output(x, tokens, pass);
  }
  for (int64_t& length : cache.lengths) length += T;
  return y;
}

// What follows the end of a shorter prompt is not seen by its tokens, nor are its keys by those
// that come, which take their places.
Tensor GptNeoX::read_prompts(const Tensor& tokens, std::span<const int64_t> lengths,
                             KvCache& cache) {
  at::NoGradGuard no_grad;
  at::IntArrayRef sizes(lengths.data(), lengths.size());
  Tensor rows = at::pad_sequence(tokens.split_with_sizes(sizes), true);  // [B, T]
  filled_after(rows.size(1), cache);
  Pass pass = cached_pass(rows.size(1), cache);
  pass.ends = (at::tensor(sizes, at::kLong) - 1).to(options_.device);
  Tensor logits = step_output({}, rows.to(options_.device), pass);
  cache.lengths.assign(lengths.begin(), lengths.end());
  return logits;
}

Tensor GptNeoX::hidden_states(const Tensor& tokens, const AfterLayer& after_layer) {
  at::NoGradGuard no_grad;
  check(mesh_.tp().size() == 1 && mesh_.pp().size() == 1, "the hidden states of split models");
  Pass pass = pass_of({.tokens = tokens, .targets = {}, .weights = {}});
  pass.after_layer = after_layer;
  return norm(layers(embed(tokens, pass), pass), final_norm(), norm_options());
}

Tensor GptNeoX::logits(const Tensor& hidden) const {
  if (!bf16_multiplies(hidden)) return product(hidden, head_weight()).to(at::kFloat);
  Tensor all = at::empty({hidden.size(0), config_.vocab}, hidden.options().dtype(at::kFloat));
  bf16_product_out(all, hidden, head_weight());
  return all;
}

void GptNeoX::greedy_step(KvCache& cache) {
  at::NoGradGuard no_grad;
  filled_after(1, cache);
  replayed_logits({}, cache);
  for (int64_t& length : cache.lengths) ++length;
}

Tensor GptNeoX::step_output(const Tensor& x, const Tensor& tokens, const Pass& pass) {
  Tensor first = mesh_.first_stage() ? embed(tokens, pass) : x;
  if (pass.arrived.defined()) return row_step(first, pass);
  Tensor y = layers(first, pass);
  if (!mesh_.last_stage()) return y;
  Tensor last = y.narrow(1, y.size(1) - 1, 1);
  if (pass.ends.defined())
    last = y.gather(1, pass.ends.view({-1, 1, 1}).expand({-1, 1, config_.hidden}));
  Tensor end = norm(last.squeeze(1), final_norm(), norm_options());
  Tensor mine = at::linear(end, head_weight()).t().contiguous();  // [V / tp, B]
  Tensor all = at::empty({config_.vocab, mine.size(1)}, mine.options());
  mesh_.tp().all_gather(mine, all);
  return all.t();
}

GptNeoX::Pass GptNeoX::cached_pass(int64_t T, KvCache& cache) const {
  Pass pass{.cache = &cache};
  int64_t first = cache.lengths.front(), last = first + T;
  if (all_equal(cache.lengths)) {
    pass.bias = score_bias(first, last);
    bool by_distance = scores_depend_on_distance() && (first > 0 || needs_mask(pass));
    if (by_distance || (first > 0 && T > 1)) pass.mask = score_mask(first, last, {});
    return pass;
  }
  auto integers = hidden_options().dtype(at::kLong);
  Tensor lengths = at::tensor(at::ArrayRef<int64_t>(cache.lengths), integers);
  pass.positions = lengths.unsqueeze(1) + at::arange(T, integers);  // [B, T]
  pass.rotary = rows_at(rotary_, pass.positions);
  last = *std::ranges::max_element(cache.lengths) + T;
  std::vector<Tensor> masks, biases;  // [1, H or 1, T, last] of each row
  for (int64_t n : cache.lengths) {
    auto padded = [&](const Tensor& scores, double value) {
      return at::constant_pad_nd(scores, {0, last - n - T}, value);
    };
    masks.push_back(padded(score_mask(n, n + T, {}), -std::numeric_limits<double>::infinity()));
    Tensor by_distance = score_bias(n, n + T);
    if (by_distance.defined()) biases.push_back(padded(by_distance, 0));
  }
  pass.mask = at::cat(masks, 0);
  if (!biases.empty()) pass.bias = at::cat(biases, 0);
  return pass;
}

// Attention of a whole text. In float where bf16 is slow.
Tensor GptNeoX::attend_prompt(const Tensor& q, const Tensor& k, const Tensor& v) {
  Pass pass;
  int64_t T = q.size(2);
  Tensor by_distance = score_bias(0, T);
  if (by_distance.defined())
    pass.mask = score_mask(0, T, {}).to(at::kFloat) + by_distance.to(at::kFloat);
  if (!pass.mask.defined() && bf16_multiplies(q)) return attend(q, k, v, first_layer_, pass);
  return attend(q.to(at::kFloat), k.to(at::kFloat), v.to(at::kFloat), first_layer_, pass);
}

// q [B, H, T, D]; k, v [B, K, T, D].
Tensor GptNeoX::attend_cached(const Tensor& q, const Tensor& k, const Tensor& v, int64_t l,
                              const Pass& pass) {
  if (pass.lengths.defined()) return attend_cached_step(q, k, v, cache_step(l, pass)).unsqueeze(2);
  KvCache& cache = *pass.cache;
  auto i = static_cast<size_t>(l - first_layer_);
  int64_t T = q.size(2), longest = *std::ranges::max_element(cache.lengths);
  auto rows = [&](const Tensor& all) { return all.narrow(0, 0, cache.rows()); };
  auto put = [&](const Tensor& all, const Tensor& x) {
    if (all_equal(cache.lengths))
      return static_cast<void>(rows(all).narrow(2, longest, T).copy_(x));
    for (int64_t b = 0; b < cache.rows(); ++b)
      all[b].narrow(1, cache.lengths[static_cast<size_t>(b)], T).copy_(x[b]);
  };
  put(cache.keys[i], k), put(cache.values[i], v);
  if (longest == 0) {
    Pass prompt = pass;
    prompt.cache = nullptr;
    return attend(q, k, v, l, prompt);
  }
  auto seen = [&](const Tensor& all) { return for_queries(rows(all).narrow(2, 0, longest + T)); };
  std::optional<Tensor> mask = pass.mask.defined() ? std::optional(pass.mask) : std::nullopt;
  return at::scaled_dot_product_attention(q, seen(cache.keys[i]), seen(cache.values[i]), mask, 0,
                                          false, score_rule_.scale);
}

}  // namespace neox
