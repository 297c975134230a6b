#include "model/gpt_neox.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>

#include "base/error.h"
#include "model/head.h"
#include "model/recompute.h"
#include "model/tp.h"
#include "ops/embedding.h"
#include "ops/product.h"
#include "ops/random.h"

namespace neox {
namespace {

// Either of which may be undefined.
Tensor sum_of(const Tensor& a, const Tensor& b) {
  return !a.defined() ? b : !b.defined() ? a : a + b;
}

Tensor activated(const Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::kGeluErf:
      return at::gelu(x, "none");
    case Activation::kGeluTanh:
      return at::gelu(x, "tanh");
    case Activation::kRelu:
      return at::relu(x);
    case Activation::kSilu:
      return at::silu(x);
    case Activation::kSoftsign:
      return x / (x.abs() + 1);
    case Activation::kMish:
      return at::mish(x);
    case Activation::kSigmoid:
      return at::sigmoid(x);
    case Activation::kIdentity:
      break;
  }
  return x;
}

}  // namespace

Tensor GptNeoX::forward(const Tensor& x, const Batch& batch, const Tensor& seed) {
  Pass pass = pass_of(batch);
  Tensor y = layers(mesh_.first_stage() ? embed(batch.tokens, pass) : x, pass);
  if (!mesh_.last_stage()) return y;
  Tensor z = copy_to_tp(norm(y, "final_layer_norm"), mesh_.tp());
  HeadTargets targets{batch.targets.flatten(), batch.weights.flatten(), seed};
  return head_loss(z.view({-1, config_.hidden}), head_weight(), targets, mesh_.tp());
}

Tensor GptNeoX::embed(const Tensor& tokens, const Pass& pass) {
  const Tensor& weight = param("embed_in.weight");
  int64_t rows = weight.size(0);
  Tensor local = tokens - rows * mesh_.tp().rank();
  Tensor mine = (local >= 0).logical_and_(local < rows);
  Tensor x = embedding_rows(weight, local.clamp(0, rows - 1)) * mine.unsqueeze(-1);
  Tensor y = sum_of(sum_over_tp(x, mesh_.tp()), embed_positions(tokens.size(1), pass));
  return drop(y, config_.hidden_dropout, "embedding", pass);
}

// What is added to the tokens' embeddings: [B, T, hidden] or [T, hidden], or undefined.
Tensor GptNeoX::embed_positions(int64_t T, const Pass& pass) {
  bool learned = config_.position_embedding == PositionEmbedding::kLearned;
  const Tensor& table = learned ? param("embed_positions.weight") : sinusoids_;
  if (!table.defined()) return {};
  if (pass.positions.defined()) return at::embedding(table, pass.positions);
  int64_t first = pass.cache ? pass.cache->length : 0;
  check(first + T <= table.size(0), "positions ", first, "..", first + T, " are beyond the ",
        table.size(0), " that the model has (max_position_embeddings)");
  return table.narrow(0, first, T);
}

Tensor GptNeoX::layers(Tensor x, const Pass& pass) {
  bool recompute = pass.training && options_.recompute_layers > 0;
  int64_t at_once = recompute ? options_.recompute_layers : last_layer_ - first_layer_;
  for (int64_t from = first_layer_; from < last_layer_; from += at_once) {
    int64_t to = std::min(from + at_once, last_layer_);
    auto part = [this, from, to, pass](const Tensor& input, const Tensor& bias) {
      Pass here = pass;
      if (bias.defined()) here.mask = pass.mask + bias;
      Tensor y = input;
      for (int64_t l = from; l < to; ++l) y = layer(y, l, here);
      return y;
    };
    x = recompute ? recomputed(x, pass.bias, part) : part(x, pass.bias);
  }
  return x;
}

Tensor GptNeoX::layer(const Tensor& x, int64_t l, const Pass& pass) {
  std::string p = prefix(l);
  Tensor attention_bias = bias(p + "attention.dense.bias"),
         mlp_bias = bias(p + "mlp.dense_4h_to_h.bias");
  auto branch = [&](const Tensor& partial, const Tensor& b, const char* site) {
    return drop(sum_of(sum_over_tp(partial, mesh_.tp()), b), config_.hidden_dropout, p + site,
                pass);
  };
  auto input = [&](const Tensor& y, const char* name) {
    return copy_to_tp(norm(y, p + name), mesh_.tp());
  };
  Tensor z = input(x, "input_layernorm"), a = attention(z, l, pass);
  if (!config_.parallel_residual) {
    Tensor y = x + branch(a, attention_bias, "attention");
    return y + branch(mlp(input(y, "post_attention_layernorm"), l), mlp_bias, "mlp");
  }
  Tensor m = mlp(config_.tied_norms ? z : input(x, "post_attention_layernorm"), l);
  if (config_.hidden_dropout == 0)  // one reduction for both branches
    return x + sum_of(sum_over_tp(a + m, mesh_.tp()), sum_of(attention_bias, mlp_bias));
  return x + branch(a, attention_bias, "attention") + branch(m, mlp_bias, "mlp");
}

Tensor GptNeoX::attention(const Tensor& x, int64_t l, const Pass& pass) {
  int64_t B = x.size(0), T = x.size(1), D = config_.head_size(), G = config_.group_queries(),
          K = config_.groups() / mesh_.tp().size(), H = K * G;
  auto parts = query_key_value(x, l, pass).view({B, T, K, G + 2, D}).split_with_sizes({G, 1, 1}, 3);
  auto heads = [&](const Tensor& part, int64_t n) {
    return part.reshape({B, T, n, D}).transpose(1, 2);
  };
  Tensor y = attend(heads(parts[0], H), heads(parts[1], K), heads(parts[2], K), l, pass);
  return product(y.transpose(1, 2).reshape({B, T, H * D}),
                 param(prefix(l) + "attention.dense.weight"));
}

