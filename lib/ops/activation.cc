#include "ops/activation.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "ops/activation_formulas.h"
#include "ops/clones.h"
#include "ops/column_sums.h"
#include "ops/lanes.h"

namespace neox {
namespace {

using namespace lanes;
using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

template <class Element>
struct LaneMath {
  using W = Element;
  [[gnu::always_inline]] static Lanes<W> exp(Lanes<W> x) { return exp_of(x); }
  [[gnu::always_inline]] static Lanes<W> erf(Lanes<W> x) { return erf_of(x); }
  [[gnu::always_inline]] static Lanes<W> inverse(Lanes<W> x) { return W(1) / x; }
};

template <class T>
[[gnu::always_inline]] inline Activated<Lanes<Wide<T>>> activate_lanes(Activation a,
                                                                       Lanes<Wide<T>> x) {
  return activate<LaneMath<Wide<T>>>(a, x);
}

template <class T>
NEOX_CLONES void activate_rows(const ActivationRows& r, int64_t from, int64_t to) {
  const T *x = static_cast<const T*>(r.x), *bias = static_cast<const T*>(r.bias);
  T* out = static_cast<T*>(r.out);
  for (int64_t row = from; row < to; ++row) {
    const T* here = x + row * r.columns;
    T* there = out + row * r.columns;
    for_lanes(
        r.columns, [&](int64_t i, auto part) __attribute__((always_inline)) {
          Lanes<Wide<T>> v = load(here + i, part);
          if (bias) v += load(bias + i, part);
          store(there + i, activate_lanes<T>(r.activation, v).value, part);
        });
  }
}

template <class T>
NEOX_CLONES void gate_rows(const ActivationRows& r, int64_t from, int64_t to) {
  const T *x = static_cast<const T*>(r.x), *bias = static_cast<const T*>(r.bias);
  T* out = static_cast<T*>(r.out);
  for (int64_t row = from; row < to; ++row) {
    const T* here = x + row * 2 * r.columns;
    T* there = out + row * r.columns;
    for_lanes(
        r.columns, [&](int64_t i, auto part) __attribute__((always_inline)) {
          auto v = load_pairs(here + 2 * i, part);
          if (bias) v += load_pairs(bias + 2 * i, part);
          store(there + i, activate_lanes<T>(r.activation, v.first).value * v.second, part);
        });
  }
}

// partial: [columns], to which the rows' gradients of the bias are added; or null.
template <class T>
NEOX_CLONES void activate_gradients(const ActivationRows& r, int64_t from, int64_t to,
                                    Wide<T>* partial) {
  const T *x = static_cast<const T*>(r.x), *bias = static_cast<const T*>(r.bias),
          *dout = static_cast<const T*>(r.dout);
  T* dx = static_cast<T*>(r.dx);
  for (int64_t row = from; row < to; ++row) {
    int64_t start = row * r.columns;
    for_lanes(
        r.columns, [&](int64_t i, auto part) __attribute__((always_inline)) {
          Lanes<Wide<T>> v = load(x + start + i, part);
          if (bias) v += load(bias + i, part);
          v = activate_lanes<T>(r.activation, v).slope * load(dout + start + i, part);
          store(dx + start + i, v, part);
          if (partial) add_to(partial + i, v, part);
        });
  }
}

template <class T>
NEOX_CLONES void gate_gradients(const ActivationRows& r, int64_t from, int64_t to,
                                Wide<T>* partial) {
  const T *x = static_cast<const T*>(r.x), *bias = static_cast<const T*>(r.bias),
          *dout = static_cast<const T*>(r.dout);
  T* dx = static_cast<T*>(r.dx);
  for (int64_t row = from; row < to; ++row) {
    int64_t start = row * r.columns;
    for_lanes(
        r.columns, [&](int64_t i, auto part) __attribute__((always_inline)) {
          auto v = load_pairs(x + 2 * (start + i), part);
          if (bias) v += load_pairs(bias + 2 * i, part);
          auto [value, slope] = activate_lanes<T>(r.activation, v.first);
          Lanes<Wide<T>> d = load(dout + start + i, part);
          Pairs<Wide<T>> dv{slope * v.second * d, value * d};
          store_pairs(dx + 2 * (start + i), dv, part);
          if (!partial) return;
          dv += load_pairs(partial + 2 * i, part);
          store_pairs(partial + 2 * i, dv, part);
        });
  }
}

void activation_cpu(const ActivationRows& r) {
  int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, r.columns));
  with_cpu_type(r.type, [&]<class T>(T*) {
    at::parallel_for(0, r.rows, grain, [&](int64_t from, int64_t to) {
      r.gated ? gate_rows<T>(r, from, to) : activate_rows<T>(r, from, to);
    });
  });
}

