// The types and devices that a kernel's test runs over, and how far each type may be off.
#pragma once
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace neox {

using at::Tensor;

struct KernelCase {
  const char* name;
  at::DeviceType device;
  at::ScalarType type;
  double tolerance;  // of ||a - b|| / ||b||, b in double

  friend void PrintTo(const KernelCase& c, std::ostream* out) { *out << c.name; }
};

inline const KernelCase kKernelCases[] = {{"cpu_double", at::kCPU, at::kDouble, 1e-12},
                                          {"cpu_float", at::kCPU, at::kFloat, 1e-6},
                                          {"cpu_half", at::kCPU, at::kHalf, 2e-3},
                                          {"cpu_bfloat16", at::kCPU, at::kBFloat16, 8e-3},
                                          {"cuda_double", at::kCUDA, at::kDouble, 1e-12},
                                          {"cuda_float", at::kCUDA, at::kFloat, 2e-6},
                                          {"cuda_half", at::kCUDA, at::kHalf, 2e-3},
                                          {"cuda_bfloat16", at::kCUDA, at::kBFloat16, 8e-3}};

// A test of a kernel: GetParam() is the case; skipped where its device is missing.
class KernelTest : public testing::TestWithParam<KernelCase> {
 protected:
  void SetUp() override {
    if (GetParam().device == at::kCUDA && !at::hasCUDA()) GTEST_SKIP() << "no GPU";
  }
  // Random values of the case's type, on its device.
  Tensor random(at::IntArrayRef shape, double scale = 1) const {
    return on((at::randn(shape, at::kDouble) * scale).to(GetParam().type));
  }
  Tensor leaf(at::IntArrayRef shape, double scale = 1) const {
    return random(shape, scale).set_requires_grad(true);
  }
  Tensor on(const Tensor& x) const { return x.to(GetParam().device); }
  // The same values, a leaf where x is one, where no access of more than an element is aligned.
  static Tensor shifted(const Tensor& x) {
    if (!x.defined()) return x;
    Tensor all = at::empty({x.numel() + 1}, x.options().requires_grad(false));
    Tensor y = all.narrow(0, 1, x.numel()).view(x.sizes());
    return y.copy_(x.detach()).set_requires_grad(x.requires_grad());
  }
  // The same values in double on the CPU, for the reference: a leaf where x is one.
  static Tensor reference(const Tensor& x) {
    if (!x.defined()) return x;
    return x.detach().cpu().to(at::kDouble, false, true).set_requires_grad(x.requires_grad());
  }
  static double relative(const Tensor& a, const Tensor& b) {
    Tensor x = a.detach().cpu().to(at::kDouble), y = b.detach().to(at::kDouble);
    return ((x - y).norm() / y.norm()).item<double>();
  }
  void expect_close(const Tensor& got, const Tensor& want, const char* what) const {
    ASSERT_EQ(got.sizes(), want.sizes()) << what;
    EXPECT_LE(relative(got, want), GetParam().tolerance) << what;  // fails where it is NaN
  }
  // The gradients of each input that is defined.
  void expect_gradients(const std::vector<Tensor>& inputs, const std::vector<Tensor>& wants) const {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].defined())
        expect_close(inputs[i].grad(), wants[i].grad(), ("gradient " + std::to_string(i)).c_str());
  }
};

inline std::string kernel_case_name(const testing::TestParamInfo<KernelCase>& info) {
  return info.param.name;
}

}  // namespace neox
