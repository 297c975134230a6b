#include "ops/adamw.h"

#include <ATen/Parallel.h>

#include <cmath>

namespace neox {
namespace {

template <class T>
struct Factors {  // what does not depend on the element
  T beta1, beta2, rest1, rest2, eps, keep, step_size, root_correction, scale, l2;
};

template <class T>
Factors<T> factors(const AdamWConstants& c, double lr, double scale, double step) {
  double correction1 = 1 - c.bias_correction * std::pow(c.beta1, step),
         correction2 = 1 - c.bias_correction * std::pow(c.beta2, step);
  return {static_cast<T>(c.beta1),
          static_cast<T>(c.beta2),
          static_cast<T>(1 - c.beta1),  // in double: 1 - float(0.999) is 1.3e-5 off
          static_cast<T>(1 - c.beta2),
          static_cast<T>(c.eps),
          static_cast<T>(1 - lr * c.weight_decay),
          static_cast<T>(lr / correction1),
          static_cast<T>(1 / std::sqrt(correction2)),
          static_cast<T>(scale),
          static_cast<T>(c.l2)};
}

template <class T>
[[gnu::always_inline]] inline void update(T* param, const T* grad, T* m, T* v, int64_t n,
                                          const Factors<T>& f) {
  for (int64_t i = 0; i < n; ++i) {
    T g = grad[i] * f.scale + f.l2 * param[i];
    m[i] = f.beta1 * m[i] + f.rest1 * g;
    v[i] = f.beta2 * v[i] + f.rest2 * g * g;
    T root = std::sqrt(v[i]) * f.root_correction;
    param[i] = param[i] * f.keep - f.step_size * m[i] / (root + f.eps);
  }
}

// The clone for this CPU is chosen when the program is loaded; each is vectorised for its
// instruction set.
[[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]] void update_range(
    float* param, const float* grad, float* m, float* v, int64_t n, const Factors<float>& f) {
  update(param, grad, m, v, n, f);
}

[[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]] void update_range(
    double* param, const double* grad, double* m, double* v, int64_t n, const Factors<double>& f) {
  update(param, grad, m, v, n, f);
}

template <class T>
void adamw_cpu(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, at::Tensor& v,
               const Factors<T>& f) {
  T *p = param.mutable_data_ptr<T>(), *pm = m.mutable_data_ptr<T>(), *pv = v.mutable_data_ptr<T>();
  const T* g = grad.const_data_ptr<T>();
  at::parallel_for(0, param.numel(), 65536, [&](int64_t from, int64_t to) {
    update_range(p + from, g + from, pm + from, pv + from, to - from, f);
  });
}

}  // namespace

void adamw(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, at::Tensor& v,
           const AdamWConstants& constants, const UpdateScalars& s) {
  UpdateType type = update_type("AdamW", param, grad, {m, v});
  if (param.is_cuda())
    return adamw_cuda(param.mutable_data_ptr(), grad.const_data_ptr(), m.mutable_data_ptr(),
                      v.mutable_data_ptr(), type, param.numel(), constants, device_scalars(s));
  if (s.finite.item<double>() == 0) return;
  double lr = s.lr.item<double>(), scale = s.scale.item<double>(), step = s.step.item<double>();
  if (type == UpdateType::kFloat)
    adamw_cpu<float>(param, grad, m, v, factors<float>(constants, lr, scale, step));
  else
    adamw_cpu<double>(param, grad, m, v, factors<double>(constants, lr, scale, step));
}

}  // namespace neox
