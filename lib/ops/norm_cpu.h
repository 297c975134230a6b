// The CPU halves of norm.h: rows from .. to - 1 of T. Included by norm.cc alone.
#pragma once
#include "ops/clones.h"
#include "ops/lanes.h"
#include "ops/norm.h"

namespace neox {
namespace {

using namespace lanes;

// sum <- x + ((added + added2) + bias).
template <class T>
[[gnu::always_inline]] inline void form_sum(const NormRows& r, int64_t start, const T* x, T* to) {
  auto row_of = [start](const void* t) { return t ? static_cast<const T*>(t) + start : nullptr; };
  const T *added = row_of(r.added), *added2 = row_of(r.added2),
          *bias = static_cast<const T*>(r.bias);
  for_lanes(
      r.columns, [&](int64_t i, auto part) __attribute__((always_inline)) {
        Lanes<Wide<T>> more{};
        if (added) more = load(added + i, part);
        if (added2) more = rounded<T>(more + load(added2 + i, part));
        if (bias) more += load(bias + i, part);
        store(to + i, load(x + i, part) + rounded<T>(more), part);
      });
}

// Mean and 1 / deviation of a row; the mean of an RMS norm is 0.
template <class T>
[[gnu::always_inline]] inline std::pair<Wide<T>, Wide<T>> statistics_of(const NormRows& r,
                                                                        const T* x) {
  using W = Wide<T>;
  auto C = static_cast<W>(r.columns);
  Lanes<W> total{}, squares{};
  if (r.options.kind == Norm::kLayerNorm)
    for_lanes(
        r.columns, [&](int64_t i, auto part)
                       __attribute__((always_inline)) { total += load(x + i, part); });
  W mean = sum<W>(total) / C;
  for_lanes(
      r.columns, [&](int64_t i, auto part) __attribute__((always_inline)) {
        Lanes<W> off = only(load(x + i, part) - mean, part);
        squares += off * off;
      });
  return {mean, 1 / std::sqrt(sum<W>(squares) / C + static_cast<W>(r.options.eps))};
}

template <class T>
NEOX_CLONES void norm_rows(const NormRows& r, int64_t from, int64_t to) {
  using W = Wide<T>;
  for (int64_t row = from; row < to; ++row) {
    int64_t start = row * r.columns;
    const T* x = static_cast<const T*>(r.x) + start;
    if (r.sum) {
      T* sum = static_cast<T*>(r.sum) + start;
      form_sum(r, start, x, sum);
      x = sum;
    }
    if (r.norms == 0) continue;
    auto [mean, scale] = statistics_of(r, x);
    static_cast<W*>(r.mean)[row] = mean;
    static_cast<W*>(r.scale)[row] = scale;
    for (int n = 0; n < r.norms; ++n) {
      auto *weight = static_cast<const T*>(r.weight[n]),
           *offset = static_cast<const T*>(r.offset[n]);
      T* out = static_cast<T*>(r.out[n]) + start;
      W shift = -mean * scale, factor = scale;  // of x to its normed value
      for_lanes(
          r.columns, [&](int64_t i, auto part) __attribute__((always_inline)) {
            Lanes<W> y = (load(x + i, part) * factor + shift) * load(weight + i, part);
            store(out + i, offset ? y + load(offset + i, part) : y, part);
          });
    }
  }
}

// A row of the backward pass: pointers to its elements.
template <class T>
struct NormGradientRow {
  using W = Wide<T>;
  const T *sum, *dout[2], *dsum, *weight[2];
  T* dx;
  W mean, scale;
  W* partial;
  NormGradientRow(const NormGradientRows& r, int64_t row, W* sums)
      : sum(static_cast<const T*>(r.sum) + row * r.columns),
        dsum(r.dsum ? static_cast<const T*>(r.dsum) + row * r.columns : nullptr),
        dx(static_cast<T*>(r.dx) + row * r.columns),
        mean(static_cast<const W*>(r.mean)[row]),
        scale(static_cast<const W*>(r.scale)[row]),
        partial(sums) {
    for (int n = 0; n < 2; ++n) {
      dout[n] = r.dout[n] ? static_cast<const T*>(r.dout[n]) + row * r.columns : nullptr;
      weight[n] = static_cast<const T*>(r.weight[n]);
    }
  }
};

// The gradient of the normed value at i, over all norms.
template <class T, class Part>
[[gnu::always_inline]] inline Lanes<Wide<T>> normed_gradient(const NormGradientRow<T>& g, int64_t i,
                                                             Part part) {
  Lanes<Wide<T>> d{};
  for (int n = 0; n < 2; ++n)
    if (g.dout[n]) d += load(g.dout[n] + i, part) * load(g.weight[n] + i, part);
  return d;
}

// The sums over the row of the gradient of the normed value, and of its product with that value.
// Adds to the columns' sums of the weights' gradients.
template <class T>
[[gnu::always_inline]] inline std::pair<Wide<T>, Wide<T>> gradient_sums(
    const NormGradientRows& r, const NormGradientRow<T>& g) {
  using W = Wide<T>;
  Lanes<W> plain{}, projected{};
  W shift = -g.mean * g.scale;
  for_lanes(
      r.columns, [&](int64_t i, auto part) __attribute__((always_inline)) {
        Lanes<W> normed = load(g.sum + i, part) * g.scale + shift;
        for (int n = 0; n < r.norms; ++n) {
          if (!g.dout[n]) continue;
          Lanes<W> d = load(g.dout[n] + i, part);
          add_to(g.partial + 2 * n * r.columns + i, d * normed, part);
          add_to(g.partial + (2 * n + 1) * r.columns + i, d, part);
        }
        Lanes<W> d = normed_gradient(g, i, part);
        plain += d;
        projected += d * normed;
      });
  return {sum<W>(plain), sum<W>(projected)};
}

// The gradient of the bias where nothing is normed.
template <class T>
NEOX_CLONES void bias_gradient_rows(const NormGradientRows& r, int64_t from, int64_t to,
                                    Wide<T>* partial) {
  for (int64_t row = from; row < to; ++row) {
    const T* d = static_cast<const T*>(r.dsum) + row * r.columns;
    for_lanes(
        r.columns, [&](int64_t i, auto part) __attribute__((always_inline)) {
          add_to(partial + i, load(d + i, part), part);
        });
  }
}

// partial: [sums, columns], to which these rows are added.
template <class T>
NEOX_CLONES void norm_gradient_rows(const NormGradientRows& r, int64_t from, int64_t to,
                                    Wide<T>* partial) {
  using W = Wide<T>;
  auto C = static_cast<W>(r.columns);
  bool centred = r.kind == Norm::kLayerNorm, bias = r.sums > 2 * r.norms;
  for (int64_t row = from; row < to; ++row) {
    NormGradientRow<T> g(r, row, partial);
    auto [plain, projected] = gradient_sums(r, g);
    W of_mean = centred ? plain / C : 0, of_deviation = projected / C, shift = -g.mean * g.scale;
    for_lanes(
        r.columns, [&](int64_t i, auto part) __attribute__((always_inline)) {
          Lanes<W> normed = load(g.sum + i, part) * g.scale + shift;
          Lanes<W> d = normed_gradient(g, i, part);
          d = (d - of_mean - normed * of_deviation) * g.scale;
          if (g.dsum) d += load(g.dsum + i, part);
          store(g.dx + i, d, part);
          if (bias) add_to(partial + 2 * r.norms * r.columns + i, rounded<T>(d), part);
        });
  }
}

}  // namespace
}  // namespace neox
