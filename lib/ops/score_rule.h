// How scores of causal attention come from the products of queries and keys, and how distance
// counts among them: a window (Beltagy et al., arXiv 2004.05150; Mistral 7B, arXiv 2310.06825) and
// ALiBi's slopes (Press et al., arXiv 2108.12409).
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace c10 {
struct IValue;
}

namespace neox {

struct ScoreRule {
  double scale = 1;                 // of products; above 0
  int64_t window = 0;               // a query sees itself and so many keys before it; 0: all
  std::vector<double> slopes = {};  // [H]: what a score loses for each position between; or empty
  bool counts_distance() const { return window > 0 || !slopes.empty(); }
};

// As an autograd context keeps it from forward to backward.
c10::IValue kept(const ScoreRule& rule);
ScoreRule kept_rule(const c10::IValue& value);

// A block of products, in place; rows are queries and columns keys, or the other way round.
struct ProductBlock {
  float* data = nullptr;
  int64_t rows = 0, columns = 0, stride = 0;
  int64_t first_query = 0, first_key = 0;
  bool keys_are_rows = false;
};

// The rule for one head.
class HeadRule {
 public:
  HeadRule(const ScoreRule& rule, int64_t head);

  float scale() const { return scale_; }
  // The first key that a query sees, and the last query that sees a key, be it behind the text.
  int64_t first_key(int64_t query) const { return std::max<int64_t>(0, query - window_); }
  int64_t last_query(int64_t key) const { return key + window_; }
  // What distances do to products: each loses its slope, and before the window it counts nothing.
  void count_distances(const ProductBlock& block) const {
    if (counts_) count(block);
  }

 private:
  void count(const ProductBlock& block) const;

  float scale_, slope_ = 0;  // of a product, which is not scaled yet
  int64_t window_;
  bool counts_;
};

}  // namespace neox