// [B, T, K, {q ..., k, v}, D], or flat behind T; queries and keys are normed and rotated.
Tensor GptNeoX::query_key_value(const Tensor& x, int64_t l, const Pass& pass) {
  std::string p = prefix(l) + "attention.";
  int64_t B = x.size(0), T = x.size(1), D = config_.head_size(), G = config_.group_queries(),
          K = config_.groups() / mesh_.tp().size();
  Tensor qkv = product(x, param(p + "query_key_value.weight"), bias(p + "query_key_value.bias"));
  if (config_.qk_norm) {
    auto parts = qkv.view({B, T, K, G + 2, D}).split_with_sizes({G, 1, 1}, 3);
    auto normed = [&](const Tensor& part, const std::string& name) {  // each rank norms its heads
      Tensor b = bias(name + ".bias");
      return norm(part, copy_to_tp(param(name + ".weight"), mesh_.tp()),
                  b.defined() ? copy_to_tp(b, mesh_.tp()) : b);
    };
    qkv = at::cat(
        {normed(parts[0], p + "query_layernorm"), normed(parts[1], p + "key_layernorm"), parts[2]},
        3);
  }
  if (pass.rotary.cos.defined()) return rotate_rows_(qkv, {K, G}, pass.rotary);
  return rotate_positions_(qkv, {K, G}, rotary_, pass.cache ? pass.cache->length : 0);
}

Tensor GptNeoX::mlp(const Tensor& x, int64_t l) {
  std::string p = prefix(l) + "mlp.";
  Tensor y = product(x, param(p + "dense_h_to_4h.weight"), bias(p + "dense_h_to_4h.bias"));
  if (config_.gated) {
    auto parts = y.view({x.size(0), x.size(1), -1, 2}).unbind(3);  // gate, up [B, T, F]
    y = activated(parts[0], config_.activation) * parts[1];
  } else {
    y = activated(y, config_.activation);
  }
  return product(y, param(p + "dense_4h_to_h.weight"));
}

// Over the last dimension.
Tensor GptNeoX::norm(const Tensor& x, const Tensor& weight, const Tensor& bias) const {
  if (config_.norm == Norm::kRmsNorm)
    return at::rms_norm(x, weight.sizes(), weight, config_.norm_eps);
  return at::layer_norm(x, weight.sizes(), weight, bias, config_.norm_eps);
}

Tensor GptNeoX::norm(const Tensor& x, const std::string& name) const {
  return norm(x, param(name + ".weight"), bias(name + ".bias"));
}

Tensor GptNeoX::drop(const Tensor& x, double p, const std::string& site, const Pass& pass,
                     int64_t offset) {
  if (!pass.training || p == 0) return x;
  return dropout(x, p,
                 {.key = random_key(options_.seed, "dropout." + site),
                  .first_sample = pass.first_sample,
                  .offset = offset});
}

Tensor GptNeoX::generate_step(const Tensor& x, const Tensor& tokens, KvCache& cache) {
  at::NoGradGuard no_grad;
  Pass pass{.cache = &cache};
  int64_t first = cache.length, last = first + tokens.size(1);
  if (scores_depend_on_distance() || (first > 0 && last > first + 1))
    pass.mask = score_mask(first, last, {});
  pass.bias = score_bias(first, last);
  Tensor y = layers(mesh_.first_stage() ? embed(tokens, pass) : x, pass);
  cache.length = last;
  if (!mesh_.last_stage()) return y;
  Tensor end = norm(y.narrow(1, y.size(1) - 1, 1).squeeze(1), "final_layer_norm");
  Tensor mine = at::linear(end, head_weight()).t().contiguous();  // [V / tp, B]
  Tensor all = at::empty({config_.vocab, mine.size(1)}, mine.options());
  mesh_.tp().all_gather(mine, all);
  return all.t();
}

KvCache GptNeoX::new_cache(int64_t batch, int64_t capacity) const {
  int64_t D = config_.head_size(), K = config_.groups() / mesh_.layout().tp;
  KvCache cache;
  for (int64_t l = first_layer_; l < last_layer_; ++l) {
    cache.keys.push_back(at::empty({batch, K, capacity, D}, hidden_options()));
    cache.values.push_back(at::empty({batch, K, capacity, D}, hidden_options()));
  }
  return cache;
}

std::vector<int64_t> GptNeoX::hidden_shape(const Batch& batch) const {
  return {batch.tokens.size(0), batch.tokens.size(1), config_.hidden};
}

at::TensorOptions GptNeoX::hidden_options() const {
  return at::TensorOptions().dtype(options_.dtypes.param).device(options_.device);
}

const Tensor& GptNeoX::param(const std::string& name) const {
  auto found = params_.find(name);
  check(found != params_.end(), name,
        " is not a parameter of this pipeline stage, which has layers ", first_layer_, "..",
        last_layer_);
  return found->second;
}

// Undefined where the model has none of that name.
Tensor GptNeoX::bias(const std::string& name) const {
  auto found = params_.find(name);
  return found == params_.end() ? Tensor() : found->second;
}

const Tensor& GptNeoX::head_weight() const {
  return param(config_.tied_embedding ? "embed_in.weight" : "embed_out.weight");
}

}  // namespace neox
