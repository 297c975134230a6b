#include "ops/experts.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "base/error.h"
#include "ops/activation.h"
#include "ops/leaf_gradient.h"
#include "ops/product.h"

namespace neox {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// Which expert's row is which: row i of the sorted ones is row order[i] / k of the given.
struct Sorted {
  Tensor order;                 // [M k] int64, a permutation of experts, flat
  std::vector<int64_t> starts;  // [E + 1]: expert e has sorted rows starts[e] to starts[e + 1]
  int64_t k;
};

Sorted sorted_by_expert(const Tensor& experts, int64_t E) {
  Tensor flat = experts.flatten(), order = at::argsort(flat, /*stable=*/true, 0, false);
  Tensor ends = at::searchsorted(flat.index_select(0, order), at::arange(E + 1, flat.options()));
  ends = ends.cpu();
  const int64_t* first = ends.const_data_ptr<int64_t>();
  return {order, {first, first + E + 1}, experts.size(1)};
}

Tensor sort_rows(const Tensor& x, const Sorted& s) {
  return x.index_select(0, s.k == 1 ? s.order : s.order.div(s.k, "floor"));
}

// The sums of the k sorted rows that belong to a row.
Tensor unsorted_sum(const Tensor& rows, const Sorted& s) {
  Tensor place = at::empty_like(s.order);
  place.scatter_(0, s.order, at::arange(s.order.numel(), s.order.options()));
  Tensor all = rows.index_select(0, place);
  return s.k == 1 ? all : all.view({-1, s.k, rows.size(1)}).sum(1);
}

// run(e, from, rows) for each expert that has rows.
template <class Run>
void each_expert(const Sorted& s, const Run& run) {
  for (size_t e = 0; e + 1 < s.starts.size(); ++e)
    if (int64_t n = s.starts[e + 1] - s.starts[e]) run(static_cast<int64_t>(e), s.starts[e], n);
}

// x_e w_e^T for each expert, or x_e w_e: x [M k, K], w [E, N, K] or [E, K, N].
Tensor products(const Tensor& x, const Tensor& w, bool transposed, const Sorted& s) {
  at::ScalarType type = type_of_product(x);
  Tensor a = x.to(type), b = w.to(type);
  Tensor y = at::empty({x.size(0), w.size(transposed ? 1 : 2)}, a.options());
  each_expert(s, [&](int64_t e, int64_t from, int64_t n) {
    product_out(y.narrow(0, from, n), a.narrow(0, from, n), transposed ? b[e] : b[e].t());
  });
  return y.to(x.scalar_type());
}

// Of w [E, N, K] from dy [M k, N] and x [M k, K]; undefined where it has been added already.
Tensor weight_gradients(const Tensor& dy, const Tensor& x, const Tensor& w, const Sorted& s) {
  at::ScalarType type = type_of_product(x), sums = at::toOpMathType(type);
  Tensor kept = kept_gradient(w, sums), a = dy.to(type), b = x.to(type);
  Tensor dw = kept.defined() ? kept : at::zeros(w.sizes(), w.options().dtype(sums));
  each_expert(s, [&](int64_t e, int64_t from, int64_t n) {
    add_product(dw[e], a.narrow(0, from, n).t(), b.narrow(0, from, n));
  });
  if (kept.defined()) return {};
  return dw.to(w.grad_dtype().value_or(w.scalar_type()));
}

// Keeps x and the experts' first products; sorted and activated rows are made again in backward.
// The gradient of a weight is that of the activated rows times these, so results are not kept.
class ExpertMlps : public torch::autograd::Function<ExpertMlps> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& experts,
                        const Tensor& weights, const Tensor& in, const Tensor& out,
                        int64_t activation, bool is_gated) {
    Sorted s = sorted_by_expert(experts, in.size(0));
    Tensor inner = products(sort_rows(x, s), in, true, s);
    context->save_for_backward({x, weights, in, out, inner, s.order});
    context->saved_data["starts"] = s.starts;
    context->saved_data["activation"] = activation;
    context->saved_data["gated"] = is_gated;
    Tensor rows = activated_or_gated(inner, {}, static_cast<Activation>(activation), is_gated);
    rows.mul_(sorted_weights(weights, s));
    return unsorted_sum(products(rows, out, true, s), s);
  }

  static tensor_list backward(AutogradContext* context, tensor_list grad) {
    at::NoGradGuard no_grad;
    auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weights = saved[1], &in = saved[2], &out = saved[3],
                 &inner = saved[4];
    Sorted s{saved[5], context->saved_data["starts"].toIntVector(), weights.size(1)};
    auto activation = static_cast<Activation>(context->saved_data["activation"].toInt());
    bool is_gated = context->saved_data["gated"].toBool();
    Tensor dy = sort_rows(grad[0], s), weight = sorted_weights(weights, s),
           rows = activated_or_gated(inner, {}, activation, is_gated),
           drows = products(dy, out, false, s);
    Tensor dweights = at::empty_like(weights);
    dweights.view({-1}).scatter_(0, s.order, (drows.to(weights.scalar_type()) * rows).sum(1));
    Tensor dout = weight_gradients(dy, rows.mul_(weight), out, s);
    Tensor dinner = activation_gradients(drows.mul_(weight), inner, {}, activation, is_gated).x;
    Tensor din = weight_gradients(dinner, sort_rows(x, s), in, s);
    Tensor dx = unsorted_sum(products(dinner, in, false, s), s);
    return {dx, {}, dweights, din, dout, {}, {}};
  }

 private:
  static Tensor sorted_weights(const Tensor& weights, const Sorted& s) {
    return weights.flatten().index_select(0, s.order).unsqueeze(1);
  }
};

}  // namespace

Tensor expert_mlps(const Tensor& x, const Routes& routes, const Tensor& in, const Tensor& out,
                   Activation activation, bool is_gated) {
  check(x.dim() == 2 && routes.experts.sizes() == routes.weights.sizes() &&
            routes.experts.size(0) == x.size(0),
        "experts of rows ", x.sizes(), ": routes are ", routes.experts.sizes(), ", weights ",
        routes.weights.sizes());
  return ExpertMlps::apply(x, routes.experts, routes.weights.contiguous(), in, out,
                           static_cast<int64_t>(activation), is_gated);
}

}  // namespace neox
