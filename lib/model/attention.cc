// The attention of GptNeoX: positions are already rotated into q and k. On a CPU documents are
// computed each alone, and a window and ALiBi are the kernels'; elsewhere, with dropout, and with
// T5's bias, a mask is added to the scores.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/error.h"
#include "model/gpt_neox.h"
#include "ops/causal_attention.h"
#include "ops/dropped_attention.h"
#include "ops/embedding.h"
#include "ops/product.h"

namespace neox {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

// From each of the queries first .. last - 1 back to each of the keys 0 .. last - 1:
// [1, 1, queries, keys]. Of 32 bits: with 32,768 tokens they are 4 GB.
Tensor distances(int64_t first, int64_t last, const at::TensorOptions& options) {
  auto positions = [&](int64_t from) { return at::arange(from, last, options.dtype(at::kInt)); };
  return positions(first).view({1, 1, -1, 1}) - positions(0);
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
            .splits_tokens = splits_tokens(),
            .documents = batch.documents,
            .positions = batch.positions};
  pass.bias = score_bias(0, batch.tokens.size(1));
  if (needs_mask(pass) && (batch.documents.defined() || scores_depend_on_distance()))
    pass.mask = score_mask(0, batch.tokens.size(1), batch.documents);
  if (batch.positions.defined()) pass.rotary = rows_at(rotary_, batch.positions);
  return pass;
}

bool GptNeoX::scores_depend_on_distance() const {
  return score_rule_.counts_distance() ||
         config_.position_embedding == PositionEmbedding::kRelative;
}

// T5's bias of the scores of the queries first .. last - 1, [1, H, queries, keys], or undefined.
Tensor GptNeoX::score_bias(int64_t first, int64_t last) const {
  if (config_.position_embedding != PositionEmbedding::kRelative) return {};
  return bias_at(distances(first, last, hidden_options()));
}

// The same at distances [B, 1, queries, keys]: [B, H, queries, keys]. Half of the buckets are
// distances, the others grow with their logarithm; all times the root of D, as GPT-NeoX has it
// (ParallelRelativePositionBias).
Tensor GptNeoX::bias_at(const Tensor& from) const {
  if (config_.position_embedding != PositionEmbedding::kRelative) return {};
  int64_t buckets = config_.rpe_buckets, exact = buckets / 2;
  double most =
      std::log(static_cast<double>(config_.rpe_max_distance) / static_cast<double>(exact));
  Tensor distance = from.clamp_min(0);
  Tensor log = (distance.clamp_min(1).to(at::kFloat) / static_cast<double>(exact)).log() / most;
  Tensor far = (log * static_cast<double>(buckets - exact)).to(from.scalar_type()) + exact;
  Tensor bucket = at::where(distance < exact, distance, far.clamp_max(buckets - 1));
  Tensor table = param("relative_attention_bias.weight"), rows = bucket.squeeze(1);
  // ATen sums the gradient of a table in its own type on a CPU: thousands of rows in 16 bits.
  Tensor bias =
      table.is_cpu() ? embedding_rows(table, rows.to(at::kLong)) : at::embedding(table, rows);
  return bias.permute({0, 3, 1, 2}) * std::sqrt(static_cast<double>(config_.head_size()));
}

// To be added to the scores of the queries first .. last - 1 and the keys 0 .. last - 1: [B or 1,
// H or 1, queries, keys]. -inf where the key lies ahead, in another document, or before the window;
// else 0, or ALiBi's slope for each position between them. documents: undefined, or [B, T].
Tensor GptNeoX::score_mask(int64_t first, int64_t last, const Tensor& documents) const {
  return mask_at(distances(first, last, hidden_options()), documents);
}

