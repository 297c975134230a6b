#include <ATen/TensorOperators.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "generate/generate.h"
#include "ops/next_tokens.h"
#include "ops/random.h"

namespace neox {
namespace {

// Ids by their weight, of which the greatest is 1; ties by id: `most` of them, or so many at least
// as weigh more than `mass` together. What is light is not sorted where it is not asked for.
std::vector<int64_t> heaviest(std::span<const double> weights, size_t most, double mass) {
  std::vector<int64_t> ids;
  for (double least = 1.0 / 64;; least = least > 1e-30 ? least * least : 0) {
    ids.clear();
    double sum = 0;
    for (size_t i = 0; i < weights.size(); ++i)
      if (weights[i] >= least) {
        ids.push_back(static_cast<int64_t>(i));
        sum += weights[i];
      }
    if (least == 0 || ids.size() >= most || sum > mass) break;
  }
  auto weight = [&](int64_t id) { return weights[static_cast<size_t>(id)]; };
  std::ranges::stable_sort(ids, std::greater<>(), weight);
  ids.resize(std::min(ids.size(), most));
  return ids;
}

// The first ids that weigh as much as `mass` stay, one at least: what they weigh.
double keep_mass(std::vector<int64_t>& ids, std::span<const double> weights, double mass) {
  double kept = 0;
  size_t count = 0;
  while (count < ids.size() && (count == 0 || kept < mass))
    kept += weights[static_cast<size_t>(ids[count++])];
  ids.resize(count);
  return kept;
}

}  // namespace

bool is_greedy(const Sampling& s) { return s.temperature == 0 && s.top_k == 0 && s.top_p == 0; }

int64_t choose(const Tensor& logits, const Sampling& s, int64_t position) {
  int64_t n = s.vocab > 0 ? std::min(s.vocab, logits.size(0)) : logits.size(0);
  Tensor scores = logits.narrow(0, 0, n).to(at::kFloat).contiguous();
  int64_t top = likeliest({scores.const_data_ptr<float>(), static_cast<size_t>(n)});
  if (top < 0 || is_greedy(s)) return top;
  double temperature = s.temperature > 0 ? s.temperature : 1;
  Tensor weights = (scores - scores[top]).to(at::kDouble).div_(temperature).exp_();
  const auto* weight = weights.const_data_ptr<double>();
  std::span<const double> all(weight, static_cast<size_t>(n));
  float u = 0;
  uniform_at(s.key, position, {&u, 1});
  double total = 0;
  std::vector<int64_t> order;
  if (s.top_k > 0 && s.top_k < n) {
    order = heaviest(all, static_cast<size_t>(s.top_k), std::numeric_limits<double>::infinity());
    for (int64_t id : order) total += weight[id];
  } else {
    total = std::accumulate(all.begin(), all.end(), 0.0);
    order = heaviest(all, all.size(), (s.top_p > 0 ? s.top_p : u) * total);
  }
  if (s.top_p > 0) total = keep_mass(order, all, s.top_p * total);
  double left = u * total;
  for (int64_t id : order)
    if ((left -= weight[id]) < 0) return id;
  return order.back();
}

}  // namespace neox
