// Steps of one token at Pythia's shapes: the layers' products and attention, each alone and all
// together, and the choice of the next token, recorded as CUDA graphs, beside the same made of
// ATen's operations.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include "kernel_timing.h"
#include "model/graphs.h"
#include "ops/cached_attention.h"
#include "ops/next_tokens.h"
#include "ops/row_products.h"

namespace neox {
namespace {

using at::Tensor;

constexpr int64_t kSeen = 1024, kVocab = 50304;  // keys, and logits of a row

struct Layer {
  NormWeight first, second;
  Tensor qkv, qkv_bias, in, in_bias, dense, dense_bias, out, out_bias, keys, values;
};

class Decoding {
 public:
  Decoding(const KernelSetting& s, int64_t rows) : s_(s), rows_(rows) {
    int64_t h = s.shape.hidden, H = s.shape.heads;
    auto matrix = [&](int64_t N, int64_t C) { return s.random({N, C}) * 0.02; };
    auto vector = [&](int64_t N) { return s.random({N}); };
    for (int64_t l = 0; l < s.shape.layers; ++l)
      layers_.push_back({{vector(h), vector(h)},
                         {vector(h), vector(h)},
                         matrix(3 * h, h),
                         vector(3 * h),
                         matrix(4 * h, h),
                         vector(4 * h),
                         matrix(h, h),
                         vector(h),
                         matrix(h, 4 * h),
                         vector(h),
                         s.random({rows, H, kSeen, h / H}),
                         s.random({rows, H, kSeen, h / H})});
    x_ = s.random({rows, h});
    heads_ = s.random({rows, 3 * h});
    inner_ = s.random({rows, 4 * h});
    table_ = rotary_table(kSeen, {.rotary = h / H / 4}, s.options.device());
    lengths_ = at::full({rows}, kSeen - 1, s.options.dtype(at::kLong));
    arrived_ = at::zeros({rows * H}, s.options.dtype(at::kInt));
    logits_ = s.random({rows, kVocab});
  }

  void run() {
    auto h = static_cast<double>(s_.shape.hidden), keys = static_cast<double>(2 * rows_ * kSeen);
    using Many = std::vector<Tensor>;
    time("products in", "ours", 7 * h * h, [this](const Layer& l) { into(l, x_); });
    time("attention", "ours", keys * h, [this](const Layer& l) { attend(l, heads_); });
    time("products out", "ours", 5 * h * h, [this](const Layer& l) { out(l, x_, inner_, x_); });
    Tensor y = x_;
    time("layers", "ours", 12 * h * h + keys * h, [this, &y](const Layer& l) {
      Many both = into(l, y);
      y = out(l, y, both[1], attend(l, both[0]));
    });
    y = x_;
    time("layers", "ATen", 12 * h * h + keys * h, [this, &y](const Layer& l) { y = aten(l, y); });
    time_choice();
  }

 private:
  // elements: that a layer reads.
  void time(const std::string& name, const char* who, double elements,
            const std::function<void(const Layer&)>& work) {
    auto all = [&] {
      for (const Layer& l : layers_) work(l);
    };
    at::Device device = s_.options.device();
    auto recorder = graph_recorder(device);
    all();
    GraphRecorder::Work step = recorder->record(0, all);
    double bytes = elements * static_cast<double>(s_.options.dtype().itemsize()) *
                   static_cast<double>(s_.shape.layers);
    report(s_, concat("decoding ", rows_, ": ", name), who, bytes, seconds_of(device, step));
  }
  // Once for each layer, too, so that what it takes to start a graph does not count.
  void time_choice() {
    auto logits = static_cast<double>(rows_ * kVocab);
    Tensor more = at::zeros_like(lengths_), tokens = at::zeros_like(lengths_.unsqueeze(1));
    time("next tokens", "ours", logits, [&](const Layer&) {
      next_tokens(logits_, 0, {tokens, lengths_, more});
    });
    time("next tokens", "ATen", logits, [&](const Layer&) {
      at::argmax_out(tokens, logits_, 1, true);
      lengths_.add_(more);
    });
  }
  std::vector<Tensor> into(const Layer& l, const Tensor& x) const {
    return row_products(
        {{.terms = {{x, l.qkv, l.qkv_bias, l.first}}},
         {.terms = {{x, l.in, l.in_bias, l.second}}, .activation = Activation::kGeluErf}},
        {});
  }
  Tensor attend(const Layer& l, const Tensor& heads) const {
    return cached_attention_(heads.unsqueeze(1), {s_.shape.heads}, table_,
                             {.keys = l.keys,
                              .values = l.values,
                              .lengths = lengths_,
                              .seen = kSeen,
                              .scale = 1 / std::sqrt(static_cast<double>(l.keys.size(3))),
                              .arrived = arrived_});
  }
  static Tensor out(const Layer& l, const Tensor& x, const Tensor& inner, const Tensor& attended) {
    RowTerm mlp{inner, l.out, l.out_bias};
    mlp.early = true;
    RowSum sum{.terms = {mlp, {attended, l.dense, l.dense_bias}}, .residual = x};
    return row_products({sum}, {}).front();
  }
  Tensor aten(const Layer& l, const Tensor& x) const {
    int64_t h = s_.shape.hidden, H = s_.shape.heads;
    Tensor a = at::layer_norm(x, {h}, l.first.weight, l.first.bias),
           b = at::layer_norm(x, {h}, l.second.weight, l.second.bias);
    Tensor q = at::linear(a, l.qkv, l.qkv_bias).view({rows_, H, 3, h / H}).narrow(2, 0, 1);
    Tensor attended = at::scaled_dot_product_attention(q, l.keys, l.values).reshape({rows_, h});
    Tensor inner = at::gelu(at::linear(b, l.in, l.in_bias));
    return x + at::linear(attended, l.dense, l.dense_bias) + at::linear(inner, l.out, l.out_bias);
  }

  const KernelSetting& s_;
  int64_t rows_;
  std::vector<Layer> layers_;
  Tensor x_, heads_, inner_, lengths_, arrived_, logits_;
  RotaryTable table_;
};

}  // namespace

void run_decoding(const KernelSetting& setting) {
  at::NoGradGuard no_grad;
  for (int64_t rows : {1, 8}) Decoding(setting, rows).run();
}

}  // namespace neox
