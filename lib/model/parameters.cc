#include "model/parameters.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_qr.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "ops/random.h"

namespace neox {
namespace {

double deviation(InitMethod method, const ModelConfig& c) {
  auto L = static_cast<double>(c.layers), h = static_cast<double>(c.hidden);
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
    case InitMethod::kScaledOrthogonal:
      return 1 / std::sqrt(2 * L);
    default:
      return 1;
  }
}

// Calls fill(position, out) for each contiguous run of the box in its global tensor.
template <class Fill>
void for_runs(const Placement& p, float* out, const Fill& fill) {
  int64_t columns = p.shape.back(), width = p.box.extent.back(), rows = p.box.numel() / width;
  check(p.shape.size() <= 2, p.name, ": initial values are for vectors and matrices");
  int64_t first = p.shape.size() == 2 ? p.box.start[0] : 0;
  bool whole_rows = width == columns;
  at::parallel_for(0, rows, std::max<int64_t>(1, 16384 / width), [&](int64_t from, int64_t to) {
    if (whole_rows)
      return fill((first + from) * columns, std::span(out + from * width, out + to * width));
    for (int64_t r = from; r < to; ++r)
      fill((first + r) * columns + p.box.start.back(),
           std::span(out + r * width, out + (r + 1) * width));
  });
}

// The orthogonal factor of the whole matrix of normal values, its signs fixed; every rank computes
// it.
at::Tensor orthogonal(uint64_t key, const Dims& shape) {
  at::Tensor a = at::empty(shape, at::kFloat);
  normal_at(key, 0, {a.mutable_data_ptr<float>(), static_cast<size_t>(a.numel())});
  bool wide = shape[0] < shape[1];
  auto [q, r] = at::linalg_qr(wide ? a.t() : a);
  q = q * r.diagonal().sign();
  return (wide ? q.t() : q).contiguous();
}

at::Tensor initial_values(const Placement& p, InitMethod method, const ModelConfig& config,
                          int64_t seed) {
  uint64_t key = random_key(seed, p.name);
  at::Tensor values = at::empty({p.box.numel()}, at::kFloat);
  auto* out = values.mutable_data_ptr<float>();
  double fan_sum = static_cast<double>(p.shape.front() + p.shape.back());
  switch (method) {
    case InitMethod::kXavierUniform:
      for_runs(p, out, [&](int64_t at, std::span<float> run) { uniform_at(key, at, run); });
      return (values * 2 - 1) * std::sqrt(6 / fan_sum);
    case InitMethod::kOrthogonal:
    case InitMethod::kScaledOrthogonal: {
      at::Tensor all = orthogonal(key, p.shape);
      copy_shared(whole(p.shape), static_cast<const std::byte*>(all.const_data_ptr()), p.box,
                  reinterpret_cast<std::byte*>(out), sizeof(float));
      return values * deviation(method, config);
    }
    default:
      for_runs(p, out, [&](int64_t at, std::span<float> run) { normal_at(key, at, run); });
      return values.mul_(method == InitMethod::kXavierNormal ? std::sqrt(2 / fan_sum)
                                                             : deviation(method, config));
  }
}

}  // namespace

std::vector<ModelParam> layer_params(const ModelConfig& c, int64_t layer) {
  std::string prefix = "layers." + std::to_string(layer) + ".";
  int64_t h = c.hidden, f = c.intermediate;
  using enum InitKind;
  auto norm = [&](const char* name, const char* part, InitKind init) {
    return ModelParam{{prefix + name + part, {h}, std::nullopt, false}, init};
  };
  return {
      norm("input_layernorm", ".weight", kOnes),
      norm("input_layernorm", ".bias", kZeros),
      norm("post_attention_layernorm", ".weight", kOnes),
      norm("post_attention_layernorm", ".bias", kZeros),
      // Rows [head, {q,k,v}, D]: a tp split keeps heads whole.
      {{prefix + "attention.query_key_value.weight", {3 * h, h}, 0, true}, kWeight},
      {{prefix + "attention.query_key_value.bias", {3 * h}, 0, false}, kZeros},
      {{prefix + "attention.dense.weight", {h, h}, 1, true}, kOutputWeight},
      {{prefix + "attention.dense.bias", {h}, std::nullopt, false}, kZeros},
      {{prefix + "mlp.dense_h_to_4h.weight", {f, h}, 0, true}, kWeight},
      {{prefix + "mlp.dense_h_to_4h.bias", {f}, 0, false}, kZeros},
      {{prefix + "mlp.dense_4h_to_h.weight", {h, f}, 1, true}, kOutputWeight},
      {{prefix + "mlp.dense_4h_to_h.bias", {h}, std::nullopt, false}, kZeros},
  };
}

ModelParam embedding_param(const ModelConfig& c) {
  return {{"embed_in.weight", {c.vocab, c.hidden}, 0, true}, InitKind::kWeight};
}

std::vector<ModelParam> final_params(const ModelConfig& c) {
  std::vector<ModelParam> params = {
      {{"final_layer_norm.weight", {c.hidden}, std::nullopt, false}, InitKind::kOnes},
      {{"final_layer_norm.bias", {c.hidden}, std::nullopt, false}, InitKind::kZeros}};
  if (!c.tied_embedding)
    params.push_back({{"embed_out.weight", {c.vocab, c.hidden}, 0, true}, InitKind::kWeight});
  return params;
}

void initialize(ParamBuffer& buffer, const std::vector<ModelParam>& params,
                const ModelConfig& config, int64_t seed) {
  at::NoGradGuard no_grad;
  std::map<std::string, InitKind> kinds;
  for (const ModelParam& p : params) kinds[p.spec.name] = p.init;
  for (const Placement& p : buffer.placements(0, buffer.chunk_size())) {
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
    }
  }
}

std::string architecture(const ModelConfig& c) {
  return concat(c.layers, " layers, hidden ", c.hidden, ", ", c.heads, " heads, intermediate ",
                c.intermediate, ", vocabulary ", c.vocab, c.tied_embedding ? ", tied" : ", untied",
                " embedding, ", c.parallel_residual ? "parallel" : "sequential", " residual, ",
                c.position_embedding == PositionEmbedding::kRotary
                    ? concat("rotary ", c.rotary_pct, " base ", c.rotary_base)
                    : std::string("no positions"),
                ", ", c.activation == Activation::kGeluTanh ? "gelu (tanh)" : "gelu (erf)",
                ", norm eps ", c.norm_eps);
}

}  // namespace neox
