// The attention of GptNeoX: q, k, v are [B, H, T, D] with positions already rotated into them.
// Attention within documents: on a CPU each is computed alone; elsewhere, and with dropout, a mask
// is added to the scores.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <span>

#include "base/error.h"
#include "model/gpt_neox.h"

namespace neox {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

Tensor future(int64_t T, const Tensor& like) {
  return at::ones({T, T}, like.options().dtype(at::kBool)).triu(1);
}

// [B, 1, T, T], to be added to scores: 0, or -inf where the key lies ahead or in another document.
Tensor mask_of(const Tensor& documents, at::ScalarType dtype) {
  Tensor other = documents.unsqueeze(1).not_equal(documents.unsqueeze(2));  // [B, T, T]
  Tensor hidden = other.logical_or_(future(documents.size(1), documents)).unsqueeze(1);
  return at::zeros(hidden.sizes(), documents.options().dtype(dtype)).masked_fill_(hidden, kHidden);
}

// The lengths of the runs of equal numbers [T].
std::vector<int64_t> runs(const Tensor& numbers) {
  Tensor host = numbers.contiguous();
  std::span<const int64_t> number(host.const_data_ptr<int64_t>(),
                                  static_cast<size_t>(host.numel()));
  std::vector<int64_t> lengths;
  for (size_t t = 0; t < number.size(); ++t) {
    if (t == 0 || number[t] != number[t - 1]) lengths.push_back(0);
    ++lengths.back();
  }
  return lengths;
}

}  // namespace

GptNeoX::Pass GptNeoX::pass_of(const Batch& batch) const {
  Pass pass{.first_sample = batch.first_sample,
            .training = at::GradMode::is_enabled(),
            .documents = batch.documents};
  bool dropout = pass.training && config_.attention_dropout > 0;
  if (batch.documents.defined() && (dropout || !batch.documents.is_cpu()))
    pass.mask = mask_of(batch.documents, options_.dtypes.param);
  if (batch.positions.defined()) pass.rotary = rows_at(rotary_, batch.positions);
  return pass;
}

Tensor GptNeoX::attend(const Tensor& q, const Tensor& k, const Tensor& v, int64_t l,
                       const Pass& pass) {
  if (pass.cache) return attend_cached(q, k, v, l, *pass.cache);
  if (pass.training && config_.attention_dropout > 0) return attend_with_dropout(q, k, v, l, pass);
  if (pass.mask.defined()) return at::scaled_dot_product_attention(q, k, v, pass.mask);
  if (pass.documents.defined()) return attend_in_documents(q, k, v, pass.documents);
  return at::scaled_dot_product_attention(q, k, v, {}, 0.0, true);
}

// Document by document, each as a text of its own. On a CPU of one core, T = 2048, H = 8, D = 64,
// fp32, forward and backward took 175 ms for one document, 79 ms for 4, 30 ms for 16; with a mask
// 280 ms whatever the documents.
Tensor GptNeoX::attend_in_documents(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const Tensor& documents) {
  std::vector<Tensor> samples, q_of = q.split(1), k_of = k.split(1), v_of = v.split(1);
  for (size_t b = 0; b < q_of.size(); ++b) {
    std::vector<int64_t> lengths = runs(documents[static_cast<int64_t>(b)]);
    auto parts = [&](const Tensor& x) { return x.split_with_sizes(lengths, 2); };
    std::vector<Tensor> queries = parts(q_of[b]), keys = parts(k_of[b]), values = parts(v_of[b]),
                        done;
    for (size_t i = 0; i < lengths.size(); ++i)
      done.push_back(
          at::scaled_dot_product_attention(queries[i], keys[i], values[i], {}, 0.0, true));
    samples.push_back(at::cat(done, 2));  // [1, H, T, D]
  }
  return at::cat(samples, 0);
}

// The probabilities are held, because the mask is a function of their positions.
Tensor GptNeoX::attend_with_dropout(const Tensor& q, const Tensor& k, const Tensor& v, int64_t l,
                                    const Pass& pass) {
  int64_t H = q.size(1), T = q.size(2), D = q.size(3);
  Tensor scores = at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(D));
  scores = pass.mask.defined() ? scores + pass.mask : scores.masked_fill(future(T, q), kHidden);
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
