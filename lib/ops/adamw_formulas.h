// The arithmetic of AdamW, for CPU and CUDA kernels.
#pragma once
#include <cmath>

#include "ops/adamw.h"
#include "ops/philox.h"

namespace neox {

// What does not depend on the element.
template <class T>
struct AdamWFactors {
  T beta1, beta2, rest1, rest2, eps, keep, step_size, root_correction, scale, l2;
};

template <class T>
NEOX_HOST_DEVICE AdamWFactors<T> adamw_factors(const AdamWConstants& c, double lr, double scale,
                                               double step) {
  using std::pow, std::sqrt;
  double correction1 = 1 - c.bias_correction * pow(c.beta1, step),
         correction2 = 1 - c.bias_correction * pow(c.beta2, step);
  return {static_cast<T>(c.beta1),
          static_cast<T>(c.beta2),
          static_cast<T>(1 - c.beta1),  // in double: 1 - float(0.999) is 1.3e-5 off
          static_cast<T>(1 - c.beta2),
          static_cast<T>(c.eps),
          static_cast<T>(1 - lr * c.weight_decay),
          static_cast<T>(lr / correction1),
          static_cast<T>(1 / sqrt(correction2)),
          static_cast<T>(scale),
          static_cast<T>(c.l2)};
}

// One element; gradient is as it lies in the buffer.
template <class T>
[[gnu::always_inline]] NEOX_HOST_DEVICE inline void adamw_element(T& param, T gradient, T& m, T& v,
                                                                  const AdamWFactors<T>& f) {
  using std::sqrt;
  T g = gradient * f.scale + f.l2 * param;
  m = f.beta1 * m + f.rest1 * g;
  v = f.beta2 * v + f.rest2 * g * g;
  T root = sqrt(v) * f.root_correction;
  param = param * f.keep - f.step_size * m / (root + f.eps);
}

}  // namespace neox
