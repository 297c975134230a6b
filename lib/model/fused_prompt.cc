// Prompts of FusedDecode: many rows at once, so that products in float decide, not the memory.
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include "base/error.h"
#include "model/fused_decode.h"
#include "ops/bf16_product.h"
#include "ops/product.h"

namespace neox {
namespace {

// Up to so many rows the products are bound by reading the weights.
constexpr int64_t kFewRows = 16;
// Elements of a matrix that are converted at once: what stays in a core's own cache.
constexpr int64_t kPart = int64_t{1} << 18;

FloatRows rows_of(const Tensor& x) { return {x.mutable_data_ptr<float>(), x.size(0), x.size(1)}; }

}  // namespace

bool FusedDecode::takes_prompt(int64_t tokens) const {
  return type_ == WeightType::kFloat || tokens <= kFewRows || cpu_is_slow_in_half() ||
         bf16_multiplies(embedding_);
}

void FusedDecode::reserve_prompt(int64_t T, int threads) {
  const ModelConfig& c = config_;
  auto rows = [&](int64_t columns) {
    Tensor x = at::empty({T, padded_row(columns)}, at::kFloat);
    if (columns != x.size(1)) x.zero_();
    return x;
  };
  int64_t heads = c.heads * c.head_size();
  prompt_ = {rows(c.hidden),
             rows(c.hidden),
             rows(heads + 2 * c.groups() * c.head_size()),
             rows(heads),
             rows(c.intermediate),
             rows(c.mlp_inputs()),
             rows(c.hidden),
             {}};
  int64_t widest = std::max({c.hidden, c.intermediate, heads});
  for (int i = 0; i < threads; ++i)
    prompt_.parts.push_back(at::empty({std::max(kPart, kRowMultiple * widest)}, at::kFloat));
}

Tensor FusedDecode::prompt(const Tensor& tokens, KvCache& cache) {
  int64_t T = tokens.size(1);
  int threads = at::get_num_threads();
  check(cache.rows() == 1 && cache.lengths[0] == 0, "a prompt begins a row of the cache");
  check(T <= cos_.size(0), "a prompt of ", T, " tokens is longer than the ", cos_.size(0),
        " positions that the model has (max_position_embeddings)");
  reserve_prompt(T, threads);
  prompt_.x.narrow(1, 0, config_.hidden).copy_(embedded(tokens, at::arange(T, at::kLong)));
  for (size_t l = 0; l < layers_.size(); ++l) prompt_layer(l, cache, threads);
  cache.lengths[0] = T;
  reserve(1, cache.capacity(), threads);
  x_.values.narrow(0, 0, 1).copy_(prompt_.x.narrow(0, T - 1, 1));
  prompt_ = {};
  Tensor logits = at::empty({1, head_.weight.rows}, at::kFloat);
  run_team(threads, [&](Team& team) { head(team, logits); });
  return logits;
}

void FusedDecode::prompt_layer(size_t l, KvCache& cache, int threads) {
  const Layer& layer = layers_[l];
  int64_t T = prompt_.x.size(0), G = config_.group_queries(), D = config_.head_size(),
          K = config_.groups();
  run_team(threads, [&](Team& team) {
    prompt_norm(layer.attention_norm, team);
    prompt_product(layer.qkv, team, prompt_.normed, prompt_.qkv);
    team.meet();
    prompt_heads(l, team, cache);
  });
  Tensor heads = prompt_.qkv.narrow(1, 0, K * (G + 2) * D).view({1, T, K, G + 2, D});
  auto part = [&](int64_t from, int64_t n) {
    return heads.narrow(3, from, n).reshape({1, T, K * n, D}).transpose(1, 2);
  };
  Tensor y = attend_(part(0, G), part(G, 1), part(G + 1, 1));  // [1, H, T, D]
  prompt_.attended.narrow(1, 0, K * G * D).copy_(y.transpose(1, 2).reshape({T, K * G * D}));
  run_team(threads, [&](Team& team) {
    if (config_.parallel_residual) {
      if (!config_.tied_norms) prompt_norm(layer.mlp_norm, team);
      prompt_mlp(layer, team);
      prompt_output(layer.dense, team, prompt_.attended);
    } else {
      prompt_output(layer.dense, team, prompt_.attended);
      team.meet();
      prompt_norm(layer.mlp_norm, team);
      prompt_mlp(layer, team);
    }
    team.meet();
    prompt_output(layer.out, team, prompt_.inner);
  });
}

void FusedDecode::prompt_norm(const Norm& norm, Team& team) {
  FloatRows x = rows_of(prompt_.x), y = rows_of(prompt_.normed);
  auto [from, to] = team.share(x.count);
  for (int64_t t = from; t < to; ++t)
    kernels_.norm(norm.kernel, x.data + t * x.stride, config_.hidden, y.data + t * y.stride);
  team.meet();
}

// This thread's columns of y, with the bias.
void FusedDecode::prompt_product(const Linear& linear, Team& team, const Tensor& x,
                                 const Tensor& y) {
  const WeightMatrix& w = linear.weight;
  auto [from, to] = team.share(w.rows, kRowMultiple);
  if (x.size(0) <= kFewRows) {
    kernels_.multiply(w, from, to, rows_of(x), rows_of(y));
  } else if (bf16_multiplies(linear.values)) {
    Tensor in = at::empty({x.size(0), w.columns}, at::kBFloat16);
    for (int64_t t = 0; t < x.size(0); ++t)
      kernels_.store(rows_of(x).data + t * x.size(1), w.columns, type_, in[t].mutable_data_ptr());
    if (from < to)
      bf16_product_out(y.narrow(1, from, to - from), in, linear.values.narrow(0, from, to - from));
  } else {
    Tensor in = x.narrow(1, 0, w.columns);
    const Tensor& scratch = prompt_.parts[static_cast<size_t>(team.rank())];
    int64_t at_once = scratch.numel() / w.columns / kRowMultiple * kRowMultiple;
    for (int64_t n = from; n < to; n += at_once) {
      int64_t rows = std::min(at_once, to - n);
      Tensor part = linear.values.narrow(0, n, rows);
      if (w.type == WeightType::kBfloat16) {
        part = scratch.narrow(0, 0, rows * w.columns).view({rows, w.columns});
        kernels_.widen(static_cast<const uint16_t*>(w.data) + n * w.columns, rows * w.columns,
                       part.mutable_data_ptr<float>());
      }
      Tensor out = y.narrow(1, n, rows);
      at::mm_out(out, in, part.t());
    }
  }
  if (const float* bias = linear.bias.data())
    for (int64_t t = 0; t < y.size(0); ++t)
      kernels_.add(bias + from, to - from, rows_of(y).data + t * y.size(1) + from);
}

void FusedDecode::prompt_heads(size_t l, Team& team, const KvCache& cache) {
  int64_t size = (config_.group_queries() + 2) * config_.head_size();
  FloatRows qkv = rows_of(prompt_.qkv);
  auto [from, to] = team.share(qkv.count);
  for (int64_t t = from; t < to; ++t)
    for (int64_t g = 0; g < config_.groups(); ++g) {
      float* heads = qkv.data + t * qkv.stride + g * size;
      place_heads(layers_[l], heads, t);
      store_heads(l, cache, heads, {0, g, t});
    }
}

// inner: what the MLP's second matrix multiplies.
void FusedDecode::prompt_mlp(const Layer& layer, Team& team) {
  const Tensor& out = config_.gated ? prompt_.gated : prompt_.inner;
  prompt_product(layer.in, team, prompt_.normed, out);
  if (config_.gated) team.meet();  // pairs were dealt out by rows of the matrix
  auto [from, to] =
      team.share(config_.gated ? config_.intermediate : layer.in.weight.rows, kRowMultiple);
  for (int64_t t = 0; t < out.size(0); ++t)
    activate(rows_of(prompt_.gated).data + t * prompt_.gated.size(1),
             rows_of(prompt_.inner).data + t * prompt_.inner.size(1), {from, to});
}

void FusedDecode::prompt_output(const Linear& linear, Team& team, const Tensor& in) {
  prompt_product(linear, team, in, prompt_.out);
  auto [from, to] = team.share(config_.hidden, kRowMultiple);
  FloatRows x = rows_of(prompt_.x), y = rows_of(prompt_.out);
  for (int64_t t = 0; t < x.count; ++t)
    kernels_.add(y.data + t * y.stride + from, to - from, x.data + t * x.stride + from);
}

}  // namespace neox
