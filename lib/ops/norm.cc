#include "ops/norm.h"

#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "ops/column_sums.h"
#include "ops/norm_cpu.h"

namespace neox {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;
using Maybe = std::optional<Tensor>;

void norm_cpu(const NormRows& r) {
  int64_t grain = std::max<int64_t>(1, 32768 / std::max<int64_t>(1, r.columns));
  auto rows = [&]<class T>(T*) {
    at::parallel_for(0, r.rows, grain,
                     [&](int64_t from, int64_t to) { norm_rows<T>(r, from, to); });
  };
  with_cpu_type(r.type, rows);
}

void norm_gradient_cpu(const NormGradientRows& r) {
  auto rows = [&]<class T>(T*) {
    auto work = r.norms > 0 ? norm_gradient_rows<T> : bias_gradient_rows<T>;
    each_row_part(r.rows, r.parts, [&](int64_t from, int64_t to, int64_t p) {
      work(r, from, to, static_cast<Wide<T>*>(r.partial) + p * r.sums * r.columns);
    });
  };
  with_cpu_type(r.type, rows);
}

at::TensorOptions statistics_options(const Tensor& x) {
  return x.options().dtype(at::toOpMathType(x.scalar_type()));
}

const void* data(const Tensor& t) { return t.defined() ? t.const_data_ptr() : nullptr; }

void check_vector(const char* what, const Tensor& t, const Tensor& x) {
  if (!t.defined()) return;
  check(t.scalar_type() == x.scalar_type() && t.dim() == 1 && t.size(0) == x.size(-1) &&
            t.is_contiguous(),
        "norm of ", x.sizes(), " of type ", x.scalar_type(), ": ", what, " is ", t.sizes(),
        " of type ", t.scalar_type());
}

// x, what is added to it, then weight and bias of each norm.
struct NormInputs {
  Tensor x, added, added2, bias, weight[2], offset[2];
  int norms() const { return weight[0].defined() + weight[1].defined(); }
  bool sums() const { return added.defined() || bias.defined(); }
  void check_shapes() const {
    for (const Tensor& t : {added, added2})
      check(!t.defined() || (t.sizes() == x.sizes() && t.scalar_type() == x.scalar_type()),
            "norm of a sum of ", x.sizes(), " and ", t.defined() ? t.sizes() : x.sizes());
    check(added.defined() || !added2.defined(), "norm of a sum: the second branch without a first");
    check_vector("the added bias", bias, x);
    for (int n = 0; n < 2; ++n) {
      check_vector("the weight", weight[n], x);
      check_vector("the bias", offset[n], x);
    }
  }
};

class Norms : public torch::autograd::Function<Norms> {
 public:
  // The sum and each norm.
  static tensor_list forward(AutogradContext* context, const Tensor& x, const Maybe& added,
                             const Maybe& added2, const Maybe& bias, const Maybe& weight,
                             const Maybe& offset, const Maybe& weight2, const Maybe& offset2,
                             bool rms, double eps) {
    RECORD_FUNCTION("neox::norms", std::vector<c10::IValue>({x}));
    auto or_none = [](const Maybe& t) { return t.value_or(Tensor()); };
    NormInputs in{x.contiguous(),
                  or_none(added),
                  or_none(added2),
                  or_none(bias),
                  {or_none(weight), or_none(weight2)},
                  {or_none(offset), or_none(offset2)}};
    for (Tensor* t : {&in.added, &in.added2})
      if (t->defined()) *t = t->contiguous();
    in.check_shapes();
    NormRows r = rows_of(in, rms, eps);
    tensor_list out{in.sums() ? at::empty_like(in.x) : x.view_as(x)};
    if (in.sums()) r.sum = out[0].mutable_data_ptr();
    for (int n = 0; n < r.norms; ++n)
      r.out[n] = out.emplace_back(at::empty_like(in.x)).mutable_data_ptr();
    Tensor mean = at::empty({r.rows}, statistics_options(x)), scale = at::empty_like(mean);
    r.mean = mean.mutable_data_ptr();
    r.scale = scale.mutable_data_ptr();
    if (r.rows > 0) x.is_cuda() ? norm_cuda(r) : norm_cpu(r);
    context->set_materialize_grads(false);
    if (r.norms > 0)
      context->save_for_backward(
          {in.sums() ? out[0] : in.x, mean, scale, in.weight[0], in.weight[1]});
    auto& saved = context->saved_data;
    saved["rms"] = rms;
    saved["added"] = in.added.defined();
    saved["added2"] = in.added2.defined();
    saved["bias"] = in.bias.defined();
    saved["offset"] = in.offset[0].defined();
    saved["offset2"] = in.offset[1].defined();
    return out;
  }

