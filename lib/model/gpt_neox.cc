#include "model/gpt_neox.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

#include <cmath>

#include "base/error.h"
#include "model/backward.h"
#include "model/head.h"
#include "model/preference.h"
#include "model/recompute.h"
#include "ops/activated_product.h"
#include "ops/embedding.h"
#include "ops/product.h"
#include "ops/random.h"
#include "ops/scaled.h"

namespace neox {
namespace {

// Either of which may be undefined.
Tensor sum_of(const Tensor& a, const Tensor& b) {
  return !a.defined() ? b : !b.defined() ? a : a + b;
}

}  // namespace

Tensor GptNeoX::forward(const Tensor& x, const Batch& batch, const Tensor& seed,
                        LossDetails* details) {
  Pass pass = pass_of(batch);
  Tensor y = layers(mesh_.first_stage() ? embed(batch.tokens, pass) : x, pass);
  if (!mesh_.last_stage()) return y;
  Tensor z = tp(pass).enter({y}, {}, {.first = final_norm(), .options = norm_options()}).first;
  return config_.scores ? score_loss(z, batch, seed, details)
                        : loss(z.view({-1, config_.hidden}), batch, seed, details);
}

// x [B, T, hidden]. Of each row the last token that counts has a value. Each rank of tp multiplies
// its part of the columns, as of a row-parallel linear layer.
Tensor GptNeoX::score_loss(const Tensor& x, const Batch& batch, const Tensor& seed,
                           LossDetails* details) {
  Tensor place = last_counted(batch.weights).view({-1, 1, 1});                  // [B, 1, 1]
  Tensor end = x.gather(1, place.expand({-1, -1, config_.hidden})).squeeze(1);  // [B, hidden]
  int64_t tp = mesh_.tp().size(), columns = config_.hidden / tp;
  Tensor mine = end.narrow(1, columns * mesh_.tp().rank(), columns);
  at::ScalarType wide = at::toOpMathType(x.scalar_type());
  Tensor values = tp_.leave((mine.to(wide) * param(kScoreName).to(wide)).sum(1));
  PreferenceLoss answers =
      score_loss_of(values.to(at::kDouble), batch.weights, *options_.preference);
  if (details) details->measures = answers.measures;
  if (!at::GradMode::is_enabled()) return answers.sum;
  Tensor seeded = answers.sum * seed;
  return seeded - seeded.detach() + answers.sum.detach();
}

// x [B T, hidden]. Where the loss depends on whole rows, their tokens' losses are found first,
// which say how much each row weighs.
Tensor GptNeoX::loss(const Tensor& x, const Batch& batch, const Tensor& seed,
                     LossDetails* details) {
  // Of samples of one token flatten() gives a view with gaps.
  HeadTargets targets{batch.targets.flatten().contiguous(), batch.weights.flatten().contiguous(),
                      seed};
  auto summed = [&] { return head_loss(x, head_weight(), targets, mesh_.tp()); };
  bool preference = batch.reference.defined();
  if (!preference && !details) return summed();
  Tensor rows =
      row_losses(token_losses(x, head_weight(), targets.targets, mesh_.tp()), batch.weights);
  if (details) details->rows = rows;
  if (!preference) return at::GradMode::is_enabled() ? summed() : rows.sum();
  PreferenceLoss answers =
      preference_loss({rows, batch.reference, batch.weights, batch.rewards}, *options_.preference);
  if (details) details->measures = answers.measures;
  if (!at::GradMode::is_enabled()) return answers.sum;
  targets.weights = (batch.weights * answers.shares.unsqueeze(1)).flatten();
  Tensor sum = summed();
  // The gradients of the one with the value of the other.
  return sum - sum.detach() + answers.sum;
}

Tensor GptNeoX::embed(const Tensor& tokens, const Pass& pass) {
  const Tensor& weight = param("embed_in.weight");
  Tensor part = embedding_rows(weight, tokens, weight.size(0) * mesh_.tp().rank());
  Tensor x = tp(pass).leave(part);
  if (config_.embedding_norm) {
    auto [w, b] = norm_weight("embed_layernorm");
    x = norm(x, {tp(pass).counted_once(w), tp(pass).counted_once(b)}, norm_options());
  }
  Tensor y = scaled(sum_of(x, scaled(embed_positions(tokens, pass), config_.position_scale())),
                    config_.embedding_scale());
  return dropout(y, pass.training ? config_.hidden_dropout : 0, hidden_site("embedding", y, pass));
}

// What is added to the tokens' embeddings: of their shape or [T, hidden], or undefined.
Tensor GptNeoX::embed_positions(const Tensor& tokens, const Pass& pass) {
  bool learned = config_.position_embedding == PositionEmbedding::kLearned;
  Tensor table = learned ? tp(pass).counted_once(param("embed_positions.weight")) : sinusoids_;
  if (!table.defined()) return {};
  Tensor positions = pass.positions;
  if (pass.splits_tokens) {
    if (!positions.defined())
      positions = at::arange(tokens.size(1), tokens.options()).expand_as(tokens);
    positions = positions.reshape({mesh_.tp().size(), tokens.size(0), -1})[mesh_.tp().rank()];
  }
  if (positions.defined()) return embedding_rows(table, positions);
  int64_t T = tokens.size(1), first = pass.cache ? pass.cache->lengths.front() : 0;
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
      for (int64_t l = from; l < to; ++l) {
        y = gathered_layer(y, l, to, here);
        if (here.after_layer) here.after_layer(input.size(0) * input.size(1));
      }
      y.bias = tp(here).counted_once(y.bias);
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
  for (ParamBuffer* buffer : matrices_) keeps ? buffer->gather() : buffer->let_go();
}

// The terms of its output are added where the next norm reads them.
ResidualSum GptNeoX::layer(const ResidualSum& input, int64_t l, const Pass& pass) {
  std::string p = prefix(l), at_attention = p + "attention", at_mlp = p + "mlp";
  Tensor attention_bias = bias(at_attention + ".dense.bias"),
         mlp_bias = bias(at_mlp + ".dense_4h_to_h.bias");
  Tensor qkv = param(at_attention + ".query_key_value.weight"),
         inner = config_.has_experts(l) ? Tensor() : param(at_mlp + ".dense_h_to_4h.weight");
  if (!config_.parallel_residual) {
    Entered in = tp(pass).enter(input, {&qkv}, norms(p + "input_layernorm"));
    Tensor a = tp(pass).leave(attention(in.first, qkv, l, pass), in);
    ResidualSum sum = with_branch({in.sum}, a, attention_bias, at_attention, pass);
    Entered between = tp(pass).enter(sum, {&inner}, norms(p + "post_attention_layernorm"));
    Tensor m = tp(pass).leave(mlp(between.first, inner, l, pass), between);
    return with_branch({between.sum}, m, mlp_bias, at_mlp, pass);
  }
  std::string second = config_.tied_norms ? "" : p + "post_attention_layernorm";
  Entered in = tp(pass).enter(input, {&qkv, &inner}, norms(p + "input_layernorm", second));
  Tensor a = attention(in.first, qkv, l, pass),
         m = mlp(config_.tied_norms ? in.first : in.second, inner, l, pass);
  if (config_.hidden_dropout == 0) {
    Tensor biases = sum_of(attention_bias, mlp_bias);
    if (mesh_.tp().size() == 1) return {in.sum, a, biases, m};
    return {in.sum, tp(pass).leave(a + m, in), biases};  // one sum over tp for both branches
  }
  ResidualSum sum =
      with_branch({in.sum}, tp(pass).leave(a, in), attention_bias, at_attention, pass);
  return with_branch(sum, tp(pass).leave(m, in), mlp_bias, at_mlp, pass);
}

ResidualSum GptNeoX::with_branch(const ResidualSum& to, const Tensor& branch, const Tensor& bias,
                                 const std::string& site, const Pass& pass) {
  if (!pass.training || config_.hidden_dropout == 0) return {total(to), branch, bias};
  return {dropped_sum(total(to), branch, tp(pass).counted_once(bias), config_.hidden_dropout,
                      hidden_site(site, branch, pass))};
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
    return norm(part, norm_weight(name, D), norm_options(D));
  };
  Tensor qkv = at::cat(
      {normed(parts[0], p + "query_layernorm"), normed(parts[1], p + "key_layernorm"), parts[2]},
      3);
  return rotated_heads_(qkv, {K, G}, rows);
}

