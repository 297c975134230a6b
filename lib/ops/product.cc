#include "ops/product.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdlib>
#include <utility>

#include "ops/bf16_product.h"
#include "ops/leaf_gradient.h"

// MKL, inside LibTorch, asks this function of its own, and takes kernels without AVX-512 on
// processors of other makers that have it: with this one in its place, fp32 products of a Zen 4
// core went from 80 to 105 GFLOP/s, of 115.
extern "C" int mkl_serv_intel_cpu_true() { return 1; }
// What mkl_cbwr_set() and MKL's vector functions call; absent from LibTorch where that has no MKL.
extern "C" __attribute__((weak)) int mkl_serv_cbwr_set(int);
extern "C" __attribute__((weak)) int mkl_vml_serv_cpu_detect();

namespace neox {
namespace {

// With its kernels for AVX2 sums depend on the number of threads and on where matrices lie, so that
// resumed runs could differ in last bits, unless it is asked for the same bits, which costs nothing
// (two cores of a Zen 3, step of the 70M shape: 94 to 113 GFLOP/s without, 103 to 114 with). Those
// for AVX-512 are not asked: sums of small products depend on the number of threads there (128 x
// 384 x 128 on 8), and strictness costs products with such a depth 6 to 9 %. MKL_CBWR=AVX512,STRICT
// asks.
void ask_mkl_for_the_same_bits() {
#if defined(__x86_64__)
  constexpr int kAvx2Strict = 10 | 0x10000;  // MKL_CBWR_AVX2 | MKL_CBWR_STRICT
  bool avx2 = __builtin_cpu_supports("avx2") && !__builtin_cpu_supports("avx512f");
  if (avx2 && mkl_serv_cbwr_set && !std::getenv("MKL_CBWR")) mkl_serv_cbwr_set(kAvx2Strict);
#endif
}

// The first vector function of MKL 2024.2 finds out what the processor is, in two stores without a
// lock. A thread that comes in between takes another kernel: where there is AVX-512, one with
// errors of up to 1.5e-4 in cos, sin, exp and log (pytorch #188792; MKL 2025 mends it), and a table
// of rotary positions that it fills stays wrong for the whole run. So this one thread asks first.
void let_mkl_find_the_processor() {
  if (mkl_vml_serv_cpu_detect) mkl_vml_serv_cpu_detect();
}

// In this order: MKL is asked for bits only before it knows the processor.
[[maybe_unused]] const bool kPrepared =
    (ask_mkl_for_the_same_bits(), let_mkl_find_the_processor(), true);

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// From here on it is faster to convert w (fp16, w 2048 x 512, one Zen 1 core: 4 rows 1.4 ms as they
// are and 2.1 converted, 16 rows 5.6 and 4.1, 248 rows 83 and 17; the gradients 551 + 258 and 33,
// and with one row already 5.1 and 1.4).
constexpr int64_t kManyRows = 8;
// From here on the kernels of bf16 are faster than oneDNN's (16 rows, K = 768, N = 3072, one Zen 4
// core: 85 and 81 GFLOP/s; 32 rows: 162 and 125; 128 rows: 183 and 146).
constexpr int64_t kKernelRows = 16;

Tensor rows_of(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

void multiply(const Tensor& x, const Tensor& w, const Tensor& b, Tensor y) {
  if (bf16_multiplies(x))
    bf16_product_out(y, x, w, b);
  else if (b.defined())
    at::addmm_out(y, b, x, w.t());
  else
    at::mm_out(y, x, w.t());
}

Tensor input_gradient(const Tensor& dy, const Tensor& w) {
  if (!bf16_multiplies(dy)) return at::mm(dy, w);
  Tensor dx = at::empty({dy.size(0), w.size(1)}, dy.options());
  bf16_product_out(dx, dy, w.t());
  return dx;
}

at::ScalarType gradient_type(const Tensor& w) { return w.grad_dtype().value_or(w.scalar_type()); }

// The gradient that is kept for w, where products of x can be added to it: our kernels add to fp32.
Tensor sum_of_products(const Tensor& w, const Tensor& x) {
  Tensor kept = kept_gradient(w, at::toOpMathType(x.scalar_type()));
  return kept.defined() || bf16_multiplies(x) ? kept : kept_gradient(w, x.scalar_type());
}

// Undefined where it has been added already.
Tensor weight_gradient(const Tensor& w, const Tensor& dy, const Tensor& x) {
  Tensor kept = sum_of_products(w, x);
  if (kept.defined()) {
    add_product(kept, dy.t(), x);
    return {};
  }
  if (!bf16_multiplies(x)) return at::mm(dy.t(), x).to(gradient_type(w));
  Tensor dw = at::empty(w.sizes(), w.options().dtype(gradient_type(w)));
  bf16_product_out(dw, dy.t(), x.t());
  return dw;
}

// What a product leaves behind for the gradient of its weights. x is not read before that: it may
// be filled again until then (GatheredNorms).
struct Factors : torch::CustomClassHolder {
  Tensor dy, x;
};

c10::intrusive_ptr<Factors> factors_in(AutogradContext& context) {
  auto found = context.saved_data.find("factors");
  if (found == context.saved_data.end()) return nullptr;
  return c10::static_intrusive_pointer_cast<Factors>(found->second.toCapsule());
}

class LaterGradient : public torch::autograd::Function<LaterGradient> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& w) {
    context->save_for_backward({w});
    context->saved_data["factors"] = c10::IValue::make_capsule(c10::make_intrusive<Factors>());
    context->set_materialize_grads(false);
    return w.view_as(w);
  }
  static tensor_list backward(AutogradContext* context, tensor_list) {
    auto factors = factors_in(*context);
    Tensor dy = std::exchange(factors->dy, {}), x = std::exchange(factors->x, {});
    return {weight_gradient(context->get_saved_variables()[0], dy, x.to(dy.scalar_type()))};
  }
  // Those of the node that made w; null where it is none of these.
  static c10::intrusive_ptr<Factors> of(const Tensor& w) {
    auto* node = dynamic_cast<torch::autograd::CppNode<LaterGradient>*>(w.grad_fn().get());
    return node ? factors_in(node->ctx_) : nullptr;
  }
};

// Multiplies in `type`, and adds the gradient of a leaf straight to its buffer.
class Product : public torch::autograd::Function<Product> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& w,
                        const std::optional<Tensor>& bias, at::ScalarType type,
                        const c10::intrusive_ptr<Factors>& later) {
    Tensor b = bias.value_or(Tensor());
    context->save_for_backward({x, w});
    context->saved_data["bias"] = b.defined();
    context->saved_data["type"] = static_cast<int64_t>(type);
    if (later) context->saved_data["factors"] = c10::IValue::make_capsule(later);
    auto shape = x.sizes().vec();
    shape.back() = w.size(0);
    Tensor y = at::empty(shape, x.options().dtype(type));  // no view, so that it may be rotated
    multiply(rows_of(x).to(type), w.to(type), b.defined() ? b.to(type) : b, rows_of(y));
    return y.to(x.scalar_type());
  }
  static tensor_list backward(AutogradContext* context, tensor_list grad) {
    auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &w = saved[1];
    auto type = static_cast<at::ScalarType>(context->saved_data["type"].toInt());
    Tensor dy = rows_of(grad[0]).to(type), dx, dw, db;
    if (context->needs_input_grad(0))
      dx = input_gradient(dy, w.to(type)).to(x.scalar_type()).view(x.sizes());
    if (context->needs_input_grad(1)) {
      if (auto later = factors_in(*context))
        later->dy = dy, later->x = rows_of(x);
      else
        dw = weight_gradient(w, dy, rows_of(x).to(type));
    }
    if (context->saved_data["bias"].toBool() && context->needs_input_grad(2))
      db = dy.sum(0).to(x.scalar_type());
    return {dx, dw, db, {}, {}};
  }
};

