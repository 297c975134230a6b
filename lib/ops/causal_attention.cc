#include "ops/causal_attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "ops/bf16_attention.h"
#include "ops/bf16_product.h"
#include "ops/head_parts.h"
#include "ops/product.h"
#include "ops/softmax_rows.h"

namespace neox {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr int64_t kBlockQueries = 128;  // of a block: with 2048 keys, their scores take 1 MB
constexpr int64_t kBlockKeys = 512;     // of a block of the backward pass

// Of a row of n columns those behind the first `seen` become 0.
void clear_behind(float* row, int64_t seen, int64_t n) {
  if (seen < n) std::memset(row + seen, 0, static_cast<size_t>(n - seen) * sizeof(float));
}

// One head of one sample.
struct Head {
  Tensor q, k, v, out;  // [T, D]
  float* log_sum;       // [T]
  HeadRule rule;
};

struct ScoresRoom {
  Tensor scores;
  ScoresRoom(int64_t T, int64_t)
      : scores(at::empty({std::min(kBlockQueries, T) * T}, at::kFloat)) {}
};

void forward(const Head& head, Range queries, const ScoresRoom& room) {
  int64_t T = head.q.size(0);
  float scale = head.rule.scale();
  for (int64_t from = queries.from; from < queries.end; from += kBlockQueries) {
    int64_t n = std::min(kBlockQueries, T - from), first = head.rule.first_key(from),
            keys = from + n - first;
    Tensor scores = room.scores.narrow(0, 0, n * keys).view({n, keys});
    at::mm_out(scores, head.q.narrow(0, from, n), head.k.narrow(0, first, keys).t());
    auto* row = scores.mutable_data_ptr<float>();
    head.rule.count_distances({row, n, keys, keys, from, first});
    for (int64_t i = 0; i < n; ++i, row += keys) {
      int64_t seen = from + i + 1 - first;
      float top = scale * row_max(row, seen), sum = row_exp(row, seen, scale, top);
      row_multiply(row, seen, 1 / sum);
      clear_behind(row, seen, keys);
      head.log_sum[from + i] = top + std::log(sum);
    }
    Tensor out = head.out.narrow(0, from, n);
    at::mm_out(out, scores, head.v.narrow(0, first, keys));
  }
}

struct HeadGradients {
  Tensor dout, dq, dk, dv;  // [T, D]; dq, dk, dv are added to
};

struct GradientsRoom {
  Tensor p, ds;
  GradientsRoom(int64_t, int64_t)
      : p(at::empty({kBlockQueries * kBlockKeys}, at::kFloat)), ds(at::empty_like(p)) {}
};

// The gradients of some queries, and of the keys of blocks that begin among some.
void backward(const Head& head, const HeadGradients& d, Range queries, Range of_keys,
              const GradientsRoom& room) {
  int64_t T = head.q.size(0), D = head.q.size(1);
  float scale = head.rule.scale();
  const float *out = head.out.const_data_ptr<float>(), *dout = d.dout.const_data_ptr<float>();
  int64_t out_stride = head.out.stride(0), dout_stride = d.dout.stride(0);
  for (int64_t from = 0; from < T; from += kBlockQueries) {
    int64_t n = std::min(kBlockQueries, T - from);
    float dot[kBlockQueries];
    for (int64_t i = 0; i < n; ++i)
      dot[i] = row_dot(out + (from + i) * out_stride, dout + (from + i) * dout_stride, D);
    Tensor q = head.q.narrow(0, from, n), dy = d.dout.narrow(0, from, n);
    int64_t first = head.rule.first_key(from) / kBlockKeys * kBlockKeys;
    for (int64_t key = first; key < from + n; key += kBlockKeys) {
      if (!queries.has(from) && !of_keys.has(key)) continue;
      int64_t keys = std::min(kBlockKeys, from + n - key);
      Tensor p = room.p.narrow(0, 0, n * keys).view({n, keys});
      Tensor ds = room.ds.narrow(0, 0, n * keys).view({n, keys});
      Tensor k = head.k.narrow(0, key, keys), v = head.v.narrow(0, key, keys);
      at::mm_out(p, q, k.t());
      at::mm_out(ds, dy, v.t());
      auto *p_row = p.mutable_data_ptr<float>(), *ds_row = ds.mutable_data_ptr<float>();
      head.rule.count_distances({p_row, n, keys, keys, from, key});
      for (int64_t i = 0; i < n; ++i, p_row += keys, ds_row += keys) {
        int64_t seen = std::clamp<int64_t>(from + i + 1 - key, 0, keys);
        row_exp_backward(p_row, ds_row, seen, scale, head.log_sum[from + i], dot[i]);
        clear_behind(p_row, seen, keys);
        clear_behind(ds_row, seen, keys);
      }
      if (of_keys.has(key)) {
        add_product(d.dv.narrow(0, key, keys), p.t(), dy);
        add_product(d.dk.narrow(0, key, keys), ds.t(), q);
      }
      if (queries.has(from)) add_product(d.dq.narrow(0, from, n), ds, k);
    }
  }
}

// Half types are kept as they are and widened for the computation.
class CausalAttention : public torch::autograd::Function<CausalAttention> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        const ScoreRule& rule) {
    RECORD_FUNCTION("neox::attention", std::vector<c10::IValue>({q, k, v}));
    Tensor wide_q = wide(q), wide_k = wide(k), wide_v = wide(v), out = heads_inside(wide_q);
    int64_t B = q.size(0), H = q.size(1), T = q.size(2);
    Tensor log_sum = at::empty({B, H, T}, wide_q.options());
    each_query_task<ScoresRoom>(
        wide_q, 1, [&](int64_t b, int64_t h, Range queries, ScoresRoom& room) {
          neox::forward(head(wide_q, wide_k, wide_v, out, log_sum, b, h, rule), queries, room);
        });
    out = out.to(q.scalar_type());
    context->save_for_backward({q, k, v, out, log_sum});
    context->saved_data["rule"] = kept(rule);
    return out;
  }

  static tensor_list backward(AutogradContext* context, tensor_list grad) {
    auto s = context->get_saved_variables();
    Tensor q = wide(s[0]), k = wide(s[1]), v = wide(s[2]), out = wide(s[3]), dout = wide(grad[0]);
    if (dout.stride(3) != 1) dout = dout.contiguous();
    Tensor dq = heads_inside(q).zero_(), dk = heads_inside(k).zero_(), dv = heads_inside(v).zero_();
    ScoreRule rule = kept_rule(context->saved_data["rule"]);
    each_gradient_task<GradientsRoom>(
        q, [&](int64_t b, int64_t h, Range queries, Range keys, GradientsRoom& room) {
          neox::backward(head(q, k, v, out, s[4], b, h, rule),
                         {dout[b][h], dq[b][h], dk[b][h], dv[b][h]}, queries, keys, room);
        });
    auto type = s[0].scalar_type();
    return {dq.to(type), dk.to(type), dv.to(type), {}};
  }

 private:
  static Tensor wide(const Tensor& x) { return x.to(at::kFloat); }
  static Head head(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                   const Tensor& log_sum, int64_t b, int64_t h, const ScoreRule& rule) {
    return {q[b][h],          k[b][h], v[b][h], out[b][h], log_sum[b][h].mutable_data_ptr<float>(),
            HeadRule(rule, h)};
  }
};

}  // namespace

bool attends_in_blocks(const at::Device& device, at::ScalarType type) {
  bool by_kernels = type == at::kBFloat16 && bf16_kernels();
  return device.is_cpu() && (type == at::kFloat || by_kernels || multiplied_in_fp32(type));
}

Tensor causal_attention(const Tensor& q, const Tensor& k, const Tensor& v, const ScoreRule& rule) {
  if (bf16_multiplies(q)) return bf16_causal_attention(q, k, v, rule);
  if (attends_in_blocks(q.device(), q.scalar_type())) return CausalAttention::apply(q, k, v, rule);
  check(!rule.counts_distance(), "distances count in blocks only");
  return at::scaled_dot_product_attention(q, k, v, {}, 0.0, true, rule.scale);
}

}  // namespace neox
