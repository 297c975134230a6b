#include "ops/cross_entropy.h"

#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/record_function.h>

#include <limits>

#include "base/error.h"
#include "ops/clones.h"
#include "ops/lanes.h"

namespace neox {
namespace {

using namespace lanes;
using at::Tensor;

template <class T>
struct Row {
  using W = Wide<T>;
  T* logits;
  int64_t columns, target;  // target: a column, or outside
  bool has_target() const { return target >= 0 && target < columns; }
};

// As row_max() of softmax_rows.h.
template <class T>
NEOX_CLONES Wide<T> max_of(const T* x, int64_t n) {
  using W = Wide<T>;
  W top = -std::numeric_limits<W>::infinity();
#pragma omp simd reduction(max : top)
  for (int64_t i = 0; i < n; ++i) top = static_cast<W>(x[i]) > top ? static_cast<W>(x[i]) : top;
  return top;
}

// The sum of exp(x - top).
template <class T>
NEOX_CLONES Wide<T> exp_sum_of(const T* x, int64_t n, Wide<T> top) {
  using W = Wide<T>;
  Lanes<W> a{}, b{};
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    a += exp_of(load(x + i) - top);
    b += exp_of(load(x + i + kLanes) - top);
  }
  for (; i < n; i += kLanes) {
    First rest{n - i < kLanes ? n - i : kLanes};
    a += only(exp_of(load(x + i, rest, top) - top), rest);
  }
  return sum<W>(a + b);
}

// x -> exp(x - top) scale.
template <class T>
NEOX_CLONES void scale_exp(T* x, int64_t n, Wide<T> top, Wide<T> scale) {
  for_lanes(
      n, [&](int64_t i, auto part) __attribute__((always_inline)) {
        store(x + i, exp_of(load(x + i, part) - top) * scale, part);
      });
}

template <class T>
void gradient_of(const Row<T>& row, Wide<T> top, Wide<T> sum, Wide<T> factor) {
  using W = Wide<T>;
  W scale = factor / sum, chosen = 0;
  // The probability of the target and 1 are close to each other: T would round their difference.
  if (row.has_target()) chosen = static_cast<W>(row.logits[row.target]);
  scale_exp(row.logits, row.columns, top, scale);
  if (row.has_target())
    row.logits[row.target] = static_cast<T>(std::exp(chosen - top) * scale - factor);
}

// Calls work(row, index) for all rows, in parallel.
template <class T, class Work>
void for_rows(const CrossEntropyRows& r, const Work& work) {
  int64_t grain = std::max<int64_t>(1, 32768 / std::max<int64_t>(1, r.columns));
  at::parallel_for(0, r.rows, grain, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i)
      work(Row<T>{static_cast<T*>(r.logits) + i * r.columns, r.columns, r.target[i] - r.first}, i);
  });
}

template <class T>
void gradients_cpu(const CrossEntropyRows& r) {
  auto *top = static_cast<Wide<T>*>(r.top), *sums = static_cast<Wide<T>*>(r.sums);
  auto* factor = static_cast<const Wide<T>*>(r.factor);
  for_rows<T>(r,
              [&](const Row<T>& row, int64_t i) { gradient_of(row, top[i], sums[i], factor[i]); });
}

// One row after the other stays in the cache.
template <class T>
void cross_entropy_cpu(const CrossEntropyRows& r) {
  auto *top = static_cast<Wide<T>*>(r.top), *sums = static_cast<Wide<T>*>(r.sums);
  auto* factor = static_cast<const Wide<T>*>(r.factor);
  for_rows<T>(r, [&](const Row<T>& row, int64_t i) {
    top[i] = max_of(row.logits, row.columns);
    bool any = top[i] > -std::numeric_limits<Wide<T>>::infinity();
    sums[i] = exp_sum_of(row.logits, row.columns, any ? top[i] : Wide<T>(0));
    sums[r.rows + i] = row.has_target() ? static_cast<Wide<T>>(row.logits[row.target]) : 0;
    if (factor) gradient_of(row, top[i], sums[i], factor[i]);
  });
}

