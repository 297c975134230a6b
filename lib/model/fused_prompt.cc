// Prompts of FusedDecode: many rows at once, so that products in float decide, not the memory.
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include "base/error.h"
#include "model/fused_decode.h"
#include "ops/bf16_product.h"
#include "ops/product.h"

namespace neox {
namespace {

// Up to so many tokens a prompt's products are bound by reading the weights.
constexpr int64_t kFewTokens = 16;
// Of prompts that are read together: with more the weights' part of the time is small anyway.
constexpr int64_t kTokensTogether = 1024;
// Elements of a matrix that are converted at once: what stays in a core's own cache.
constexpr int64_t kPart = int64_t{1} << 18;
// Of a product whose parts are used before the next one is computed, so many in a part. Written all
// over a larger matrix, sums take longer than the tiles that make them (128 rows, bf16, one core of
// Emerald Rapids: 0.7 TFLOP/s; 0.95 in parts).
constexpr int64_t kProductPart = int64_t{1} << 15;

FloatRows rows_of(const Tensor& x) { return {x.mutable_data_ptr<float>(), x.size(0), x.stride(0)}; }

void* row_of(const Tensor& x, int64_t t, int64_t column = 0) {
  int64_t at = t * x.stride(0) + column;
  return static_cast<char*>(x.mutable_data_ptr()) + at * x.element_size();
}

}  // namespace

size_t FusedDecode::prompts_together(std::span<const int64_t> lengths) const {
  auto few = [&](size_t i) { return lengths[i] <= kFewTokens; };
  bool pairs = bf16_multiplies(embedding_);
  if (config_.moe) return 0;  // GptNeoX's own layers sort tokens by expert
  if (!(few(0) || pairs || type_ == WeightType::kFloat ||
        multiplied_in_fp32(embedding_.scalar_type())))
    return 0;
  // Of ATen's products in float a row depends on the others.
  if (!few(0) && !pairs) return 1;
  size_t count = 1;
  for (int64_t tokens = lengths[0]; count < lengths.size() && few(count) == few(0); ++count)
    if ((tokens += lengths[count]) > kTokensTogether) break;
  return count;
}

// A row for each token of the prompts.
void FusedDecode::reserve_prompts(std::span<const int64_t> lengths, int threads) {
  const ModelConfig& c = config_;
  prompt_ = {.few = lengths[0] <= kFewTokens};
  for (size_t b = 0; b < lengths.size(); ++b) {
    check(lengths[b] <= cos_.size(0), "a prompt of ", lengths[b], " tokens is longer than the ",
          cos_.size(0), " positions that the model has (max_position_embeddings)");
    for (int64_t t = 0; t < lengths[b]; ++t)
      prompt_.places.push_back({.row = static_cast<int64_t>(b), .position = t});
  }
  auto T = static_cast<int64_t>(prompt_.places.size());
  auto rows = [&](int64_t columns, at::ScalarType type) {
    // Rows that lie a multiple of a kilobyte apart would share few sets of a cache.
    int64_t size = padded_row(columns), apart = size % 256 == 0 ? size + 32 : size;
    Tensor x = at::empty({T, apart}, type).narrow(1, 0, size);
    if (columns != x.size(1)) x.zero_();
    return x;
  };
  at::ScalarType factors = !prompt_.few && bf16_multiplies(embedding_) ? at::kBFloat16 : at::kFloat;
  int64_t heads = c.head_columns();
  prompt_.x = rows(c.hidden, at::kFloat);
  prompt_.qkv = rows(heads + 2 * c.groups() * c.head_size(), at::kFloat);
  prompt_.mlp = rows(c.mlp_inputs(), at::kFloat);
  prompt_.out = rows(c.hidden, at::kFloat);
  prompt_.queries = at::empty({T, heads}, embedding_.scalar_type());
  prompt_.normed = rows(c.hidden, factors);
  prompt_.attended = rows(heads, factors);
  prompt_.inner = rows(c.intermediate, factors);
  int64_t widest = std::max({c.hidden, c.intermediate, heads});
  for (int i = 0; i < threads; ++i)
    prompt_.parts.push_back(at::empty({std::max(kPart, kRowMultiple * widest)}, at::kFloat));
}

Tensor FusedDecode::prompts(const Tensor& tokens, std::span<const int64_t> lengths, KvCache& cache,
                            const AfterLayer& after_layer) {
  int threads = at::get_num_threads();
  int64_t rows = std::ssize(lengths);
  check(cache.rows() == rows && std::ranges::all_of(cache.lengths, [](auto n) { return n == 0; }),
        "a prompt begins a row of the cache");
  reserve_prompts(lengths, threads);
  Tensor positions = at::empty({std::ssize(prompt_.places)}, at::kLong);
  std::ranges::transform(prompt_.places, positions.mutable_data_ptr<int64_t>(), &Place::position);
  prompt_.x.narrow(1, 0, config_.hidden).copy_(embedded(tokens, positions));
  size_t last = layers_.size() - 1;
  for (size_t l = 0; l < last; ++l) {
    prompt_layer(l, cache, lengths, threads);
    if (after_layer) after_layer(std::ssize(prompt_.places));
  }
  // Of the last layer the other tokens' keys and values are all that is needed.
  prompt_keys(last, cache, threads);
  reserve(rows, cache.capacity(), threads);
  for (int64_t b = 0, end = 0; b < rows; ++b) {
    int64_t length = lengths[static_cast<size_t>(b)];
    cache.lengths[static_cast<size_t>(b)] = length - 1;
    end += length;
    x_.values[b].copy_(prompt_.x[end - 1]);
  }
  prompt_ = {};
  Tensor logits = at::empty({rows, head_.weight.rows}, at::kFloat);
  run_team(threads, [&](Team& team) {
    layer(last, team, cache);
    head(team, logits);
  });
  cache.lengths.assign(lengths.begin(), lengths.end());
  return logits;
}

// Queries, keys and values of a layer, of which the cache gets the latter. Threads share the groups
// of heads, or, where these do not go round, the matrix first and then the tokens.
void FusedDecode::prompt_keys(size_t l, const KvCache& cache, int threads) {
  const Layer& layer = layers_[l];
  int64_t size = (config_.group_queries() + 2) * config_.head_size(), groups = config_.groups();
  run_team(threads, [&](Team& team) {
    prompt_norm(layer.attention_norm, team);
    Team::Share all = {0, prompt_.qkv.size(0)}, mine = team.share(groups);
    if (groups % team.size() == 0 || groups >= 4 * team.size())
      return prompt_parts(layer.qkv, team, {mine.begin * size, mine.end * size}, size, prompt_.qkv,
                          [&](Team::Share part, const FloatRows& y) {
                            prompt_heads(l, cache, {part.begin / size, part.end / size}, all, y);
                          });
    prompt_product(layer.qkv, team.share(layer.qkv.weight.rows, kRowMultiple), team, prompt_.normed,
                   prompt_.qkv);
    team.meet();
    prompt_heads(l, cache, {0, groups}, team.share(all.end), rows_of(prompt_.qkv));
  });
}

// Each prompt by itself.
void FusedDecode::prompt_attention(size_t l, const KvCache& cache,
                                   std::span<const int64_t> lengths) {
  int64_t H = config_.heads, D = config_.head_size();
  for (int64_t b = 0, first = 0, T = 0; b < std::ssize(lengths); ++b, first += T) {
    T = lengths[static_cast<size_t>(b)];
    auto seen = [&](const Tensor& all) { return all.narrow(0, b, 1).narrow(2, 0, T); };
    Tensor q = prompt_.queries.narrow(0, first, T).view({1, T, H, D}).transpose(1, 2);
    Tensor y = attend_(q, seen(cache.keys[l]), seen(cache.values[l]));
    prompt_.attended.narrow(0, first, T)
        .narrow(1, 0, H * D)
        .copy_(y.transpose(1, 2).reshape({T, H * D}));
  }
}

void FusedDecode::prompt_layer(size_t l, const KvCache& cache, std::span<const int64_t> lengths,
                               int threads) {
  const Layer& layer = layers_[l];
  prompt_keys(l, cache, threads);
  prompt_attention(l, cache, lengths);
  run_team(threads, [&](Team& team) {
    if (config_.parallel_residual) {
      if (!config_.tied_norms) prompt_norm(layer.mlp_norm, team);
      prompt_mlp(layer, team);
      prompt_output(layer.dense, team, prompt_.attended);
    } else {
      prompt_output(layer.dense, team, prompt_.attended);
      team.meet();
      prompt_norm(layer.mlp_norm, team);
      prompt_mlp(layer, team);
    }
    team.meet();
    prompt_output(layer.mlp.out, team, prompt_.inner);
  });
}

void FusedDecode::prompt_norm(const Norm& norm, Team& team) {
  FloatRows x = rows_of(prompt_.x);
  float* y = prompt_.parts[static_cast<size_t>(team.rank())].mutable_data_ptr<float>();
  auto [from, to] = team.share(x.count);
  for (int64_t t = from; t < to; ++t) {
    kernels_.norm(norm.kernel, x.data + t * x.stride, config_.hidden, y);
    kernels_.store(y, config_.hidden, weight_type(prompt_.normed), row_of(prompt_.normed, t));
  }
  team.meet();
}

// These columns of y, with the bias.
void FusedDecode::prompt_product(const Linear& linear, Team::Share columns, Team& team,
                                 const Tensor& x, const Tensor& y) {
  const WeightMatrix& w = linear.weight;
  auto [from, to] = columns;
  if (x.scalar_type() == at::kBFloat16) return half_product(linear, {from, to}, x, y, false);
  if (prompt_.few)
    kernels_.multiply(w, from, to, rows_of(x), rows_of(y));
  else
    float_product(linear, {from, to}, prompt_.parts[static_cast<size_t>(team.rank())], x, y);
  if (const float* bias = linear.bias.data())
    for (int64_t t = 0; t < y.size(0); ++t)
      kernels_.add(bias + from, to - from, rows_of(y).data + t * y.stride(0) + from);
}

// use(part, rows) with the product of what was normed, with the bias, of parts of these columns,
// each a multiple of so many: in `whole`, or one after the other in the same little memory.
template <class Use>
void FusedDecode::prompt_parts(const Linear& linear, Team& team, Team::Share columns,
                               int64_t multiple, const Tensor& whole, const Use& use) {
  auto [from, to] = columns;
  if (from == to) return;
  Tensor x = prompt_.normed.narrow(1, 0, linear.weight.columns);
  if (!FewRows::take(x, linear.values)) {
    prompt_product(linear, columns, team, prompt_.normed, whole);
    return use(columns, rows_of(whole.narrow(1, from, to - from)));
  }
  FewRows rows(x);
  int64_t T = x.size(0), most = std::max(multiple, kProductPart / T / multiple * multiple);
  Tensor room = at::empty({T, std::min(most, to - from) + kRowMultiple}, at::kFloat);
  for (int64_t n = from; n < to; n += most) {
    int64_t count = std::min(most, to - n);
    Tensor y = room.narrow(1, 0, count), bias = linear.bias.values;
    if (bias.defined()) bias = bias.narrow(0, n, count);
    rows.product_out(y, linear.values.narrow(0, n, count), bias);
    use({n, n + count}, rows_of(y));
  }
}

// With the bias. add: to what y has.
void FusedDecode::half_product(const Linear& linear, Team::Share columns, const Tensor& x,
                               const Tensor& y, bool add) {
  auto [from, to] = columns;
  if (from == to) return;
  Tensor w = linear.values.narrow(0, from, to - from), bias = linear.bias.values;
  if (bias.defined()) bias = bias.narrow(0, from, to - from);
  auto product = add ? add_bf16_product : bf16_product_out;
  product(y.narrow(1, from, to - from), x.narrow(1, 0, w.size(1)), w, bias);
}

// Without the bias. Weights of bf16 are converted in parts.
void FusedDecode::float_product(const Linear& linear, Team::Share columns, const Tensor& scratch,
                                const Tensor& x, const Tensor& y) const {
  const WeightMatrix& w = linear.weight;
  Tensor in = x.narrow(1, 0, w.columns);
  int64_t at_once = scratch.numel() / w.columns / kRowMultiple * kRowMultiple;
  for (int64_t n = columns.begin; n < columns.end; n += at_once) {
    int64_t rows = std::min(at_once, columns.end - n);
    Tensor part = linear.values.narrow(0, n, rows);
    if (w.type == WeightType::kBfloat16) {
      part = scratch.narrow(0, 0, rows * w.columns).view({rows, w.columns});
      kernels_.widen(static_cast<const uint16_t*>(w.data) + n * w.columns, rows * w.columns,
                     part.mutable_data_ptr<float>());
    }
    Tensor out = y.narrow(1, n, rows);
    at::mm_out(out, in, part.t());
  }
}

// Of these groups, which follow each other in the rows, and these tokens.
void FusedDecode::prompt_heads(size_t l, const KvCache& cache, Team::Share groups,
                               Team::Share tokens, const FloatRows& qkv) {
  int64_t queries = config_.group_queries() * config_.head_size(),
          size = queries + 2 * config_.head_size();
  for (int64_t t = tokens.begin; t < tokens.end; ++t)
    for (int64_t g = groups.begin; g < groups.end; ++g) {
      float* heads = qkv.data + t * qkv.stride + (g - groups.begin) * size;
      auto [row, position] = prompt_.places[static_cast<size_t>(t)];
      place_heads(layers_[l], heads, position);
      store_heads(l, cache, heads, {row, g, position});
      kernels_.store(heads, queries, type_, row_of(prompt_.queries, t, g * queries));
    }
}

// inner: what the MLP's second matrix multiplies.
void FusedDecode::prompt_mlp(const Layer& layer, Team& team) {
  int64_t times = config_.gated ? 2 : 1;
  auto [from, to] = team.share(config_.intermediate, kRowMultiple);
  Tensor gated = at::empty({config_.gated ? to - from : 0}, at::kFloat);
  prompt_parts(layer.mlp.in, team, {from * times, to * times}, times * kRowMultiple, prompt_.mlp,
               [&](Team::Share part, const FloatRows& in) {
                 int64_t first = part.begin / times, n = part.end / times - first;
                 for (int64_t t = 0; t < in.count; ++t) {
                   float* pairs = in.data + t * in.stride;
                   float* y = config_.gated ? gated.mutable_data_ptr<float>() : pairs;
                   activate(pairs, y, {0, n});
                   kernels_.store(y, n, weight_type(prompt_.inner),
                                  row_of(prompt_.inner, t, first));
                 }
               });
}

void FusedDecode::prompt_output(const Linear& linear, Team& team, const Tensor& in) {
  auto [from, to] = team.share(config_.hidden, kRowMultiple);
  if (in.scalar_type() == at::kBFloat16)
    return half_product(linear, {from, to}, in, prompt_.x, true);
  prompt_product(linear, {from, to}, team, in, prompt_.out);
  FloatRows x = rows_of(prompt_.x), y = rows_of(prompt_.out);
  for (int64_t t = 0; t < x.count; ++t)
    kernels_.add(y.data + t * y.stride + from, to - from, x.data + t * x.stride + from);
}

}  // namespace neox
