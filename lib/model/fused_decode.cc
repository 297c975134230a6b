#include "model/fused_decode.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/error.h"
#include "ops/scaled.h"

namespace neox {
namespace {

Pointwise pointwise(Activation activation, const RowKernels& k) {
  switch (activation) {
    case Activation::kGeluErf:
      return k.gelu_erf;
    case Activation::kGeluTanh:
      return k.gelu_tanh;
    case Activation::kRelu:
      return k.relu;
    case Activation::kSilu:
      return k.silu;
    case Activation::kSoftsign:
      return k.softsign;
    case Activation::kMish:
      return k.mish;
    case Activation::kSigmoid:
      return k.sigmoid;
    case Activation::kIdentity:
      break;
  }
  return nullptr;
}

Tensor in_float(const Tensor& x) { return x.defined() ? x.to(at::kFloat).contiguous() : x; }

Tensor zero_rows(int64_t rows, int64_t columns) {
  return at::zeros({rows, padded_row(columns)}, at::kFloat);
}

// The memory of one row and group of a layer's keys or values.
void* positions_of(const Tensor& cache, int64_t b, int64_t g, int64_t position) {
  int64_t at = b * cache.stride(0) + g * cache.stride(1) + position * cache.stride(2);
  return static_cast<char*>(cache.mutable_data_ptr()) + at * cache.element_size();
}

// That `more` positions behind those of the cache are within the model's.
void check_positions(const KvCache& cache, int64_t more, int64_t positions) {
  int64_t last = *std::ranges::max_element(cache.lengths) + more;
  check(last <= positions, "positions up to ", last, " are beyond the ", positions,
        " that the model has (max_position_embeddings)");
}

}  // namespace

FusedDecode::FusedDecode(const DecodeSource& s)
    : config_(s.config),
      kernels_(row_kernels()),
      activation_(pointwise(s.config.activation, kernels_)),
      embedding_(s.param("embed_in.weight")),
      positions_(s.positions),
      cos_(s.rotary.cos.contiguous()),
      sin_(s.rotary.sin.contiguous()),
      added_(in_float(s.added)),
      type_(weight_type(embedding_)),
      packed_(s.packed),
      attend_(s.attend) {
  for (int64_t l = s.first_layer; l < s.last_layer; ++l) layers_.push_back(layer_of(s, l));
  if (config_.embedding_norm) embedding_norm_ = norm(s, "embed_layernorm", config_.hidden);
  final_norm_ = norm(s, "final_layer_norm", config_.hidden, config_.logit_scale());
  head_ = linear(s, config_.tied_embedding ? "embed_in" : "embed_out");
}

FusedDecode::Layer FusedDecode::layer_of(const DecodeSource& s, int64_t l) const {
  std::string p = "layers." + std::to_string(l) + ".", mlp = p + "mlp.";
  int64_t C = config_.hidden, D = config_.head_size();
  Layer layer{.attention_norm = norm(s, p + "input_layernorm", C),
              .qkv = linear(s, p + "attention.query_key_value"),
              .dense = linear(s, p + "attention.dense")};
  if (!config_.tied_norms) layer.mlp_norm = norm(s, p + "post_attention_layernorm", C);
  if (config_.qk_norm) {
    layer.query_norm = norm(s, p + "attention.query_layernorm", D);
    layer.key_norm = norm(s, p + "attention.key_layernorm", D);
  }
  if (config_.has_experts(l)) {
    layer.router = linear(s, mlp + "router");
    layer.experts = experts_of(s, mlp + "experts.");
  } else {
    layer.mlp = {linear(s, mlp + "dense_h_to_4h"), linear(s, mlp + "dense_4h_to_h")};
  }
  return layer;
}

// With what it gives multiplied by `factor`.
FusedDecode::Norm FusedDecode::norm(const DecodeSource& s, const std::string& name, int64_t size,
                                    double factor) const {
  auto [weight, bias] = s.norm(name, size);
  Norm norm{.weight = {scaled(in_float(weight), factor)}, .bias = {scaled(in_float(bias), factor)}};
  norm.kernel = {norm.weight.data(), norm.bias.data(),
                 static_cast<float>(config_.norm_epsilon(size)),
                 config_.norm == neox::Norm::kRmsNorm};
  return norm;
}

FusedDecode::Linear FusedDecode::linear(const DecodeSource& s, const std::string& name) {
  return linear_of(s.param(name + ".weight").detach(), s.param(name + ".bias"));
}

FusedDecode::Linear FusedDecode::linear_of(const Tensor& weight, const Tensor& bias) {
  return {.values = weight,
          .weight = {weight.const_data_ptr(), weight_type(weight), weight.size(0), weight.size(1)},
          .bias = {in_float(bias)}};
}

// Those that steps read whole.
std::vector<WeightMatrix*> FusedDecode::matrices() {
  std::vector<WeightMatrix*> all = {&head_.weight};
  for (Layer& layer : layers_) {
    all.insert(all.end(), {&layer.qkv.weight, &layer.dense.weight});
    if (layer.experts.empty()) all.insert(all.end(), {&layer.mlp.in.weight, &layer.mlp.out.weight});
    for (Mlp& expert : layer.experts)
      all.insert(all.end(), {&expert.in.weight, &expert.out.weight});
  }
  return all;
}

void FusedDecode::take_packed(int threads) {
  std::vector<WeightMatrix*> all = matrices();
  if (!packed_->count_step(kernels_, all, threads)) return;
  for (WeightMatrix* w : all) w->packed = packed_->of(*w);
  packed_.reset();
}

void FusedDecode::reserve(int64_t rows, int64_t capacity, int threads) {
  rows_ = rows;
  bool enough = x_.values.defined() && x_.values.size(0) >= rows &&
                scratch_.size() >= static_cast<size_t>(threads) &&
                scratch_[0].row.values.size(1) >= capacity;
  if (enough) return;
  const ModelConfig& c = config_;
  int64_t heads = c.head_columns();
  x_.values = Tensor();  // until all is there: memory may be lacking
  qkv_.values = zero_rows(rows, heads + 2 * c.groups() * c.head_size());
  attended_.values = zero_rows(rows, heads);
  int64_t sorted = c.moe ? rows * c.moe->top_k : 0;
  inner_ = {{zero_rows(rows, c.intermediate)}, {zero_rows(rows, c.mlp_inputs())}};
  if (c.moe)
    expert_inner_ = {{zero_rows(sorted, c.moe->intermediate)},
                     {zero_rows(sorted, c.expert_inputs())}};
  out_.values = zero_rows(std::max(rows, sorted), c.hidden);
  scratch_.assign(static_cast<size_t>(threads), {});
  for (Scratch& s : scratch_) {
    s = {.normed = {zero_rows(rows, c.hidden)}, .row = {zero_rows(1, capacity)}};
    if (c.moe) s.sorted.values = zero_rows(sorted, c.hidden);
    if (c.moe) s.scores.values = zero_rows(rows, c.moe->experts);
  }
  x_.values = zero_rows(rows, c.hidden);
}

Tensor FusedDecode::step(const Tensor& tokens, KvCache& cache) {
  int threads = at::get_num_threads();
  if (packed_) take_packed(threads);
  reserve(tokens.size(0), cache.capacity(), threads);
  check_positions(cache, 1, cos_.size(0));
  Tensor positions = at::tensor(at::ArrayRef<int64_t>(cache.lengths));
  x_.values.narrow(0, 0, rows_).narrow(1, 0, config_.hidden).copy_(embedded(tokens, positions));
  Tensor logits = at::empty({rows_, head_.weight.rows}, at::kFloat);
  run_team(threads, [&](Team& team) {
    for (size_t l = 0; l < layers_.size(); ++l) layer(l, team, cache);
    head(team, logits);
  });
  for (int64_t& length : cache.lengths) ++length;
  return logits;
}

// The logits [B, V] of what the layers left.
void FusedDecode::head(Team& team, const Tensor& logits) {
  Scratch& scratch = scratch_[static_cast<size_t>(team.rank())];
  norm_rows(final_norm_, scratch);
  auto [from, to] = team.share(head_.weight.rows, kRowMultiple);
  FloatRows y{logits.mutable_data_ptr<float>(), rows_, logits.size(1)};
  kernels_.multiply(head_.weight, from, to, scratch.normed.rows(rows_), y);
}

// [tokens, hidden] float, of any tensor of tokens and their positions [tokens].
Tensor FusedDecode::embedded(const Tensor& tokens, const Tensor& positions) const {
  Tensor x = at::embedding(embedding_, tokens.flatten()).to(at::kFloat);
  if (config_.embedding_norm) {
    Tensor from = x.contiguous();
    x = at::empty_like(from);
    int64_t C = config_.hidden;
    for (int64_t row = 0; row < x.size(0); ++row)
      kernels_.norm(embedding_norm_.kernel, from.const_data_ptr<float>() + row * C, C,
                    x.mutable_data_ptr<float>() + row * C);
  }
  if (positions_.defined())
    x += scaled(positions_.index_select(0, positions).to(at::kFloat), config_.position_scale());
  return scaled(x, config_.embedding_scale());
}

void FusedDecode::layer(size_t l, Team& team, KvCache& cache) {
  const Layer& layer = layers_[l];
  Scratch& scratch = scratch_[static_cast<size_t>(team.rank())];
  FloatRows normed = scratch.normed.rows(rows_);
  norm_rows(layer.attention_norm, scratch);
  project(layer.qkv, team.share(layer.qkv.weight.rows, kRowMultiple), normed, qkv_.rows(rows_));
  if (config_.parallel_residual) {
    if (!config_.tied_norms) norm_rows(layer.mlp_norm, scratch);
    mlp_in(layer, team, scratch);
  }
  team.meet();
  attend(l, team, cache);
  team.meet();
  add_output(layer.dense, team, attended_);
  if (!config_.parallel_residual) {
    team.meet();
    norm_rows(layer.mlp_norm, scratch);
    mlp_in(layer, team, scratch);
    team.meet();
  }
  mlp_out(layer, team, scratch);
  team.meet();
}

// Each thread norms all rows: that takes less time than waiting for another one.
void FusedDecode::norm_rows(const Norm& norm, Scratch& scratch) const {
  FloatRows x = x_.rows(rows_), y = scratch.normed.rows(rows_);
  for (int64_t b = 0; b < rows_; ++b)
    kernels_.norm(norm.kernel, x.data + b * x.stride, config_.hidden, y.data + b * y.stride);
}

void FusedDecode::project(const Linear& linear, Team::Share share, const FloatRows& x,
                          const FloatRows& y) const {
  kernels_.multiply(linear.weight, share.begin, share.end, x, y);
  if (const float* bias = linear.bias.data())
    for (int64_t b = 0; b < x.count; ++b)
      kernels_.add(bias + share.begin, share.end - share.begin,
                   y.data + b * y.stride + share.begin);
}

// Columns of one row. pairs: gate and up, of a gated MLP; else y has the inputs already.
void FusedDecode::activate(const float* pairs, float* y, Team::Share columns) const {
  auto [from, to] = columns;
  if (config_.gated)
    for (int64_t i = from; i < to; ++i) y[i] = pairs[2 * i];
  if (activation_) activation_(y + from, to - from);
  if (config_.gated)
    for (int64_t i = from; i < to; ++i) y[i] *= pairs[2 * i + 1];
}

void FusedDecode::attend(size_t l, Team& team, KvCache& cache) {
  int64_t groups = config_.groups();
  auto [from, to] = team.share(rows_ * groups);
  float* scores = scratch_[static_cast<size_t>(team.rank())].row.rows(1).data;
  auto item = [&](int64_t i) {
    int64_t row = i / groups;
    return Item{row, i % groups, cache.lengths[static_cast<size_t>(row)]};
  };
  for (int64_t i = from; i < to; ++i) {
    const void* next = i + 1 < to ? first_seen(cache.keys[l], item(i + 1)) : nullptr;
    attend_group(l, cache, item(i), next, scores);
  }
}

int64_t FusedDecode::first_position(const Item& item) const {
  return config_.window > 0 ? std::max<int64_t>(0, item.position - config_.window) : 0;
}

const void* FusedDecode::first_seen(const Tensor& keys, const Item& item) const {
  return positions_of(keys, item.row, item.group, first_position(item));
}

// A group of heads {queries, key, value}: queries and key are normed and rotated in place.
void FusedDecode::place_heads(const Layer& layer, float* heads, int64_t position) const {
  int64_t G = config_.group_queries(), D = config_.head_size(), half = cos_.size(1);
  for (int64_t i = 0; i <= G; ++i) {
    float* head = heads + i * D;
    if (config_.qk_norm)
      kernels_.norm((i < G ? layer.query_norm : layer.key_norm).kernel, head, D, head);
    if (half > 0)
      kernels_.rotate(head, cos_.const_data_ptr<float>() + position * half,
                      sin_.const_data_ptr<float>() + position * half, half);
  }
}

void FusedDecode::store_heads(size_t l, const KvCache& cache, const float* heads,
                              const Item& item) const {
  int64_t G = config_.group_queries(), D = config_.head_size();
  auto to = [&](const Tensor& all) {
    return positions_of(all, item.row, item.group, item.position);
  };
  kernels_.store(heads + G * D, D, type_, to(cache.keys[l]));
  kernels_.store(heads + (G + 1) * D, D, type_, to(cache.values[l]));
}

void FusedDecode::attend_group(size_t l, KvCache& cache, const Item& item, const void* next,
                               float* scores) {
  int64_t b = item.row, g = item.group, G = config_.group_queries(), D = config_.head_size();
  FloatRows qkv = qkv_.rows(rows_), out = attended_.rows(rows_);
  float* heads = qkv.data + b * qkv.stride + g * (G + 2) * D;
  place_heads(layers_[l], heads, item.position);
  store_heads(l, cache, heads, item);
  int64_t capacity = cache.capacity();
  CacheAttention a{.q = heads,
                   .queries = G,
                   .q_stride = D,
                   .D = D,
                   .scale = static_cast<float>(config_.score_scale()),
                   .keys = positions_of(cache.keys[l], b, g, 0),
                   .values = positions_of(cache.values[l], b, g, 0),
                   .type = type_,
                   .first = first_position(item),
                   .last = item.position + 1,
                   .next = next,
                   .scores = scores,
                   .out = out.data + b * out.stride + g * G * D};
  if (added_.defined()) {
    a.added = added_.const_data_ptr<float>() + g * G * capacity + capacity - 1 - item.position;
    a.added_stride = capacity;
  }
  kernels_.attend(a);
}

void FusedDecode::add_output(const Linear& linear, Team& team, const Buffer& in) const {
  Team::Share share = team.share(config_.hidden, kRowMultiple);
  project(linear, share, in.rows(rows_), out_.rows(rows_));
  FloatRows x = x_.rows(rows_), y = out_.rows(rows_);
  for (int64_t b = 0; b < rows_; ++b)
    kernels_.add(y.data + b * y.stride + share.begin, share.end - share.begin,
                 x.data + b * x.stride + share.begin);
}

}  // namespace neox