at::ScalarType statistics(const Tensor& logits) { return at::toOpMathType(logits.scalar_type()); }

Tensor new_statistics(const Tensor& logits, at::IntArrayRef shape) {
  return at::empty(shape, logits.options().dtype(statistics(logits)));
}

void check_statistics(const char* name, const Tensor& t, const Tensor& logits, int64_t size) {
  check(t.scalar_type() == statistics(logits) && t.is_contiguous() && t.numel() == size,
        "cross entropy of logits ", logits.sizes(), " of type ", logits.scalar_type(), ": ", name,
        " is ", t.sizes(), " of type ", t.scalar_type());
}

CrossEntropyRows rows_of(const Tensor& logits, const Tensor& targets, int64_t first) {
  check(logits.dim() == 2 && logits.is_contiguous() && logits.size(1) > 0,
        "cross entropy takes contiguous logits [N, V], not ", logits.sizes());
  CrossEntropyRows r{element_of("cross entropy", logits.scalar_type()),
                     logits.size(0),
                     logits.size(1),
                     nullptr,
                     first,
                     const_cast<void*>(logits.const_data_ptr()),
                     nullptr,
                     nullptr,
                     nullptr};
  check(targets.scalar_type() == at::kLong && targets.is_contiguous() && targets.numel() == r.rows,
        "cross entropy of logits ", logits.sizes(), ": targets are ", targets.sizes(), " of type ",
        targets.scalar_type());
  r.target = targets.const_data_ptr<int64_t>();
  return r;
}

// [3, N]: maximum, sum and target's logit; with a factor logits turn into gradients.
Tensor statistics_of(CrossEntropyRows& r, const Tensor& logits) {
  Tensor found = new_statistics(logits, {3, r.rows});
  r.top = found.mutable_data_ptr();
  r.sums = found.narrow(0, 1, 2).mutable_data_ptr();
  if (logits.is_cuda()) {
    cross_entropy_cuda(r);
  } else {
    with_cpu_type(r.type, [&]<class T>(T*) { cross_entropy_cpu<T>(r); });
  }
  return found;
}

}  // namespace

Tensor row_statistics(const Tensor& logits, const LogitTargets& targets) {
  CrossEntropyRows r = rows_of(logits, targets.column, targets.first);
  return statistics_of(r, logits);
}

Tensor sums_below(const Tensor& top, const Tensor& statistics) {
  Tensor sums = statistics.narrow(0, 1, 2).clone();
  sums[0].mul_((statistics[0] - top).exp_());
  return sums;
}

void gradients_(Tensor& logits, const Tensor& top, const Tensor& sums, const LogitTargets& targets,
                const Tensor& factor) {
  CrossEntropyRows r = rows_of(logits, targets.column, targets.first);
  check_statistics("the maximum", top, logits, r.rows);
  check_statistics("the sums", sums, logits, 2 * r.rows);
  check_statistics("the factor", factor, logits, r.rows);
  r.logits = logits.mutable_data_ptr();
  r.top = const_cast<void*>(top.const_data_ptr());
  r.sums = const_cast<void*>(sums.const_data_ptr());
  r.factor = factor.const_data_ptr();
  if (logits.is_cuda()) return gradients_cuda(r);
  with_cpu_type(r.type, [&]<class T>(T*) { gradients_cpu<T>(r); });
}

Tensor cross_entropy_(Tensor& logits, const Tensor& targets, const Tensor& factor) {
  RECORD_FUNCTION("neox::cross_entropy", std::vector<c10::IValue>({logits}));
  CrossEntropyRows r = rows_of(logits, targets, 0);
  if (factor.defined()) {
    check_statistics("the factor", factor, logits, r.rows);
    r.logits = logits.mutable_data_ptr();
    r.factor = factor.const_data_ptr();
  }
  Tensor found = statistics_of(r, logits);
  return found[1].log().sub_(found[2] - found[0]);
}

}  // namespace neox
