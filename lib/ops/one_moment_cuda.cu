#include "ops/cuda_kernels.cuh"
#include "ops/one_moment.h"

namespace neox {
namespace {

using namespace cuda;

template <class T>
__global__ void sgd_kernel(T* param, const T* grad, T* m, int64_t n, SgdConstants c,
                           UpdateDeviceScalars s) {
  if (*s.finite == 0) return;
  bool nesterov = c.nesterov == Nesterov::kYes;
  T scale = *s.scale, l2 = c.weight_decay, momentum = c.momentum, lr = *s.lr,
    fresh = *s.step == 1 ? 1 : 1 - c.dampening, of_gradient = !m || nesterov ? 1 : 0,
    of_moment = !m         ? 0
                : nesterov ? c.momentum
                           : 1;
  int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) {
    T g = grad[i] * scale + l2 * param[i], moment = 0;
    if (m) moment = m[i] = momentum * m[i] + fresh * g;
    param[i] -= lr * (of_gradient * g + of_moment * moment);
  }
}

template <class T>
__global__ void lion_kernel(T* param, const T* grad, T* m, int64_t n, LionConstants c,
                            UpdateDeviceScalars s) {
  if (*s.finite == 0) return;
  T scale = *s.scale, lr = *s.lr, keep = 1 - *s.lr * c.weight_decay, beta1 = c.beta1,
    rest1 = 1 - c.beta1, beta2 = c.beta2, rest2 = 1 - c.beta2;
  int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) {
    T g = grad[i] * scale, direction = beta1 * m[i] + rest1 * g;
    param[i] = param[i] * keep - lr * static_cast<T>((direction > 0) - (direction < 0));
    m[i] = beta2 * m[i] + rest2 * g;
  }
}

constexpr int kThreads = 256;

unsigned blocks_of(int64_t n) { return blocks((n + kThreads - 1) / kThreads, 16384); }

}  // namespace

void sgd_cuda(const OneMomentRange& r, const SgdConstants& constants,
              const UpdateDeviceScalars& scalars) {
  if (r.n == 0) return;
  auto run = [&]<class T>(T* p) {
    sgd_kernel<T><<<blocks_of(r.n), kThreads, 0, stream()>>>(
        p, static_cast<const T*>(r.grad), static_cast<T*>(r.m), r.n, constants, scalars);
  };
  if (r.type == Element::kFloat)
    run(static_cast<float*>(r.param));
  else
    run(static_cast<double*>(r.param));
  check_launch("SGD", r.n, 1);
}

void lion_cuda(const OneMomentRange& r, const LionConstants& constants,
               const UpdateDeviceScalars& scalars) {
  if (r.n == 0) return;
  auto run = [&]<class T>(T* p) {
    lion_kernel<T><<<blocks_of(r.n), kThreads, 0, stream()>>>(
        p, static_cast<const T*>(r.grad), static_cast<T*>(r.m), r.n, constants, scalars);
  };
  if (r.type == Element::kFloat)
    run(static_cast<float*>(r.param));
  else
    run(static_cast<double*>(r.param));
  check_launch("Lion", r.n, 1);
}

}  // namespace neox