// The same at distances [B or 1, 1, queries, keys].
Tensor GptNeoX::mask_at(const Tensor& distance, const Tensor& documents) const {
  Tensor hidden = distance < 0;
  if (config_.window > 0) hidden.logical_or_(distance > config_.window);
  if (documents.defined())
    hidden =
        hidden.logical_or(documents.unsqueeze(1).not_equal(documents.unsqueeze(2)).unsqueeze(1));
  if (!slopes_.defined())
    return at::zeros(hidden.sizes(), hidden_options()).masked_fill_(hidden, kHidden);
  Tensor scores = -slopes_ * distance;
  bool by_sample = scores.size(0) < hidden.size(0);
  return by_sample ? scores.masked_fill(hidden, kHidden) : scores.masked_fill_(hidden, kHidden);
}

// Keys or values [B, K, T, D] as each query of a group sees them: [B, H, T, D].
Tensor GptNeoX::for_queries(const Tensor& keys) const {
  int64_t B = keys.size(0), K = keys.size(1), T = keys.size(2), D = keys.size(3),
          G = config_.group_queries();
  return keys.unsqueeze(2).expand({B, K, G, T, D}).reshape({B, K * G, T, D});
}

// q [B, H, T, D]; k, v [B, K, T, D].
Tensor GptNeoX::attend(const Tensor& q, const Tensor& k, const Tensor& v, int64_t l,
                       const Pass& pass) {
  if (pass.cache) return attend_cached(q, k, v, l, pass);
  Tensor keys = for_queries(k), values = for_queries(v);
  if (!attends_in_fp32(q, pass)) return attend_whole(q, keys, values, l, pass);
  Pass wide = pass;
  if (wide.mask.defined()) wide.mask = wide.mask.to(at::kFloat);
  auto widened = [](const Tensor& x) { return x.to(at::kFloat); };
  return attend_whole(widened(q), widened(keys), widened(values), l, wide).to(q.scalar_type());
}

// SDPA takes another kernel, which rounds otherwise, for a mask with a gradient, and recomputation
// begins without gradients.
bool GptNeoX::attends_by_probabilities(const Pass& pass) const {
  return pass.training && (config_.attention_dropout > 0 || pass.bias.defined());
}

// Whether what scores of a whole text lose by documents and distances is to be a mask.
bool GptNeoX::needs_mask(const Pass& pass) const {
  return attends_by_probabilities(pass) || pass.bias.defined() ||
         !attends_in_blocks(options_.device, options_.dtypes.param);
}

// What ATen multiplies, where it is slower in 16 bits, and what has no kernels of ours.
bool GptNeoX::attends_in_fp32(const Tensor& q, const Pass& pass) const {
  if (attends_by_probabilities(pass) || pass.mask.defined()) return slow_for_aten(q);
  return pass.documents.defined() && multiplied_in_fp32(q);
}

Tensor GptNeoX::attend_whole(const Tensor& q, const Tensor& k, const Tensor& v, int64_t l,
                             const Pass& pass) {
  if (attends_by_probabilities(pass)) return attend_by_probabilities(q, k, v, l, pass);
  if (pass.mask.defined())
    return at::scaled_dot_product_attention(q, k, v, pass.mask, 0, false, score_rule_.scale);
  if (pass.documents.defined()) return attend_in_documents(q, k, v, pass.documents);
  return causal_attention(q, k, v, score_rule_);
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
      done.push_back(causal_attention(queries[i], keys[i], values[i], score_rule_));
    samples.push_back(at::cat(done, 2));  // [1, H, T, D]
  }
  return at::cat(samples, 0);
}

Tensor GptNeoX::attend_by_probabilities(const Tensor& q, const Tensor& k, const Tensor& v,
                                        int64_t l, const Pass& pass) {
  int64_t H = q.size(1), T = q.size(2);
  ProbabilityDropout dropout{.p = config_.attention_dropout,
                             .site = dropout_site(prefix(l) + "probabilities", pass)};
  dropout.site.offset = H * mesh_.tp().rank() * T * T;  // of the first head
  return dropped_attention(q, k, v, pass.mask, score_rule_.scale, dropout);
}

}  // namespace neox
