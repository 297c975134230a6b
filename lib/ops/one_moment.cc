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
void sgd_cpu(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, const SgdFactors<T>& f) {
  T *p = param.mutable_data_ptr<T>(), *pm = m.defined() ? m.mutable_data_ptr<T>() : nullptr;
  const T* g = grad.const_data_ptr<T>();
  at::parallel_for(0, param.numel(), kGrain, [&](int64_t from, int64_t to) {
    sgd_range(p + from, g + from, pm ? pm + from : nullptr, to - from, f);
  });
}

template <class T>
void lion_cpu(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, const LionConstants& c,
              const UpdateScalars& s) {
  T *p = param.mutable_data_ptr<T>(), *pm = m.mutable_data_ptr<T>();
  const T* g = grad.const_data_ptr<T>();
  double rate = s.lr.item<double>();
  auto scale = static_cast<T>(s.scale.item<double>()), lr = static_cast<T>(rate),
       keep = static_cast<T>(1 - rate * c.weight_decay), beta1 = static_cast<T>(c.beta1),
       rest1 = static_cast<T>(1 - c.beta1), beta2 = static_cast<T>(c.beta2),
       rest2 = static_cast<T>(1 - c.beta2);
  at::parallel_for(0, param.numel(), kGrain, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      T x = g[i] * scale;
      p[i] = p[i] * keep - lr * sign(beta1 * pm[i] + rest1 * x);
      pm[i] = beta2 * pm[i] + rest2 * x;
    }
  });
}

}  // namespace

void sgd(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, const SgdConstants& constants,
         const UpdateScalars& s) {
  UpdateType type = update_type("SGD", param, grad, {m});
  if (param.is_cuda())
    return sgd_cuda(param.mutable_data_ptr(), grad.const_data_ptr(),
                    m.defined() ? m.mutable_data_ptr() : nullptr, type, param.numel(), constants,
                    device_scalars(s));
  if (s.finite.item<double>() == 0) return;
  if (type == UpdateType::kFloat)
    sgd_cpu<float>(param, grad, m, factors<float>(constants, s));
  else
    sgd_cpu<double>(param, grad, m, factors<double>(constants, s));
}

void lion(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, const LionConstants& constants,
          const UpdateScalars& s) {
  UpdateType type = update_type("Lion", param, grad, {m});
  if (param.is_cuda())
    return lion_cuda(param.mutable_data_ptr(), grad.const_data_ptr(), m.mutable_data_ptr(), type,
                     param.numel(), constants, device_scalars(s));
  if (s.finite.item<double>() == 0) return;
  if (type == UpdateType::kFloat)
    lion_cpu<float>(param, grad, m, constants, s);
  else
    lion_cpu<double>(param, grad, m, constants, s);
}

}  // namespace neox
