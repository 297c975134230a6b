#include "model/gpt_neox.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>

#include "base/error.h"
#include "model/head.h"
#include "model/recompute.h"
#include "model/tp.h"
#include "ops/random.h"

namespace neox {

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
  Tensor x = at::embedding(weight, local.clamp(0, rows - 1)) * mine.unsqueeze(-1);
  return drop(sum_over_tp(x, mesh_.tp()), config_.hidden_dropout, "embedding", pass);
}

Tensor GptNeoX::layers(Tensor x, const Pass& pass) {
  bool recompute = pass.training && options_.recompute_layers > 0;
  int64_t at_once = recompute ? options_.recompute_layers : last_layer_ - first_layer_;
  for (int64_t from = first_layer_; from < last_layer_; from += at_once) {
    int64_t to = std::min(from + at_once, last_layer_);
    auto part = [this, from, to, pass](const Tensor& input) {
      Tensor y = input;
      for (int64_t l = from; l < to; ++l) y = layer(y, l, pass);
      return y;
    };
    x = recompute ? recomputed(x, part) : part(x);
  }
  return x;
}

Tensor GptNeoX::layer(const Tensor& x, int64_t l, const Pass& pass) {
  std::string p = prefix(l);
  const Tensor &attention_bias = param(p + "attention.dense.bias"),
               &mlp_bias = param(p + "mlp.dense_4h_to_h.bias");
  auto branch = [&](const Tensor& partial, const Tensor& bias, const char* site) {
    return drop(sum_over_tp(partial, mesh_.tp()) + bias, config_.hidden_dropout, p + site, pass);
  };
  auto input = [&](const Tensor& y, const char* name) {
    return copy_to_tp(norm(y, p + name), mesh_.tp());
  };
  Tensor a = attention(input(x, "input_layernorm"), l, pass);
  if (!config_.parallel_residual) {
    Tensor y = x + branch(a, attention_bias, "attention");
    return y + branch(mlp(input(y, "post_attention_layernorm"), l), mlp_bias, "mlp");
  }
  Tensor m = mlp(input(x, "post_attention_layernorm"), l);
  if (config_.hidden_dropout == 0)  // one reduction for both branches
    return x + (sum_over_tp(a + m, mesh_.tp()) + (attention_bias + mlp_bias));
  return x + branch(a, attention_bias, "attention") + branch(m, mlp_bias, "mlp");
}

Tensor GptNeoX::attention(const Tensor& x, int64_t l, const Pass& pass) {
  std::string p = prefix(l) + "attention.";
  int64_t B = x.size(0), T = x.size(1), D = config_.hidden / config_.heads,
          H = config_.heads / mesh_.tp().size();
  Tensor qkv =
      at::linear(x, param(p + "query_key_value.weight"), param(p + "query_key_value.bias"));
  qkv = pass.rotary.cos.defined()
            ? rotate_rows_(qkv, H, pass.rotary)
            : rotate_positions_(qkv, H, rotary_, pass.cache ? pass.cache->length : 0);
  auto parts = qkv.view({B, T, H, 3, D}).unbind(3);  // q, k, v [B, T, H, D]
  Tensor y =
      attend(parts[0].transpose(1, 2), parts[1].transpose(1, 2), parts[2].transpose(1, 2), l, pass);
  return at::linear(y.transpose(1, 2).reshape({B, T, H * D}), param(p + "dense.weight"));
}

Tensor GptNeoX::mlp(const Tensor& x, int64_t l) {
  std::string p = prefix(l) + "mlp.";
  Tensor y = at::linear(x, param(p + "dense_h_to_4h.weight"), param(p + "dense_h_to_4h.bias"));
  y = at::gelu(y, config_.activation == Activation::kGeluTanh ? "tanh" : "none");
  return at::linear(y, param(p + "dense_4h_to_h.weight"));
}

Tensor GptNeoX::norm(const Tensor& x, const std::string& name) {
  return at::layer_norm(x, {config_.hidden}, param(name + ".weight"), param(name + ".bias"),
                        config_.norm_eps);
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
  Tensor y = layers(mesh_.first_stage() ? embed(tokens, pass) : x, pass);
  cache.length += tokens.size(1);
  if (!mesh_.last_stage()) return y;
  Tensor last = norm(y.narrow(1, y.size(1) - 1, 1).squeeze(1), "final_layer_norm");
  Tensor mine = at::linear(last, head_weight()).t().contiguous();  // [V / tp, B]
  Tensor all = at::empty({config_.vocab, mine.size(1)}, mine.options());
  mesh_.tp().all_gather(mine, all);
  return all.t();
}

KvCache GptNeoX::new_cache(int64_t batch, int64_t capacity) const {
  int64_t D = config_.hidden / config_.heads, H = config_.heads / mesh_.layout().tp;
  KvCache cache;
  for (int64_t l = first_layer_; l < last_layer_; ++l) {
    cache.keys.push_back(at::empty({batch, H, capacity, D}, hidden_options()));
    cache.values.push_back(at::empty({batch, H, capacity, D}, hidden_options()));
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

const Tensor& GptNeoX::head_weight() const {
  return param(config_.tied_embedding ? "embed_in.weight" : "embed_out.weight");
}

}  // namespace neox
