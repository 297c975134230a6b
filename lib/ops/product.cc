#include "ops/product.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace neox {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr int64_t kManyRows = 256;  // from here on converting w costs little beside the product

#if defined(__x86_64__)
bool has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 22 & 1) != 0;  // AMX-BF16
}

bool fast_in_half() {
  if (has_amx()) return true;
  return __builtin_cpu_supports("avx512bf16") && !__builtin_cpu_is("intel");
}
#else
bool fast_in_half() { return true; }
#endif

Tensor rows_of(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

class ProductInFp32 : public torch::autograd::Function<ProductInFp32> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& w,
                        const std::optional<Tensor>& b) {
    context->save_for_backward({x, w});
    context->saved_data["bias"] = b.has_value();
    Tensor bias = b ? b->to(at::kFloat) : Tensor();
    return at::linear(x.to(at::kFloat), w.to(at::kFloat), bias).to(x.scalar_type());
  }
  static tensor_list backward(AutogradContext* context, tensor_list grad) {
    auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &w = saved[1];
    at::ScalarType type = x.scalar_type();
    Tensor dy = rows_of(grad[0]).to(at::kFloat), dx, dw, db;
    if (context->needs_input_grad(0)) dx = at::mm(dy, w.to(at::kFloat)).to(type).view(x.sizes());
    if (context->needs_input_grad(1)) dw = at::mm(dy.t(), rows_of(x).to(at::kFloat)).to(type);
    if (context->saved_data["bias"].toBool() && context->needs_input_grad(2))
      db = dy.sum(0).to(type);
    return {dx, dw, db};
  }
};

}  // namespace

bool cpu_is_slow_in_half() {
  static const bool kSlow = !fast_in_half();
  return kSlow;
}

bool multiplied_in_fp32(const Tensor& x) {
  bool half = x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf;
  return half && x.is_cpu() && cpu_is_slow_in_half() && x.numel() >= kManyRows * x.size(-1);
}

Tensor product(const Tensor& x, const Tensor& w, const Tensor& b) {
  if (multiplied_in_fp32(x)) return product_in_fp32(x, w, b);
  return at::linear(x, w, b);
}

Tensor product_in_fp32(const Tensor& x, const Tensor& w, const Tensor& b) {
  return ProductInFp32::apply(x, w, b.defined() ? std::optional<Tensor>(b) : std::nullopt);
}

}  // namespace neox