Tensor GptNeoX::mlp(const Tensor& x, const Tensor& inner, int64_t l, const Pass& pass) {
  if (config_.has_experts(l)) return experts(x, l, pass);
  std::string p = prefix(l) + "mlp.";
  Tensor y = product(x, inner), b = bias(p + "dense_h_to_4h.bias");
  return activated_product(y, b, config_.activation, config_.gated,
                           param(p + "dense_4h_to_h.weight"));
}

NormOptions GptNeoX::norm_options(int64_t size) const {
  return {config_.norm, config_.norm_epsilon(size)};
}

NormWeight GptNeoX::norm_weight(const std::string& name, int64_t size) const {
  using enum NormWeights;
  if (config_.norm_weights == kNone) return {ones_.narrow(0, 0, size)};
  const Tensor& weight = param(name + ".weight");
  if (config_.norm_weights == kEach) return {weight, bias(name + ".bias")};
  return {(weight / std::sqrt(static_cast<double>(size))).expand({size}).contiguous()};
}

// Of the hidden states that the head multiplies: the logits' scale is a part of it.
NormWeight GptNeoX::final_norm() const {
  NormWeight w = norm_weight("final_layer_norm");
  double scale = config_.logit_scale();
  return {scaled(w.weight, scale), scaled(w.bias, scale)};
}

// second: none where it is empty.
EntryNorms GptNeoX::norms(const std::string& first, const std::string& second) const {
  return {norm_weight(first), second.empty() ? NormWeight{} : norm_weight(second), norm_options()};
}

DropoutSite GptNeoX::dropout_site(const std::string& site, const Pass& pass) const {
  return {.key = random_key(options_.seed, "dropout." + site), .first_sample = pass.first_sample};
}

// Of a hidden state, or this rank's tokens of one.
DropoutSite GptNeoX::hidden_site(const std::string& site, const Tensor& x, const Pass& pass) const {
  DropoutSite where = dropout_site(site, pass);
  if (!pass.splits_tokens) return where;
  where.before = x.numel() * mesh_.tp().rank();
  where.per_sample = x.numel() * mesh_.tp().size() / x.size(0);
  return where;
}

std::vector<int64_t> GptNeoX::hidden_shape(const Batch& batch) const {
  int64_t B = batch.tokens.size(0), T = batch.tokens.size(1);
  return {B, splits_tokens() ? T / mesh_.tp().size() : T, config_.hidden};
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
