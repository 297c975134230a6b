#include "ops/rotary.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <numbers>

#include "base/error.h"

namespace neox {
namespace {

using at::Tensor;

// One head: (a, b) -> (a cos - b sin, b cos + a sin) for the halves a, b of the first 2 * half
// elements.
template <class T, class Wide>
void rotate_head(T* x, const float* cos, const float* sin, Wide sign, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    Wide c = cos[i], s = sin[i] * sign, a = x[i], b = x[i + half];
    x[i] = static_cast<T>(a * c - b * s);
    x[i + half] = static_cast<T>(b * c + a * s);
  }
}

void rotate_cpu(const Tensor& qkv, const Tensor& cos, const Tensor& sin, double sign) {
  int64_t T = qkv.size(1), G = qkv.size(2), parts = qkv.size(3), D = qkv.size(4),
          half = cos.size(1), rows = cos.size(0);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, qkv.scalar_type(), "rotary", [&] {
    using Wide = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
    auto* data = qkv.mutable_data_ptr<scalar_t>();
    const float *c = cos.const_data_ptr<float>(), *s = sin.const_data_ptr<float>();
    at::parallel_for(0, qkv.size(0) * T, 64, [&](int64_t from, int64_t to) {
      for (int64_t row = from; row < to; ++row)
        for (int64_t g = 0; g < G; ++g)
          for (int64_t part = 0; part < parts - 1; ++part)
            rotate_head<scalar_t, Wide>(data + ((row * G + g) * parts + part) * D,
                                        c + row % rows * half, s + row % rows * half,
                                        static_cast<Wide>(sign), half);
    });
  });
}

void rotate_aten(const Tensor& qkv, const Tensor& cos, const Tensor& sin, double sign) {
  int64_t T = qkv.size(1), half = cos.size(1);
  Tensor qk = qkv.narrow(3, 0, qkv.size(3) - 1);
  Tensor a = qk.narrow(4, 0, half).clone(), b = qk.narrow(4, half, half).clone();
  Tensor c = cos.view({-1, T, 1, 1, half}), s = (sin * sign).view({-1, T, 1, 1, half});
  qk.narrow(4, 0, half).copy_(a * c - b * s);
  qk.narrow(4, half, half).copy_(b * c + a * s);
}

Tensor per_head(const Tensor& qkv, HeadGroups heads) {
  return qkv.view({qkv.size(0), qkv.size(1), heads.groups, heads.queries + 2, -1});
}

void rotate(const Tensor& qkv, const Tensor& cos, const Tensor& sin, double sign) {
  if (qkv.is_cpu())
    rotate_cpu(qkv, cos, sin, sign);
  else
    rotate_aten(qkv, cos, sin, sign);
}

class Rotary : public torch::autograd::Function<Rotary> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, Tensor qkv, HeadGroups heads,
                        Tensor cos, Tensor sin) {
    rotate(per_head(qkv, heads), cos, sin, 1);
    context->mark_dirty({qkv});
    context->saved_data["groups"] = heads.groups;
    context->saved_data["queries"] = heads.queries;
    context->saved_data["cos"] = cos;
    context->saved_data["sin"] = sin;
    return qkv;
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list grad) {
    Tensor d = grad[0].clone(at::MemoryFormat::Contiguous);
    HeadGroups heads{context->saved_data["groups"].toInt(), context->saved_data["queries"].toInt()};
    rotate(per_head(d, heads), context->saved_data["cos"].toTensor(),
           context->saved_data["sin"].toTensor(), -1);
    return {d, {}, {}, {}};
  }
};

// The share of a frequency that stays grows from 0 at `low` waves in the original context to 1 at
// `high`.
Tensor stretched(const Tensor& frequency, const RotaryAngles& a) {
  if (a.factor == 1) return frequency;
  Tensor wavelength = 2 * std::numbers::pi / frequency;
  Tensor kept =
      ((static_cast<double>(a.original) / wavelength - a.low) / (a.high - a.low)).clamp(0, 1);
  return (1 - kept) * frequency / a.factor + kept * frequency;
}

}  // namespace

RotaryTable rotary_table(int64_t positions, const RotaryAngles& a, at::Device device) {
  if (a.rotary == 0) {
    Tensor none = at::zeros({positions, 0}, device);
    return {none, none};
  }
  Tensor exponent = at::arange(0, a.rotary, 2, at::kFloat) / static_cast<double>(a.rotary);
  Tensor frequency = stretched(at::pow(a.base, exponent).reciprocal(), a);
  Tensor angle = at::outer(at::arange(positions, at::kFloat), frequency);
  return {angle.cos().to(device), angle.sin().to(device)};
}

RotaryTable rows_at(const RotaryTable& table, const Tensor& positions) {
  Tensor at = positions.flatten();
  return {table.cos.index_select(0, at), table.sin.index_select(0, at)};
}

Tensor rotate_positions_(Tensor qkv, HeadGroups heads, const RotaryTable& table,
                         int64_t first_position) {
  if (table.cos.size(1) == 0) return qkv;
  int64_t T = qkv.size(1);
  check(first_position + T <= table.cos.size(0), "positions ", first_position, "..",
        first_position + T, " are beyond the ", table.cos.size(0),
        " that the model has (max_position_embeddings)");
  return rotate_rows_(
      qkv, heads, {table.cos.narrow(0, first_position, T), table.sin.narrow(0, first_position, T)});
}

Tensor rotate_rows_(Tensor qkv, HeadGroups heads, const RotaryTable& rows) {
  if (rows.cos.size(1) == 0) return qkv;
  check(qkv.is_contiguous(), "the rotary embedding takes a contiguous tensor");
  return Rotary::apply(qkv, heads, rows.cos, rows.sin);
}

}  // namespace neox