bool aten_is_slow_in([[maybe_unused]] at::ScalarType type) {
#if defined(__x86_64__)
  bool half = type == at::kBFloat16 || type == at::kHalf;
  bool slow = !bf16_kernels() || bf16_kernels()->wide_rows;
  // oneDNN multiplies fp16 by AVX512-FP16 alone, which AMD's processors with bf16 do not have.
  return half && (slow || (type == at::kHalf && !__builtin_cpu_supports("avx512fp16")));
#else
  return false;
#endif
}

at::ScalarType type_of_gradient(const Tensor& x) {
  return x.is_cpu() && multiplied_in_fp32(x.scalar_type()) ? at::kFloat : x.scalar_type();
}

}  // namespace

bool slow_for_aten(const Tensor& x) { return x.is_cpu() && aten_is_slow_in(x.scalar_type()); }

bool multiplied_in_fp32(at::ScalarType type) {
  bool ours = type == at::kBFloat16 && bf16_kernels();
  return aten_is_slow_in(type) && !ours;
}

bool multiplied_in_fp32(const Tensor& x) {
  return x.is_cpu() && multiplied_in_fp32(x.scalar_type()) && x.numel() >= kManyRows * x.size(-1);
}

at::ScalarType type_of_product(const Tensor& x) {
  return multiplied_in_fp32(x) ? at::kFloat : x.scalar_type();
}

void product_out(const Tensor& y, const Tensor& x, const Tensor& w) { multiply(x, w, {}, y); }

Tensor product(const Tensor& x, const Tensor& w, const Tensor& b) {
  if (multiplied_in_fp32(x)) return product_in(at::kFloat, x, w, b);
  bool trained = at::GradMode::is_enabled() && w.requires_grad();
  bool by_kernels = bf16_multiplies(x) && x.numel() >= kKernelRows * x.size(-1);
  return trained || by_kernels ? product_in(x.scalar_type(), x, w, b) : at::linear(x, w, b);
}

void add_product(const Tensor& sum, const Tensor& a, const Tensor& b) {
  Tensor to = sum;
  if (bf16_multiplies(a))
    add_bf16_product(to, a, b.t());
  else if (sum.scalar_type() == a.scalar_type())
    at::addmm_out(to, to, a, b);
  else if (a.is_cuda())
    at::addmm_out(to, to, a, b, sum.scalar_type());
  else
    to.add_(at::mm(a, b));
}

Tensor with_later_gradient(const Tensor& w) { return LaterGradient::apply(w); }

Tensor product_in(at::ScalarType type, const Tensor& x, const Tensor& w, const Tensor& b) {
  return Product::apply(x, w, std::optional<Tensor>(b), type, LaterGradient::of(w));
}

Tensor product_input_gradient(const Tensor& dy, const Tensor& w) {
  auto shape = dy.sizes().vec();
  shape.back() = w.size(1);
  at::ScalarType type = type_of_gradient(dy);
  return input_gradient(rows_of(dy).to(type), w.to(type)).to(dy.scalar_type()).view(shape);
}

Tensor product_weight_gradient(const Tensor& dy, const Tensor& x, const Tensor& w) {
  at::ScalarType type = type_of_gradient(x);
  return weight_gradient(w, rows_of(dy).to(type), rows_of(x).to(type));
}

}  // namespace neox
