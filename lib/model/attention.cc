// The attention of GptNeoX: q, k, v are [B, H, T, D] with positions already rotated into them.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "model/gpt_neox.h"

namespace neox {

Tensor GptNeoX::attend(const Tensor& q, const Tensor& k, const Tensor& v, int64_t l,
                       const Pass& pass) {
  if (pass.cache) return attend_cached(q, k, v, l, *pass.cache);
  if (pass.training && config_.attention_dropout > 0) return attend_with_dropout(q, k, v, l, pass);
  return at::scaled_dot_product_attention(q, k, v, {}, 0.0, true);
}

// The probabilities are held, because the mask is a function of their positions.
Tensor GptNeoX::attend_with_dropout(const Tensor& q, const Tensor& k, const Tensor& v, int64_t l,
                                    const Pass& pass) {
  int64_t H = q.size(1), T = q.size(2), D = q.size(3);
  Tensor scores = at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(D));
  Tensor future = at::ones({T, T}, q.options().dtype(at::kBool)).triu(1);
  scores = scores.masked_fill(future, -std::numeric_limits<double>::infinity());
  at::ScalarType wide = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  Tensor probabilities = at::softmax(scores, -1, wide).to(q.scalar_type());
  int64_t first_head = H * mesh_.tp().rank();
  probabilities = drop(probabilities, config_.attention_dropout, prefix(l) + "probabilities", pass,
                       first_head * T * T);
  return at::matmul(probabilities, v);
}

Tensor GptNeoX::attend_cached(const Tensor& q, const Tensor& k, const Tensor& v, int64_t l,
                              KvCache& cache) {
  auto i = static_cast<size_t>(l - first_layer_);
  int64_t T = q.size(2), end = cache.length + T;
  check(end <= cache.keys[i].size(2), "the key/value cache holds ", cache.keys[i].size(2),
        " positions, not ", end);
  cache.keys[i].narrow(2, cache.length, T).copy_(k);
  cache.values[i].narrow(2, cache.length, T).copy_(v);
  if (cache.length == 0) return at::scaled_dot_product_attention(q, k, v, {}, 0.0, true);
  Tensor keys = cache.keys[i].narrow(2, 0, end), values = cache.values[i].narrow(2, 0, end);
  if (T == 1) return at::scaled_dot_product_attention(q, keys, values);
  auto positions = [&](int64_t from, int64_t to) {
    return at::arange(from, to, q.options().dtype(at::kLong));
  };
  Tensor visible =
      positions(0, end).unsqueeze(0) <= positions(cache.length, end).unsqueeze(1);  // [T, end]
  return at::scaled_dot_product_attention(q, keys, values, visible);
}

}  // namespace neox
