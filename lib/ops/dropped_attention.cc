#include "ops/dropped_attention.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros_like.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>

namespace neox {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;
using Maybe = std::optional<Tensor>;

constexpr double kUnseen = -std::numeric_limits<double>::infinity();

// Elements of a block, of which some five matrices exist at a time: on a CPU what caches hold, on a
// GPU enough for all of it.
constexpr int64_t kCpuBlock = 1 << 18, kGpuBlock = 1 << 24;

// Heads of one sample, and rows of them: whole heads, or some rows of one.
struct HeadBlock {
  int64_t sample, head, heads, row, rows;
  int64_t keys() const { return row + rows; }
};

struct Dropped {
  Tensor q, k, v, mask;  // the first three contiguous
  double scale;
  ProbabilityDropout dropout;
  Tensor future = at::ones({rows(), rows()}, q.options().dtype(at::kBool)).triu(1);

  int64_t heads() const { return q.size(1); }
  int64_t tokens() const { return q.size(2); }
  int64_t elements() const { return q.is_cuda() ? kGpuBlock : kCpuBlock; }
  int64_t rows() const { return std::clamp<int64_t>(elements() / tokens(), 1, tokens()); }

  void each_block(const std::function<void(const HeadBlock&)>& use) const {
    int64_t T = tokens(), R = rows();
    int64_t together = std::clamp<int64_t>(elements() / (T * T), 1, heads());
    for (int64_t b = 0; b < q.size(0); ++b)
      for (int64_t h = 0; h < heads(); h += together)
        for (int64_t t = 0; t < T; t += R)
          use({b, h, std::min(together, heads() - h), t, std::min(R, T - t)});
  }

  // Of [B, H, T, D]: [heads, rows, D].
  static Tensor rows_of(const Tensor& x, const HeadBlock& at) {
    return x[at.sample].narrow(0, at.head, at.heads).narrow(1, at.row, at.rows);
  }
  static Tensor keys_of(const Tensor& x, const HeadBlock& at) {
    return x[at.sample].narrow(0, at.head, at.heads).narrow(1, 0, at.keys());
  }
  // Of a tensor like the mask: [heads or 1, rows, keys].
  static Tensor scores_of(const Tensor& x, const HeadBlock& at) {
    Tensor sample = x[x.size(0) > 1 ? at.sample : 0];
    if (sample.size(0) > 1) sample = sample.narrow(0, at.head, at.heads);
    return sample.narrow(1, at.row, at.rows).narrow(2, 0, at.keys());
  }

  // Multiplied before the product, whose sums could be beyond fp16.
  Tensor queries(const HeadBlock& at) const { return rows_of(q, at) * scale; }

  // [heads, rows, keys], of a type in which sums are formed.
  Tensor probabilities(const HeadBlock& at) const {
    Tensor scores = at::bmm(queries(at), keys_of(k, at).transpose(1, 2));
    if (mask.defined()) {
      scores += scores_of(mask, at);
    } else {  // the keys before these rows are seen by all of them
      Tensor hidden = future.narrow(0, 0, at.rows).narrow(1, 0, at.rows);
      scores.narrow(2, at.row, at.rows).masked_fill_(hidden, kUnseen);
    }
    return at::softmax(scores, -1, at::toOpMathType(q.scalar_type()));
  }

  Tensor dropped(const Tensor& x, const HeadBlock& at) const {
    int64_t T = tokens();
    DropoutSite site = dropout.site;
    site.before = ((at.sample * heads() + at.head) * T + at.row) * T;
    site.per_sample = heads() * T * T;
    site.row = T;
    return neox::dropout(x, dropout.p, site);
  }
};

Tensor dropped_forward(const Dropped& a) {
  Tensor y = at::empty_like(a.q);
  a.each_block([&](const HeadBlock& at) {
    Tensor p = a.probabilities(at).to(a.q.scalar_type());
    Dropped::rows_of(y, at).copy_(at::bmm(a.dropped(p, at), Dropped::keys_of(a.v, at)));
  });
  return y;
}

struct DroppedGradients {
  Tensor q, k, v, mask;  // k, v: in the type of sums, over the blocks of a head
};

void add_dropped_block(const Dropped& a, const HeadBlock& at, const Tensor& dy,
                       const DroppedGradients& to) {
  at::ScalarType type = a.q.scalar_type();
  Tensor p = a.probabilities(at), g = Dropped::rows_of(dy, at);
  Dropped::keys_of(to.v, at) += at::bmm(a.dropped(p.to(type), at).transpose(1, 2), g);
  Tensor dp = a.dropped(at::bmm(g, Dropped::keys_of(a.v, at).transpose(1, 2)), at);
  Tensor ds = at::_softmax_backward_data(dp.to(p.scalar_type()), p, -1, p.scalar_type()).to(type);
  Dropped::rows_of(to.q, at).copy_(at::bmm(ds, Dropped::keys_of(a.k, at)) * a.scale);
  Dropped::keys_of(to.k, at) += at::bmm(ds.transpose(1, 2), a.queries(at));
  if (!to.mask.defined()) return;
  Tensor sum = Dropped::scores_of(to.mask, at);
  sum += sum.size(0) < ds.size(0) ? ds.sum(0, true) : ds;
}

class DroppedAttention : public torch::autograd::Function<DroppedAttention> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Maybe& mask, double scale, double p, const std::vector<int64_t>& site,
                        const Maybe& first_sample) {
    RECORD_FUNCTION("neox::dropped_attention", std::vector<c10::IValue>({q}));
    Dropped a{q.contiguous(), k.contiguous(),
              v.contiguous(), mask.value_or(Tensor()),
              scale,          {p, site_of(site, first_sample.value_or(Tensor()))}};
    context->save_for_backward({a.q, a.k, a.v, a.mask, a.dropout.site.first_sample});
    auto& saved = context->saved_data;
    saved["scale"] = scale;
    saved["p"] = p;
    saved["site"] = site;
    return dropped_forward(a);
  }

  static tensor_list backward(AutogradContext* context, tensor_list grad) {
    auto& saved = context->saved_data;
    tensor_list all = context->get_saved_variables();
    Dropped a{all[0],
              all[1],
              all[2],
              all[3],
              saved["scale"].toDouble(),
              {saved["p"].toDouble(), site_of(saved["site"].toIntVector(), all[4])}};
    auto sums = [&](const Tensor& x) {
      return at::zeros_like(x, x.options().dtype(at::toOpMathType(x.scalar_type())));
    };
    DroppedGradients to{at::empty_like(a.q), sums(a.k), sums(a.v)};
    if (a.mask.defined() && context->needs_input_grad(3)) to.mask = sums(a.mask);
    Tensor dy = grad[0].contiguous();
    a.each_block([&](const HeadBlock& at) { add_dropped_block(a, at, dy, to); });
    auto rounded = [&](const Tensor& x) { return x.defined() ? x.to(a.q.scalar_type()) : x; };
    return {to.q, rounded(to.k), rounded(to.v), rounded(to.mask), {}, {}, {}, {}};
  }
};

}  // namespace

Tensor dropped_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                         double scale, const ProbabilityDropout& dropout) {
  const DropoutSite& site = dropout.site;
  return DroppedAttention::apply(q, k, v, Maybe(mask), scale, dropout.p, numbers_of(site),
                                 Maybe(site.first_sample));
}

}  // namespace neox
