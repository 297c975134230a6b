#include "model/gpt_neox.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>

#include "base/error.h"
#include "model/backward.h"
#include "model/head.h"
#include "model/recompute.h"
#include "model/tp.h"
#include "ops/activated_product.h"
#include "ops/embedding.h"
#include "ops/product.h"
#include "ops/random.h"

namespace neox {
namespace {

// Either of which may be undefined.
Tensor sum_of(const Tensor& a, const Tensor& b) {
  return !a.defined() ? b : !b.defined() ? a : a + b;
}

}  // namespace

Tensor GptNeoX::forward(const Tensor& x, const Batch& batch, const Tensor& seed) {
  Pass pass = pass_of(batch);
  Tensor y = layers(mesh_.first_stage() ? embed(batch.tokens, pass) : x, pass);
  if (!mesh_.last_stage()) return y;
  Tensor z = norm(tp_.enter({y}).x, norm_weight("final_layer_norm"), norm_options());
  HeadTargets targets{batch.targets.flatten(), batch.weights.flatten(), seed};
  return head_loss(z.view({-1, config_.hidden}), head_weight(), targets, mesh_.tp());
}

Tensor GptNeoX::embed(const Tensor& tokens, const Pass& pass) {
  const Tensor& weight = param("embed_in.weight");
  Tensor x = embedding_rows(weight, tokens, weight.size(0) * mesh_.tp().rank());
  Tensor y = sum_of(tp_.leave(x), embed_positions(tokens.size(1), pass));
  return drop(y, config_.hidden_dropout, "embedding", pass);
}

// What is added to the tokens' embeddings: [B, T, hidden] or [T, hidden], or undefined.
Tensor GptNeoX::embed_positions(int64_t T, const Pass& pass) {
  bool learned = config_.position_embedding == PositionEmbedding::kLearned;
  Tensor table = learned ? tp_.counted_once(param("embed_positions.weight")) : sinusoids_;
  if (!table.defined()) return {};
  if (pass.positions.defined()) return at::embedding(table, pass.positions);
  int64_t first = pass.cache ? pass.cache->lengths.front() : 0;
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
      ResidualSum y{input};
      for (int64_t l = from; l < to; ++l) y = gathered_layer(y, l, to, here);
      y.bias = tp_.counted_once(y.bias);
      return total(y);
    };
    x = recompute ? recomputed(x, pass.bias, part) : part(x, pass.bias);
  }
  return x;
}

// Where gradients are not kept, backward makes room for them as it comes to the layer. Where its
// matrices are gathered around their use, those of the next one are beside it. Layers up to `to`
// are recomputed together.
ResidualSum GptNeoX::gathered_layer(const ResidualSum& input, int64_t l, int64_t to,
                                    const Pass& pass) {
  if (options_.keeping == Keeping::kAll) return layer(input, l, pass);
  auto gather = [this](int64_t i) {
    if (first_layer_ <= i && i < last_layer_) matrices(i).gather();
  };
  bool backward = at::GradMode::is_enabled(),
       again = backward && options_.recompute_layers > 0;  // recomputed, for its backward
  gather(l);
  if (!again || l + 1 < to) gather(l + 1);
  ResidualSum output = layer(input, l, pass);
  if (backward)
    output = with_work_in_backward(output, [this, gather, l](const std::vector<Tensor>&) {
      matrices(l).enter_backward();
      gather(l - 1);
    });
  bool needed_next = again || (pass.training && l + 1 == last_layer_ && mesh_.last_stage());
  if (!needed_next && !keeps_gathered_) matrices(l).let_go();
  return output;
}

ParamBuffer& GptNeoX::matrices(int64_t l) { return *matrices_[size_t(l - first_layer_)]; }

void GptNeoX::keep_gathered(bool keeps) {
  keeps_gathered_ = keeps;
  if (keeps) return;
  for (ParamBuffer* buffer : matrices_) buffer->let_go();
}

// The terms of its output are added where the next norm reads them.
ResidualSum GptNeoX::layer(const ResidualSum& input, int64_t l, const Pass& pass) {
  std::string p = prefix(l), at_attention = p + "attention", at_mlp = p + "mlp";
  Tensor attention_bias = bias(at_attention + ".dense.bias"),
         mlp_bias = bias(at_mlp + ".dense_4h_to_h.bias");
  Tensor qkv = param(at_attention + ".query_key_value.weight"),
         inner = param(at_mlp + ".dense_h_to_4h.weight");
  NormWeight first = norm_weight(p + "input_layernorm"), second;
  if (!config_.tied_norms) second = norm_weight(p + "post_attention_layernorm");
  if (!config_.parallel_residual) {
    auto [x, z, none] = normed(tp_.enter(input, {&qkv}), first);
    ResidualSum sum =
        with_branch({x}, attention(z, qkv, l, pass), attention_bias, at_attention, pass);
    auto [y, w, nothing] = normed(tp_.enter(sum, {&inner}), second);
    return with_branch({y}, mlp(w, inner, l), mlp_bias, at_mlp, pass);
  }
  auto [x, z, w] = normed(tp_.enter(input, {&qkv, &inner}), first, second);
  Tensor a = attention(z, qkv, l, pass), m = mlp(config_.tied_norms ? z : w, inner, l);
  if (config_.hidden_dropout == 0) {
    Tensor biases = sum_of(attention_bias, mlp_bias);
    if (mesh_.tp().size() == 1) return {x, a, biases, m};
    return {x, tp_.leave(a + m), biases};  // one sum over tp for both branches
  }
  return with_branch(with_branch({x}, a, attention_bias, at_attention, pass), m, mlp_bias, at_mlp,
                     pass);
}

