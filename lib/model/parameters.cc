#include "model/parameters.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/tensor.h>

#include <bit>
#include <cmath>
#include <map>

#include "base/error.h"
#include "ops/random.h"

namespace neox {
namespace {

double width_of(const ModelConfig& c) { return c.mup ? c.mup->width : 1; }

bool layer_matrix(const Placement& p) { return p.name.starts_with("layers."); }

// The sum of both sides, of the narrow model.
double fan_sum(const Placement& p, const ModelConfig& c) {
  auto rows = static_cast<double>(p.shape.end()[-2]), columns = static_cast<double>(p.shape.back());
  if (layer_matrix(p)) return (rows + columns) / width_of(c);
  return rows + (p.shape.back() == c.hidden ? columns / width_of(c) : columns);
}

// Of the narrow model; of uniform values the greatest.
double narrow_deviation(const Placement& p, InitMethod method, const ModelConfig& c) {
  auto L = static_cast<double>(c.layers), h = static_cast<double>(c.hidden) / width_of(c);
  switch (method) {
    case InitMethod::kNormal:
      return c.init_std;
    case InitMethod::kScaledNormal:
      return c.init_std / std::sqrt(2 * L);
    case InitMethod::kSingleResidualScaledNormal:
      return c.init_std / std::sqrt(L);
    case InitMethod::kSmallInit:
      return std::sqrt(2 / (5 * h));
    case InitMethod::kWangInit:
      return 2 / (L * std::sqrt(h));
    case InitMethod::kOrthogonal:
      return std::sqrt(2.0);
    case InitMethod::kScaledOrthogonal:
      return std::sqrt(2 / L);
    case InitMethod::kXavierUniform:
      return std::sqrt(6 / fan_sum(p, c));
    case InitMethod::kXavierNormal:
      return std::sqrt(2 / fan_sum(p, c));
  }
  return 1;
}

// With muP matrices of layers, whose both sides grow, deviate by the root of the width less than
// the narrow model's, and all else as there (mup.init, version 1.0).
double deviation(const Placement& p, InitMethod method, const ModelConfig& c) {
  double narrow = narrow_deviation(p, method, c) * (c.mup ? c.mup->init_scale : 1);
  return layer_matrix(p) ? narrow / std::sqrt(width_of(c)) : narrow;
}

// Calls fill(position, out) for each contiguous run of the box in its global tensor.
template <class Fill>
void for_runs(const Placement& p, float* out, const Fill& fill) {
  size_t dims = p.shape.size();
  int64_t columns = p.shape.back(), width = p.box.extent.back(), rows = p.box.numel() / width;
  check(dims <= 3, p.name, ": initial values are for vectors, matrices and stacks of matrices");
  auto dim = [&](const Dims& d, size_t from_last, int64_t absent) {
    return dims >= from_last ? d[dims - from_last] : absent;
  };
  int64_t matrix = dim(p.shape, 2, 1), height = dim(p.box.extent, 2, 1);  // rows: all, in the box
  int64_t first = dim(p.box.start, 3, 0) * matrix + dim(p.box.start, 2, 0);
  bool whole_rows = width == columns && (height == matrix || rows == height);
  at::parallel_for(0, rows, std::max<int64_t>(1, 16384 / width), [&](int64_t from, int64_t to) {
    if (whole_rows)
      return fill((first + from) * columns, std::span(out + from * width, out + to * width));
    for (int64_t r = from; r < to; ++r)
      fill((first + r / height * matrix + r % height) * columns + p.box.start.back(),
           std::span(out + r * width, out + (r + 1) * width));
  });
}

// The orthogonal factor of the whole matrix of normal values, or of each of a stack, its signs
// fixed; every rank computes it. In double, since its last bits depend on the number of threads,
// and replicas must begin alike.
at::Tensor orthogonal(uint64_t key, const Dims& shape) {
  at::Tensor a = at::empty(shape, at::kFloat);
  normal_at(key, 0, {a.mutable_data_ptr<float>(), static_cast<size_t>(a.numel())});
  bool wide = shape.end()[-2] < shape.back();
  a = a.to(at::kDouble);
  auto [q, r] = at::linalg_qr(wide ? a.mT() : a);
  q = q * r.diagonal(0, -2, -1).sign().unsqueeze(-2);
  return (wide ? q.mT() : q).to(at::kFloat).contiguous();
}

at::Tensor initial_values(const Placement& p, InitMethod method, const ModelConfig& config,
                          int64_t seed) {
  uint64_t key = random_key(seed, p.name);
  at::Tensor values = at::empty({p.box.numel()}, at::kFloat);
  auto* out = values.mutable_data_ptr<float>();
  double scale = deviation(p, method, config);
  switch (method) {
    case InitMethod::kXavierUniform:
      for_runs(p, out, [&](int64_t at, std::span<float> run) { uniform_at(key, at, run); });
      return (values * 2 - 1) * scale;
    case InitMethod::kOrthogonal:
    case InitMethod::kScaledOrthogonal: {
      at::Tensor all = orthogonal(key, p.shape);
      copy_shared(whole(p.shape), static_cast<const std::byte*>(all.const_data_ptr()), p.box,
                  reinterpret_cast<std::byte*>(out), sizeof(float));
      return values * scale;
    }
    default:
      for_runs(p, out, [&](int64_t at, std::span<float> run) { normal_at(key, at, run); });
      return values.mul_(scale);
  }
}

}  // namespace

namespace {

using enum InitKind;

// A norm over `size` values: a weight and a bias, where that kind of norm has them.
void add_norm(std::vector<ModelParam>& params, const ModelConfig& c, const std::string& name,
              int64_t size) {
  int64_t weights = c.norm_weight_count(size);
  if (weights > 0) params.push_back({{name + ".weight", {weights}, std::nullopt, false}, kOnes});
  if (c.has_norm_bias()) params.push_back({{name + ".bias", {size}, std::nullopt, false}, kZeros});
}

// The two matrices of attention or MLP: `in` and `out` say their names, `width` rows of the one and
// `inner` columns of the other are split.
struct Branch {
  std::string in, out;
  int64_t width, inner;
  bool in_bias, out_bias;
};

void add_branch(std::vector<ModelParam>& params, const Branch& b, int64_t h) {
  params.push_back({{b.in + ".weight", {b.width, h}, 0, true}, kWeight});
  if (b.in_bias) params.push_back({{b.in + ".bias", {b.width}, 0, false}, kZeros});
  params.push_back({{b.out + ".weight", {h, b.inner}, 1, true}, kOutputWeight});
  if (b.out_bias) params.push_back({{b.out + ".bias", {h}, std::nullopt, false}, kZeros});
}

// The router's rows, and each expert's two matrices.
void add_experts(std::vector<ModelParam>& params, const std::string& mlp, const ModelConfig& c) {
  int64_t n = c.moe->experts, h = c.hidden, inner = c.moe->intermediate;
  params.push_back({{mlp + "router.weight", {n, h}, std::nullopt, true}, kWeight});
  params.push_back(
      {{mlp + "experts.dense_h_to_4h.weight", {n, c.expert_inputs(), h}, 1, true}, kWeight});
  params.push_back({{mlp + "experts.dense_4h_to_h.weight", {n, h, inner}, 2, true}, kOutputWeight});
}

}  // namespace

std::vector<ModelParam> layer_params(const ModelConfig& c, int64_t layer) {
  std::string prefix = "layers." + std::to_string(layer) + ".", attention = prefix + "attention.",
              mlp = prefix + "mlp.";
  int64_t h = c.hidden, D = c.head_size();
  std::vector<ModelParam> params;
  add_norm(params, c, prefix + "input_layernorm", h);
  if (!c.tied_norms) add_norm(params, c, prefix + "post_attention_layernorm", h);
  if (c.qk_norm)
    for (const char* name : {"query_layernorm", "key_layernorm"})
      add_norm(params, c, attention + name, D);
  add_branch(
      params,
      {attention + "query_key_value", attention + "dense", c.head_columns() + 2 * c.groups() * D,
       c.head_columns(), c.has_qkv_bias(), c.attention_bias},
      h);
  if (c.has_experts(layer))
    add_experts(params, mlp, c);
  else
    add_branch(params,
               {mlp + "dense_h_to_4h", mlp + "dense_4h_to_h", c.mlp_inputs(), c.intermediate,
                c.mlp_bias, c.mlp_bias},
               h);
  return params;
}

ModelParam embedding_param(const ModelConfig& c) {
  return {{"embed_in.weight", {c.vocab, c.hidden}, 0, true}, kWeight};
}

std::vector<ModelParam> embedding_norm_params(const ModelConfig& c) {
  std::vector<ModelParam> params;
  if (c.embedding_norm) add_norm(params, c, "embed_layernorm", c.hidden);
  return params;
}

std::vector<ModelParam> position_params(const ModelConfig& c) {
  if (c.position_embedding != PositionEmbedding::kLearned) return {};
  return {{{"embed_positions.weight", {c.positions, c.hidden}, std::nullopt, true}, kWeight}};
}

std::vector<ModelParam> distance_params(const ModelConfig& c) {
  if (c.position_embedding != PositionEmbedding::kRelative) return {};
  return {{{"relative_attention_bias.weight", {c.rpe_buckets, c.heads}, 1, true}, kXavierNormal}};
}

std::vector<ModelParam> final_params(const ModelConfig& c) {
  std::vector<ModelParam> params;
  add_norm(params, c, "final_layer_norm", c.hidden);
  if (c.scores)
    params.push_back({{kScoreName, {1, c.hidden}, 1, true}, kWeight});
  else if (!c.tied_embedding)
    params.push_back({{"embed_out.weight", {c.vocab, c.hidden}, 0, true}, kWeight});
  return params;
}

void initialize(ParamBuffer& buffer, const std::vector<ModelParam>& params,
                const ModelConfig& config, int64_t seed) {
  at::NoGradGuard no_grad;
  std::map<std::string, InitKind> kinds;
  for (const ModelParam& p : params) kinds[p.spec.name] = p.init;
  for (const Placement& p : buffer.placements()) {
    at::Tensor to = buffer.master().narrow(0, p.offset, p.box.numel());
    switch (kinds.at(p.name)) {
      case InitKind::kZeros:
        to.zero_();
        break;
      case InitKind::kOnes:
        to.fill_(1);
        break;
      case InitKind::kWeight:
        to.copy_(initial_values(p, config.init_method, config, seed));
        break;
      case InitKind::kOutputWeight:
        to.copy_(initial_values(p, config.output_init_method, config, seed));
        break;
      case InitKind::kXavierNormal:
        to.copy_(initial_values(p, InitMethod::kXavierNormal, config, seed));
        break;
    }
  }
}

std::vector<ParamSpec> parameters(const ModelConfig& config) {
  std::vector<ParamSpec> specs = {embedding_param(config).spec};
  auto add = [&](const std::vector<ModelParam>& params) {
    for (const ModelParam& p : params) specs.push_back(p.spec);
  };
  add(embedding_norm_params(config));
  add(position_params(config));
  add(distance_params(config));
  for (int64_t layer = 0; layer < config.layers; ++layer) add(layer_params(config, layer));
  add(final_params(config));
  return specs;
}

at::Tensor alibi_slopes(int64_t heads) {
  std::vector<double> slopes;
  auto add = [&](int64_t n, int64_t from, int64_t by) {
    for (int64_t i = from; i < n && std::ssize(slopes) < heads; i += by)
      slopes.push_back(std::exp2(-8.0 * static_cast<double>(i + 1) / static_cast<double>(n)));
  };
  auto below = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  add(below, 0, 1);
  add(2 * below, 0, 2);
  return at::tensor(slopes, at::kDouble);
}

}  // namespace neox
