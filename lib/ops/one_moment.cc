#include "ops/one_moment.h"

#include <ATen/Parallel.h>

namespace neox {
namespace {

constexpr int64_t kGrain = 65536;  // elements that are worth a thread

template <class T>
T sign(T x) {
  return static_cast<T>((x > 0) - (x < 0));
}

template <class T>
struct SgdFactors {
  T scale, l2, momentum, fresh, of_gradient, of_moment, lr;
};

template <class T>
SgdFactors<T> factors(const SgdConstants& c, const UpdateScalars& s) {
  bool keeps = c.momentum != 0, nesterov = c.nesterov == Nesterov::kYes;
  double fresh = s.step.item<double>() == 1 ? 1 : 1 - c.dampening;
  return {static_cast<T>(s.scale.item<double>()),
          static_cast<T>(c.weight_decay),
          static_cast<T>(c.momentum),
          static_cast<T>(fresh),
          static_cast<T>(!keeps || nesterov ? 1 : 0),
          static_cast<T>(!keeps     ? 0
                         : nesterov ? c.momentum
                                    : 1),
          static_cast<T>(s.lr.item<double>())};
}

template <class T>
void sgd_range(T* param, const T* grad, T* m, int64_t n, const SgdFactors<T>& f) {
  for (int64_t i = 0; i < n; ++i) {
    T g = grad[i] * f.scale + f.l2 * param[i], moment = 0;
    if (m) moment = m[i] = f.momentum * m[i] + f.fresh * g;
    param[i] -= f.lr * (f.of_gradient * g + f.of_moment * moment);
  }
}

template <class T>
void sgd_cpu(const OneMomentRange& r, const SgdFactors<T>& f) {
  T *p = static_cast<T*>(r.param), *pm = static_cast<T*>(r.m);
  const T* g = static_cast<const T*>(r.grad);
  at::parallel_for(0, r.n, kGrain, [&](int64_t from, int64_t to) {
    sgd_range(p + from, g + from, pm ? pm + from : nullptr, to - from, f);
  });
}

template <class T>
void lion_cpu(const OneMomentRange& r, const LionConstants& c, const UpdateScalars& s) {
  T *p = static_cast<T*>(r.param), *pm = static_cast<T*>(r.m);
  const T* g = static_cast<const T*>(r.grad);
  double rate = s.lr.item<double>();
  auto scale = static_cast<T>(s.scale.item<double>()), lr = static_cast<T>(rate),
       keep = static_cast<T>(1 - rate * c.weight_decay), beta1 = static_cast<T>(c.beta1),
       rest1 = static_cast<T>(1 - c.beta1), beta2 = static_cast<T>(c.beta2),
       rest2 = static_cast<T>(1 - c.beta2);
  at::parallel_for(0, r.n, kGrain, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      T x = g[i] * scale;
      p[i] = p[i] * keep - lr * sign(beta1 * pm[i] + rest1 * x);
      pm[i] = beta2 * pm[i] + rest2 * x;
    }
  });
}

OneMomentRange range_of(const char* name, at::Tensor& param, const at::Tensor& grad,
                        at::Tensor& m) {
  return {update_type(name, param, grad, {m}), param.numel(), param.mutable_data_ptr(),
          grad.const_data_ptr(), m.defined() ? m.mutable_data_ptr() : nullptr};
}

}  // namespace

void sgd(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, const SgdConstants& constants,
         const UpdateScalars& s) {
  OneMomentRange r = range_of("SGD", param, grad, m);
  if (param.is_cuda()) return sgd_cuda(r, constants, device_scalars(s));
  if (s.finite.item<double>() == 0) return;
  if (r.type == Element::kFloat)
    sgd_cpu<float>(r, factors<float>(constants, s));
  else
    sgd_cpu<double>(r, factors<double>(constants, s));
}

void lion(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, const LionConstants& constants,
          const UpdateScalars& s) {
  OneMomentRange r = range_of("Lion", param, grad, m);
  if (param.is_cuda()) return lion_cuda(r, constants, device_scalars(s));
  if (s.finite.item<double>() == 0) return;
  if (r.type == Element::kFloat)
    lion_cpu<float>(r, constants, s);
  else
    lion_cpu<double>(r, constants, s);
}

}  // namespace neox