ResidualSum GptNeoX::with_branch(const ResidualSum& to, const Tensor& partial, const Tensor& bias,
                                 const std::string& site, const Pass& pass) {
  Tensor branch = tp_.leave(partial);
  if (!pass.training || config_.hidden_dropout == 0) return {total(to), branch, bias};
  return {dropped_sum(total(to), branch, tp_.counted_once(bias), config_.hidden_dropout,
                      dropout_site(site, pass))};
}

// Of what entered tp: the sum goes on with what each rank has whole.
SumAndNorms GptNeoX::normed(const ResidualSum& sum, const NormWeight& first,
                            const NormWeight& second) {
  SumAndNorms all = add_norms(sum, first, second, norm_options());
  all.sum = tp_.counted_once(all.sum);
  return all;
}

Tensor GptNeoX::attention(const Tensor& x, const Tensor& qkv, int64_t l, const Pass& pass) {
  int64_t B = x.size(0), T = x.size(1), H = config_.heads / mesh_.tp().size(),
          D = config_.head_size();
  Heads heads = query_key_value(x, qkv, l, pass);
  Tensor y = attend(heads.q, heads.k, heads.v, l, pass);
  return product(y.transpose(1, 2).reshape({B, T, H * D}),
                 param(prefix(l) + "attention.dense.weight"));
}

// Queries and keys are normed and rotated.
Heads GptNeoX::query_key_value(const Tensor& x, const Tensor& weight, int64_t l, const Pass& pass) {
  std::string p = prefix(l) + "attention.";
  int64_t B = x.size(0), T = x.size(1), D = config_.head_size(), G = config_.group_queries(),
          K = config_.groups() / mesh_.tp().size();
  Tensor b = bias(p + "query_key_value.bias");
  const RotaryTable& rows =
      pass.rotary.cos.defined()
          ? pass.rotary
          : rows_from(rotary_, pass.cache ? pass.cache->lengths.front() : 0, T);
  if (!config_.qk_norm)
    return rotated_heads_(product(x, weight, b.defined() ? b.detach() : b), {K, G}, rows, b);
  auto parts = product(x, weight, b).view({B, T, K, G + 2, D}).split_with_sizes({G, 1, 1}, 3);
  auto normed = [&](const Tensor& part, const std::string& name) {  // each rank norms its heads
    return norm(part, norm_weight(name), norm_options());
  };
  Tensor qkv = at::cat(
      {normed(parts[0], p + "query_layernorm"), normed(parts[1], p + "key_layernorm"), parts[2]},
      3);
  return rotated_heads_(qkv, {K, G}, rows);
}

Tensor GptNeoX::mlp(const Tensor& x, const Tensor& inner, int64_t l) {
  std::string p = prefix(l) + "mlp.";
  Tensor y = product(x, inner), b = bias(p + "dense_h_to_4h.bias");
  return activated_product(y, b, config_.activation, config_.gated,
                           param(p + "dense_4h_to_h.weight"));
}

NormOptions GptNeoX::norm_options() const { return {config_.norm, config_.norm_eps}; }

NormWeight GptNeoX::norm_weight(const std::string& name) const {
  return {param(name + ".weight"), bias(name + ".bias")};
}

Tensor GptNeoX::drop(const Tensor& x, double p, const std::string& site, const Pass& pass,
                     int64_t offset) {
  if (!pass.training || p == 0) return x;
  DropoutSite where = dropout_site(site, pass);
  where.offset = offset;
  return dropout(x, p, where);
}

DropoutSite GptNeoX::dropout_site(const std::string& site, const Pass& pass) const {
  return {.key = random_key(options_.seed, "dropout." + site), .first_sample = pass.first_sample};
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
  auto [buffer, place] = found->second;
  return buffer->param(place);
}

// Undefined where the model has none of that name.
Tensor GptNeoX::bias(const std::string& name) const {
  return params_.contains(name) ? param(name) : Tensor();
}

const Tensor& GptNeoX::head_weight() const {
  return param(config_.tied_embedding ? "embed_in.weight" : "embed_out.weight");
}

}  // namespace neox
