// The MLPs of FusedDecode's steps. Of experts those are read that a row goes through, once for all
// rows that do: the rows are sorted by their experts, as in ops/experts.h.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/fused_decode.h"
#include "model/router.h"

namespace neox {
namespace {

// run(expert, first, count) for the sorted rows of each expert that has any.
template <class Routes, class Run>
void each_expert(const Routes& routes, const Run& run) {
  for (size_t from = 0, to = 0; from < routes.size(); from = to) {
    while (to < routes.size() && routes[to].expert == routes[from].expert) ++to;
    run(static_cast<size_t>(routes[from].expert), static_cast<int64_t>(from),
        static_cast<int64_t>(to - from));
  }
}

// The scores of all experts become what each counts.
void weigh(float* scores, const MoeConfig& moe) {
  int64_t n = moe.experts;
  if (counts_by_sigmoid(moe)) {
    std::for_each(scores, scores + n, [](float& s) { s = 1 / (1 + std::exp(-s)); });
    return;
  }
  float most = *std::max_element(scores, scores + n);
  std::for_each(scores, scores + n, [&](float& s) { s = std::exp(s - most); });
  float sum = std::accumulate(scores, scores + n, 0.0F);
  std::for_each(scores, scores + n, [&](float& s) { s /= sum; });
}

}  // namespace

std::vector<FusedDecode::Mlp> FusedDecode::experts_of(const DecodeSource& s,
                                                      const std::string& name) {
  Tensor in = s.param(name + "dense_h_to_4h.weight").detach(),
         out = s.param(name + "dense_4h_to_h.weight").detach();
  std::vector<Mlp> experts;
  for (int64_t e = 0; e < in.size(0); ++e) experts.push_back({linear_of(in[e]), linear_of(out[e])});
  return experts;
}

// Each thread chooses for all rows: that takes less time than waiting for another one.
void FusedDecode::choose_routes(const Layer& layer, Scratch& scratch) const {
  const MoeConfig& moe = *config_.moe;
  FloatRows x = scratch.normed.rows(rows_), scores = scratch.scores.rows(rows_);
  kernels_.multiply(layer.router.weight, 0, moe.experts, x, scores);
  scratch.routes.clear();
  std::vector<int64_t> order(static_cast<size_t>(moe.experts));
  for (int64_t b = 0; b < rows_; ++b) {
    float* row = scores.data + b * scores.stride;
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + moe.top_k, order.end(),
                      [&](int64_t i, int64_t j) { return row[i] > row[j]; });
    weigh(row, moe);
    float sum = moe.normalized ? 0 : 1;
    for (int64_t k = 0; moe.normalized && k < moe.top_k; ++k)
      sum += row[order[static_cast<size_t>(k)]];
    for (int64_t k = 0; k < moe.top_k; ++k) {
      int64_t expert = order[static_cast<size_t>(k)];
      scratch.routes.push_back({expert, b, row[expert] / sum});
    }
  }
  std::ranges::stable_sort(scratch.routes, {}, &Route::expert);
  FloatRows sorted = scratch.sorted.rows(std::ssize(scratch.routes));
  for (size_t i = 0; i < scratch.routes.size(); ++i)
    std::copy_n(x.data + scratch.routes[i].row * x.stride, config_.hidden,
                sorted.data + static_cast<int64_t>(i) * sorted.stride);
}

// This thread's columns of inner's rows from `first` on, which are those of x; returns the columns.
Team::Share FusedDecode::fill(const Inner& inner, int64_t first, const Mlp& mlp, Team& team,
                              const FloatRows& x) const {
  auto [from, to] = team.share(mlp.out.weight.columns, kRowMultiple);
  int64_t times = config_.gated ? 2 : 1;
  FloatRows out = inner.rows.rows(x.count, first), in = inner.pairs.rows(x.count, first);
  project(mlp.in, {from * times, to * times}, x, config_.gated ? in : out);
  for (int64_t b = 0; b < x.count; ++b)
    activate(in.data + b * in.stride, out.data + b * out.stride, {from, to});
  return {from, to};
}

void FusedDecode::mlp_in(const Layer& layer, Team& team, Scratch& scratch) const {
  if (layer.experts.empty()) {
    fill(inner_, 0, layer.mlp, team, scratch.normed.rows(rows_));
    return;
  }
  choose_routes(layer, scratch);
  each_expert(scratch.routes, [&](size_t e, int64_t first, int64_t count) {
    auto [from, to] =
        fill(expert_inner_, first, layer.experts[e], team, scratch.sorted.rows(count, first));
    FloatRows rows = expert_inner_.rows.rows(count, first);
    for (int64_t b = 0; b < count; ++b) {
      float* row = rows.data + b * rows.stride;
      float weight = scratch.routes[static_cast<size_t>(first + b)].weight;
      std::for_each(row + from, row + to, [&](float& v) { v *= weight; });
    }
  });
}

void FusedDecode::mlp_out(const Layer& layer, Team& team, const Scratch& scratch) const {
  if (layer.experts.empty()) return add_output(layer.mlp.out, team, inner_.rows);
  Team::Share share = team.share(config_.hidden, kRowMultiple);
  FloatRows x = x_.rows(rows_);
  each_expert(scratch.routes, [&](size_t e, int64_t first, int64_t count) {
    FloatRows y = out_.rows(count, first);
    project(layer.experts[e].out, share, expert_inner_.rows.rows(count, first), y);
    for (int64_t b = 0; b < count; ++b) {
      int64_t row = scratch.routes[static_cast<size_t>(first + b)].row;
      kernels_.add(y.data + b * y.stride + share.begin, share.end - share.begin,
                   x.data + row * x.stride + share.begin);
    }
  });
}

}  // namespace neox
