#include "ops/adamw.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/record_function.h>

#include <algorithm>

#include "base/error.h"
#include "ops/adamw_formulas.h"
#include "ops/clones.h"
#include "ops/lanes.h"

namespace neox {
namespace {

using namespace lanes;

// The clone for this CPU is chosen when the program is loaded; each is vectorised for its
// instruction set.
template <class T, class Copy>
NEOX_CLONES void update_range(const AdamWRange& r, int64_t from, int64_t to,
                              const AdamWFactors<T>& f) {
  T *param = static_cast<T*>(r.param), *m = static_cast<T*>(r.m), *v = static_cast<T*>(r.v);
  const T* grad = static_cast<const T*>(r.grad);
#pragma omp simd
  for (int64_t i = from; i < to; ++i) adamw_element(param[i], grad[i], m[i], v[i], f);
  if constexpr (!std::is_void_v<Copy>) {
    Copy* copy = static_cast<Copy*>(r.copy);
    for_lanes(
        to - from, [&](int64_t i, auto part) __attribute__((always_inline)) {
          if constexpr (std::is_same_v<T, Wide<Copy>>)
            store(copy + from + i, load(param + from + i, part), part);
          else
            store(copy + from + i,
                  __builtin_convertvector(load(param + from + i, part), Lanes<float>), part);
        });
  }
}

constexpr int64_t kGrain = 65536, kInCache = 4096;  // elements

template <class T, class Copy>
void adamw_cpu(const AdamWRange& r, const AdamWFactors<T>& f) {
  at::parallel_for(0, r.n, kGrain, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i += kInCache)
      update_range<T, Copy>(r, i, std::min(i + kInCache, to), f);
  });
}

template <class T>
void adamw_cpu(const AdamWRange& r, const AdamWFactors<T>& f) {
  if (!r.copy) return adamw_cpu<T, void>(r, f);
  if (r.copy_type == Element::kBFloat16) return adamw_cpu<T, c10::BFloat16>(r, f);
  if (r.copy_type == Element::kHalf) return adamw_cpu<T, c10::Half>(r, f);
  adamw_cpu<T, float>(r, f);
}

AdamWRange range_of(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, at::Tensor& v,
                    const at::Tensor& copy) {
  AdamWRange r{update_type("AdamW", param, grad, {m, v}),
               param.numel(),
               param.mutable_data_ptr(),
               grad.const_data_ptr(),
               m.mutable_data_ptr(),
               v.mutable_data_ptr(),
               nullptr,
               Element::kFloat};
  if (!copy.defined()) return r;
  r.copy_type = element_of("AdamW", copy.scalar_type());
  check(r.copy_type != Element::kDouble && copy.numel() == r.n && copy.is_contiguous() &&
            copy.device() == param.device(),
        "AdamW: a copy of ", copy.numel(), " elements of type ", copy.scalar_type(), " of ", r.n,
        " parameters");
  r.copy = copy.mutable_data_ptr();
  return r;
}

// In lanes of double.
template <class T>
NEOX_CLONES double squares_of(const T* x, int64_t n) {
  Lanes<double> a{};
  for_lanes(
      n, [&](int64_t i, auto part) __attribute__((always_inline)) {
        Lanes<double> v = __builtin_convertvector(load(x + i, part), Lanes<double>);
        a += v * v;
      });
  return sum<double>(a);
}

void sum_of_squares_cpu(const SquaresRange& r) {
  with_cpu_type(r.type, [&]<class T>(T*) {
    const T* from = static_cast<const T*>(r.x);
    at::parallel_for(0, r.parts, 1, [&](int64_t first, int64_t last) {
      for (int64_t p = first; p < last; ++p)
        r.sums[p] = r.weight * squares_of<T>(from + p * kGrain, std::min(kGrain, r.n - p * kGrain));
    });
  });
}

int64_t parts_of(const at::Tensor& x) {
  if (x.numel() == 0) return 0;
  return x.is_cuda() ? sum_of_squares_parts_cuda(x.numel()) : (x.numel() + kGrain - 1) / kGrain;
}

}  // namespace

void adamw(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, at::Tensor& v,
           const AdamWConstants& constants, const UpdateScalars& s, const at::Tensor& copy) {
  RECORD_FUNCTION("neox::adamw", std::vector<c10::IValue>({param}));
  AdamWRange r = range_of(param, grad, m, v, copy);
  if (param.is_cuda()) return adamw_cuda(r, constants, device_scalars(s));
  if (s.finite.item<double>() == 0) return;
  double lr = s.lr.item<double>(), scale = s.scale.item<double>(), step = s.step.item<double>();
  if (r.type == Element::kFloat)
    adamw_cpu<float>(r, adamw_factors<float>(constants, lr, scale, step));
  else
    adamw_cpu<double>(r, adamw_factors<double>(constants, lr, scale, step));
}

at::Tensor sum_of_squares(const std::vector<WeightedSquares>& tensors) {
  RECORD_FUNCTION("neox::sum_of_squares", std::vector<c10::IValue>());
  check(!tensors.empty(), "the norm of gradients takes one tensor or more");
  int64_t all = 0;
  for (const WeightedSquares& t : tensors) all += parts_of(t.x);
  at::Tensor partial = at::empty({all}, tensors[0].x.options().dtype(at::kDouble));
  auto* sums = partial.mutable_data_ptr<double>();
  for (const auto& [x, weight] : tensors) {
    check(x.is_contiguous(), "the norm of gradients takes contiguous tensors");
    SquaresRange r{x.const_data_ptr(),
                   element_of("the norm of gradients", x.scalar_type()),
                   x.numel(),
                   weight,
                   sums,
                   parts_of(x)};
    if (r.parts > 0) x.is_cuda() ? sum_of_squares_cuda(r) : sum_of_squares_cpu(r);
    sums += r.parts;
  }
  return partial.sum();
}

}  // namespace neox