  static tensor_list backward(AutogradContext* context, tensor_list grad) {
    auto saved = context->get_saved_variables();
    auto has = [&](const char* name) { return context->saved_data[name].toBool(); };
    for (Tensor& g : grad)
      if (g.defined()) g = g.contiguous();
    NormGradientRows r = gradient_rows(saved, grad, has("rms"), has("bias"));
    const Tensor& like = saved.empty() ? grad[0] : saved[0];
    Tensor dx = saved.empty() ? grad[0] : at::empty_like(like);
    Tensor partial = part_sums({r.parts, r.sums, r.columns}, like);
    r.dx = dx.mutable_data_ptr();
    r.partial = partial.mutable_data_ptr();
    if (r.rows > 0 && r.sums > 0) like.is_cuda() ? norm_gradient_cuda(r) : norm_gradient_cpu(r);
    Tensor sums = sum_of_parts(partial);
    auto sum_if = [&](bool given, int64_t i) { return given ? sums[i] : Tensor(); };
    return {dx,
            has("added") ? dx : Tensor(),
            has("added2") ? dx : Tensor(),
            sum_if(has("bias"), r.sums - 1),
            sum_if(r.norms > 0, 0),
            sum_if(has("offset"), 1),
            sum_if(r.norms > 1, 2),
            sum_if(has("offset2"), 3),
            {},
            {}};
  }

 private:
  static NormRows rows_of(const NormInputs& in, bool rms, double eps) {
    int64_t columns = in.x.size(-1);
    NormRows r{element_of("norm", in.x.scalar_type()),
               in.x.numel() / columns,
               columns,
               {rms ? Norm::kRmsNorm : Norm::kLayerNorm, eps},
               in.norms(),
               data(in.x),
               data(in.added),
               data(in.added2),
               data(in.bias)};
    for (int n = 0; n < 2; ++n) {
      r.weight[n] = data(in.weight[n]);
      r.offset[n] = data(in.offset[n]);
    }
    return r;
  }

  static NormGradientRows gradient_rows(const tensor_list& saved, const tensor_list& grad, bool rms,
                                        bool bias) {
    const Tensor& like = saved.empty() ? grad[0] : saved[0];
    int64_t columns = like.size(-1), rows = like.numel() / columns;
    NormGradientRows r{element_of("norm", like.scalar_type()), rows, columns,
                       like.is_cuda() ? norm_parts_cuda(rows, columns) : row_parts(rows)};
    r.kind = rms ? Norm::kRmsNorm : Norm::kLayerNorm;
    r.norms = saved.empty() ? 0 : saved[4].defined() ? 2 : 1;
    r.sums = 2 * r.norms + bias;
    r.dsum = data(grad[0]);
    if (r.norms == 0) return r;
    r.sum = data(saved[0]);
    r.mean = data(saved[1]);
    r.scale = data(saved[2]);
    for (int n = 0; n < r.norms; ++n) {
      r.weight[n] = data(saved[static_cast<size_t>(3 + n)]);
      r.dout[n] = data(grad[static_cast<size_t>(1 + n)]);
    }
    return r;
  }
};

}  // namespace

Tensor norm(const Tensor& x, const NormWeight& weight, const NormOptions& options) {
  return add_norms({x}, weight, {}, options).first;
}

Tensor total(const ResidualSum& sum) {
  if (!sum.added.defined() && !sum.added2.defined() && !sum.bias.defined()) return sum.x;
  return add_norms(sum, {}, {}, {}).sum;
}

SumAndNorms add_norms(const ResidualSum& sum, const NormWeight& first, const NormWeight& second,
                      const NormOptions& options) {
  tensor_list out = Norms::apply(sum.x, Maybe(sum.added), Maybe(sum.added2), Maybe(sum.bias),
                                 Maybe(first.weight), Maybe(first.bias), Maybe(second.weight),
                                 Maybe(second.bias), options.kind == Norm::kRmsNorm, options.eps);
  auto or_none = [&](size_t i) { return i < out.size() ? out[i] : Tensor(); };
  return {out[0], or_none(1), or_none(2)};
}

}  // namespace neox