void activation_gradient_cpu(const ActivationRows& r) {
  int64_t width = r.gated ? 2 * r.columns : r.columns;
  with_cpu_type(r.type, [&]<class T>(T*) {
    each_row_part(r.rows, r.parts, [&](int64_t from, int64_t to, int64_t p) {
      auto* sums = r.partial ? static_cast<Wide<T>*>(r.partial) + p * width : nullptr;
      r.gated ? gate_gradients<T>(r, from, to, sums) : activate_gradients<T>(r, from, to, sums);
    });
  });
}

ActivationRows rows_of(const Tensor& x, const Tensor& bias, Activation activation, bool gated) {
  int64_t width = x.size(-1), columns = gated ? width / 2 : width;
  check(!bias.defined() || (bias.sizes() == at::IntArrayRef{width} && bias.is_contiguous() &&
                            bias.scalar_type() == x.scalar_type()),
        "activation of ", x.sizes(), " of type ", x.scalar_type(), ": the bias is ",
        bias.defined() ? bias.sizes() : x.sizes());
  ActivationRows r{element_of("activation", x.scalar_type()), activation, gated,
                   x.numel() / std::max<int64_t>(1, width), columns};
  r.x = x.const_data_ptr();
  r.bias = bias.defined() ? bias.const_data_ptr() : nullptr;
  return r;
}

class BiasActivation : public torch::autograd::Function<BiasActivation> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& given,
                        const std::optional<Tensor>& bias, int64_t activation, bool gated) {
    RECORD_FUNCTION("neox::activation", std::vector<c10::IValue>({given}));
    Tensor x = given.contiguous(), b = bias.value_or(Tensor());
    ActivationRows r = rows_of(x, b, static_cast<Activation>(activation), gated);
    auto shape = x.sizes().vec();
    shape.back() = r.columns;
    Tensor y = at::empty(shape, x.options());
    r.out = y.mutable_data_ptr();
    if (r.rows > 0) x.is_cuda() ? activation_cuda(r) : activation_cpu(r);
    context->save_for_backward({x, b});
    context->saved_data["activation"] = activation;
    context->saved_data["gated"] = gated;
    return y;
  }

  static tensor_list backward(AutogradContext* context, tensor_list grad) {
    auto saved = context->get_saved_variables();
    auto activation = static_cast<Activation>(context->saved_data["activation"].toInt());
    auto [dx, dbias] = activation_gradients(grad[0], saved[0], saved[1], activation,
                                            context->saved_data["gated"].toBool());
    return {dx, dbias, {}, {}};
  }
};

}  // namespace

Tensor activated_or_gated(const Tensor& x, const Tensor& bias, Activation activation,
                          bool is_gated) {
  check(!is_gated || x.size(-1) % 2 == 0, "a gated activation takes pairs, not rows of ",
        x.size(-1));
  return BiasActivation::apply(x, std::optional<Tensor>(bias), static_cast<int64_t>(activation),
                               is_gated);
}

Tensor activated(const Tensor& x, const Tensor& bias, Activation activation) {
  return activated_or_gated(x, bias, activation, false);
}

Tensor gated(const Tensor& x, const Tensor& bias, Activation activation) {
  return activated_or_gated(x, bias, activation, true);
}

ActivationGradients activation_gradients(const Tensor& grad, const Tensor& given,
                                         const Tensor& bias, Activation activation, bool gated) {
  RECORD_FUNCTION("neox::activation_gradients", std::vector<c10::IValue>({grad, given}));
  Tensor x = given.contiguous(), dout = grad.contiguous(), dx = at::empty_like(x), partial;
  ActivationRows r = rows_of(x, bias, activation, gated);
  r.parts = x.is_cuda() ? activation_parts_cuda(r.rows, r.columns) : row_parts(r.rows);
  r.dout = dout.const_data_ptr();
  r.dx = dx.mutable_data_ptr();
  if (bias.defined()) {
    partial = part_sums({r.parts, x.size(-1)}, x);
    r.partial = partial.mutable_data_ptr();
  }
  if (r.rows > 0) x.is_cuda() ? activation_gradient_cuda(r) : activation_gradient_cpu(r);
  return {dx, partial.defined() ? sum_of_parts(partial) : partial};
}

}  // namespace neox
