#include <c10/cuda/CUDAStream.h>

#include <algorithm>

#include "base/error.h"
#include "ops/adamw.h"
#include "ops/cuda_build.h"

namespace neox {
namespace {

template <class T>
__global__ void adamw_kernel(T* param, const T* grad, T* m, T* v, int64_t n, AdamWConstants c,
                             UpdateDeviceScalars s) {
  if (*s.finite == 0) return;
  double lr = *s.lr, correction1 = 1 - c.bias_correction * pow(c.beta1, *s.step),
         correction2 = 1 - c.bias_correction * pow(c.beta2, *s.step);
  // 1 - beta in double: 1 - float(0.999) is 1.3e-5 off.
  T beta1 = c.beta1, beta2 = c.beta2, rest1 = 1 - c.beta1, rest2 = 1 - c.beta2, eps = c.eps,
    keep = 1 - lr * c.weight_decay, step_size = lr / correction1,
    root_correction = 1 / sqrt(correction2), scale = *s.scale, l2 = c.l2;
  int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) {
    T g = grad[i] * scale + l2 * param[i];
    m[i] = beta1 * m[i] + rest1 * g;
    v[i] = beta2 * v[i] + rest2 * g * g;
    T root = sqrt(v[i]) * root_correction;
    param[i] = param[i] * keep - step_size * m[i] / (root + eps);
  }
}

}  // namespace

bool built_with_cuda() { return true; }

void adamw_cuda(void* param, const void* grad, void* m, void* v, UpdateType type, int64_t n,
                const AdamWConstants& constants, const UpdateDeviceScalars& scalars) {
  if (n == 0) return;
  int threads = 256;
  auto blocks = static_cast<unsigned>(std::min<int64_t>((n + threads - 1) / threads, 16384));
  auto run = [&]<class T>(T* p) {
    adamw_kernel<T><<<blocks, threads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        p, static_cast<const T*>(grad), static_cast<T*>(m), static_cast<T*>(v), n, constants,
        scalars);
  };
  if (type == UpdateType::kFloat)
    run(static_cast<float*>(param));
  else
    run(static_cast<double*>(param));
  cudaError_t status = cudaGetLastError();
  check(status == cudaSuccess, "AdamW of ", n, " elements: ", cudaGetErrorString(status));
}

}  // namespace neox
