#include <ATen/TensorOperators.h>

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>

#include "generate/generate.h"
#include "ops/next_tokens.h"
#include "ops/random.h"

namespace neox {
namespace {

struct Candidate {
  double weight;
  int64_t id;
};

// Ids by their weight, ties by id. Their weights put them into buckets, the heaviest first, of
// which only those are filled and sorted that are asked for: a draw seldom gets as far as the light
// ids.
class Heaviest {
 public:
  // Weights from 0 to 1, of which the greatest is 1; they must outlive it.
  explicit Heaviest(std::span<const double> weights)
      : weights_(weights), all_(std::make_unique_for_overwrite<Candidate[]>(weights.size())) {
    uint64_t range = behind_one(std::ranges::min(weights));
    shift_ = std::max(static_cast<int>(std::bit_width(range)) - kBucketBits, 0);
    for (double weight : weights) ++places_[bucket(weight)];
    std::exclusive_scan(places_.begin(), places_.end(), places_.begin(), size_t{0});
  }

  // The one behind so many others.
  const Candidate& operator[](size_t rank) {
    while (rank >= sorted_) sort_bucket();
    return all_[rank];
  }

 private:
  static constexpr int kBucketBits = 12;
  static constexpr size_t kBuckets = size_t{1} << kBucketBits;

  // The bits of numbers that are not negative have the order of the numbers.
  static uint64_t behind_one(double weight) {
    return std::bit_cast<uint64_t>(1.0) - std::bit_cast<uint64_t>(weight);
  }
  size_t bucket(double weight) const { return behind_one(weight) >> shift_; }

  // Each pass over all weights takes many more ids than the one before it.
  void fill_buckets() {
    size_t first = filled_, ids = std::max<size_t>(64, 8 * sorted_);
    do ++filled_;
    while (filled_ < kBuckets && places_[filled_] < ids);
    for (size_t i = 0; i < weights_.size(); ++i)
      if (size_t b = bucket(weights_[i]); b >= first && b < filled_)
        all_[places_[b]++] = {weights_[i], static_cast<int64_t>(i)};
  }

  void sort_bucket() {
    if (next_ == filled_) fill_buckets();
    std::span<Candidate> bucket(&all_[sorted_], places_[next_++] - sorted_);
    auto before = [](const Candidate& a, const Candidate& b) {
      return a.weight > b.weight || (a.weight == b.weight && a.id < b.id);
    };
    if (!std::ranges::is_sorted(bucket, before)) std::ranges::sort(bucket, before);
    sorted_ += bucket.size();
  }

  std::span<const double> weights_;
  int shift_ = 0;
  std::unique_ptr<Candidate[]> all_;
  std::array<size_t, kBuckets> places_ = {};  // in all_, of the next id of each bucket
  size_t filled_ = 0, next_ = 0;              // buckets; the first one that is not sorted
  size_t sorted_ = 0;                         // ids
};

// How many of the first `count` weigh as much as `mass`, one at least; and what they weigh.
std::pair<size_t, double> keep_mass(Heaviest& order, size_t count, double mass) {
  double kept = 0;
  size_t n = 0;
  while (n < count && (n == 0 || kept < mass)) kept += order[n++].weight;
  return {n, kept};
}

// Of the first `count` those that weigh as much as `least`, where the heaviest weighs 1.
std::pair<size_t, double> keep_likely(Heaviest& order, std::span<const double> weights,
                                      size_t count, double least) {
  auto likely = std::ranges::count_if(weights, [&](double weight) { return weight >= least; });
  count = std::min(count, std::max<size_t>(static_cast<size_t>(likely), 1));
  double kept = 0;
  for (size_t i = 0; i < count; ++i) kept += order[i].weight;
  return {count, kept};
}

bool draws(const Sampling& s) {
  return s.temperature != 0 || s.top_k != 0 || s.top_p != 0 || s.min_p != 0;
}

bool changes_logits(const Sampling& s) { return !s.bias.empty() || counts_tokens(s); }

// Logits [n] as the sampling wants them, in memory of their own.
Tensor changed(const Tensor& logits, const Sampling& s, const TokenCounts& made) {
  Tensor scores = logits.clone();
  std::span all(scores.mutable_data_ptr<float>(), static_cast<size_t>(scores.size(0)));
  for (const auto& [token, x] : s.bias)
    if (token < std::ssize(all)) all[static_cast<size_t>(token)] += static_cast<float>(x);
  auto repetition = static_cast<float>(s.repetition_penalty);
  for (const auto& [token, times] : made) {
    if (token >= std::ssize(all)) break;
    float& score = all[static_cast<size_t>(token)];
    score = score > 0 ? score / repetition : score * repetition;
    double once = times > 0 ? s.presence_penalty : 0;
    score -= static_cast<float>(once + s.frequency_penalty * static_cast<double>(times));
  }
  return scores;
}

}  // namespace

bool is_greedy(const Sampling& s) { return !draws(s) && !changes_logits(s); }

int64_t choose(const Tensor& logits, const Sampling& s, int64_t position, const TokenCounts& made) {
  int64_t n = s.vocab > 0 ? std::min(s.vocab, logits.size(0)) : logits.size(0);
  Tensor scores = logits.narrow(0, 0, n).to(at::kFloat).contiguous();
  if (changes_logits(s)) scores = changed(scores, s, made);
  int64_t top = likeliest({scores.const_data_ptr<float>(), static_cast<size_t>(n)});
  if (top < 0 || !draws(s)) return top;
  double temperature = s.temperature > 0 ? s.temperature : 1;
  Tensor weights = (scores - scores[top]).to(at::kDouble).div_(temperature).exp_();
  std::span<const double> all(weights.const_data_ptr<double>(), static_cast<size_t>(n));
  float u = 0;
  uniform_at(s.key, position, {&u, 1});
  Heaviest order(all);
  size_t count = all.size();
  double total = 0;
  if (s.top_k > 0 && s.top_k < n) {
    count = static_cast<size_t>(s.top_k);
    for (size_t i = 0; i < count; ++i) total += order[i].weight;
  } else {
    total = std::accumulate(all.begin(), all.end(), 0.0);
  }
  if (s.top_p > 0) std::tie(count, total) = keep_mass(order, count, s.top_p * total);
  if (s.min_p > 0) std::tie(count, total) = keep_likely(order, all, count, s.min_p);
  double left = u * total;
  for (size_t i = 0; i < count; ++i)
    if ((left -= order[i].weight) < 0) return order[i].id;
  return order[count - 1].id;
}

}  // namespace neox
