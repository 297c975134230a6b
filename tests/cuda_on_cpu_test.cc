// The stand-in for a CUDA device finds what a GPU leaves undefined; and the kernels, in whatever
// order blocks and threads run and on devices of any size, give the same bits where they promise
// to. Their values are those of the tests of kernels_test, which are part of this program.
#include "cuda_on_cpu/device.h"

#include <ATen/Context.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <string>

#include "base/error.h"
#include "kernel_cases.h"
#include "ops/activation.h"
#include "ops/adamw.h"
#include "ops/cached_attention.h"
#include "ops/cross_entropy.h"
#include "ops/dropout.h"
#include "ops/next_tokens.h"
#include "ops/norm.h"
#include "ops/rotary.h"
#include "ops/row_products.h"

namespace neox {
namespace {

// Memory that nothing has written is NaN, so that a kernel that leaves some out is seen.
class UnwrittenIsNan : public testing::Environment {
  void SetUp() override { at::globalContext().setDeterministicAlgorithms(true, true); }
};
const auto* const kUnwrittenIsNan = testing::AddGlobalTestEnvironment(new UnwrittenIsNan);

using cuda_on_cpu::device;
using cuda_on_cpu::Order;
using Kernel = void (*)(float*);

void expect_fault(unsigned threads, Kernel kernel, const std::string& text) {
  alignas(16) float data[4] = {};
  std::string fault;
  try {
    cuda_on_cpu::launch(3, threads, 0, {}).run(kernel, data);
  } catch (const cuda_on_cpu::Fault& e) { fault = e.what(); }
  EXPECT_NE(fault.find(text), std::string::npos) << fault;
}

TEST(CudaOnCpu, FindsABarrierThatNotAllThreadsReach) {
  Kernel some = [](float*) {
    if (threadIdx.x != 40) __syncthreads();
  };
  Kernel apart = [](float*) {
    if (threadIdx.x < 32)
      __syncthreads();
    else
      __syncthreads();
  };
  expect_fault(64, some, "thread 0 waits at");
  expect_fault(64, apart, "threads meet at");
}

TEST(CudaOnCpu, FindsAnExchangeWithoutAllLanes) {
  Kernel all = [](float* at) { at[0] = __shfl_xor_sync(~0u, 1.0f, 1); };
  Kernel some = [](float* at) {
    if (threadIdx.x != 3) at[0] = __shfl_xor_sync(~0u, 1.0f, 1);
  };
  Kernel of_eight = [](float* at) { at[0] = __shfl_xor_sync(0xFFu, 1.0f, 1); };
  expect_fault(64, some, "thread 0 waits at");
  expect_fault(40, all, "thread 32 waits at");
  expect_fault(64, of_eight, "only whole warps");
}

TEST(CudaOnCpu, FindsAccessesThatAreNotAlignedAndTooMuchSharedMemory) {
  struct alignas(8) Two {
    float at[2];
  };
  Kernel second = [](float* at) { cuda_on_cpu::aligned<Two>(at + 1).at[0] = 1; };
  Kernel large = [](float*) {
    static cuda_on_cpu::Shared<float[12289]> memory;
    memory.here()[0] = 0;
  };
  expect_fault(1, second, "not a multiple of 8");
  expect_fault(1, large, "49156 bytes of shared memory");
}

TEST(CudaOnCpu, FindsMemoryThatNothingHasWritten) {
  Tensor x = at::empty({4}, at::kFloat);
  Kernel some = [](float* to) { to[2 * (threadIdx.x % 2)] = 1; };
  cuda_on_cpu::launch(1, 4, 0, {}).run(some, x.mutable_data_ptr<float>());
  EXPECT_EQ(x.isnan().sum().item<int64_t>(), 2);
}

TEST(CudaOnCpu, FindsLaunchesBeyondTheLimits) {
  Kernel bounded = [](float*) { cuda_on_cpu::check_bounds(32); };
  expect_fault(64, bounded, "64 threads of a kernel for 32");
  Kernel none = [](float*) { FAIL(); };
  for (auto [grid, block] :
       std::vector<std::pair<dim3, dim3>>{{{1, 65536}, 1}, {1, 1025}, {0, 1}}) {
    cuda_on_cpu::launch(grid, block, 0, {}).run(none, nullptr);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  }
}

// Each thread reads what its neighbour has written, with or without waiting for it.
template <bool kWaits>
void neighbour_kernel(float* to) {
  static cuda_on_cpu::Shared<float[64]> memory;
  auto& values = memory.here();
  values[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (kWaits) __syncthreads();
  to[blockIdx.x * 64 + threadIdx.x] = values[(threadIdx.x + 1) % 64];
}

// The results of run() in each order.
template <class Run>
std::vector<Tensor> in_each_order(const Run& run) {
  std::vector<Tensor> results;
  for (Order order : {Order::kForward, Order::kReversed, Order::kShuffled}) {
    device.order = order;
    results.push_back(run());
  }
  device.order = Order::kForward;
  return results;
}

TEST(CudaOnCpu, ShowsARaceAsAResultThatDependsOnTheOrder) {
  auto results = [](Kernel kernel) {
    return in_each_order([&] {
      Tensor to = at::full({2 * 64}, 0, at::kFloat);
      cuda_on_cpu::launch(2, 64, 0, {}).run(kernel, to.mutable_data_ptr<float>());
      return to;
    });
  };
  auto raced = results(neighbour_kernel<false>), waited = results(neighbour_kernel<true>);
  EXPECT_TRUE(raced[0][64].isnan().item<bool>());  // not what the block before left there
  EXPECT_FALSE(raced[0].nan_to_num().equal(raced[1].nan_to_num()));
  EXPECT_TRUE(waited[0].equal(waited[1]) && waited[0].equal(waited[2]));
}

// The result of a kernel, and the gradients of what it was given, as one flat tensor.
class InAnyOrder : public KernelTest {
 protected:
  static Tensor with_gradients(const Tensor& y, const std::vector<Tensor>& leaves,
                               const Tensor& d) {
    y.backward(d);
    Tensor all = y.detach().flatten();
    for (const Tensor& leaf : leaves)
      if (leaf.grad().defined()) all = at::cat({all, leaf.grad().flatten()});
    for (const Tensor& leaf : leaves) leaf.mutable_grad() = Tensor();
    return all;
  }
  template <class Run>
  void expect_the_same(const Run& run) const {
    std::vector<Tensor> results = in_each_order(run);
    EXPECT_TRUE(results[0].isfinite().all().template item<bool>());
    EXPECT_TRUE(results[0].equal(results[1]) && results[0].equal(results[2]));
  }
};

TEST_P(InAnyOrder, NormsAndTheirGradientsAreTheSame) {
  for (int64_t C : {60, 1030, 4096, 12288}) {
    SCOPED_TRACE(C);
    std::vector<Tensor> in{leaf({18, C}), leaf({18, C}), leaf({C}), leaf({C}),
                           leaf({C}),     leaf({C}),     leaf({C})};
    Tensor d = random({18, C});
    expect_the_same([&] {
      SumAndNorms y = add_norms({in[0], in[1], in[2]}, {in[3], in[4]}, {in[5], in[6]}, {});
      return with_gradients(y.sum + y.first + y.second, in, d);
    });
  }
}

TEST_P(InAnyOrder, ElementwiseKernelsAndTheirColumnSumsAreTheSame) {
  for (int64_t C : {31, 320, 600}) {
    SCOPED_TRACE(C);
    std::vector<Tensor> in{leaf({4, 70, 2 * C}), leaf({2 * C}), leaf({4, 70, 2 * C})};
    Tensor d = random({4, 70, 2 * C}), half = random({4, 70, C});
    expect_the_same(
        [&] { return with_gradients(activated(in[0], in[1], Activation::kGeluTanh), in, d); });
    expect_the_same(
        [&] { return with_gradients(gated(in[0], in[1], Activation::kSilu), in, half); });
    expect_the_same(
        [&] { return with_gradients(dropped_sum(in[2], in[0], in[1], 0.3, {.key = 5}), in, d); });
  }
}

TEST_P(InAnyOrder, HeadsAreTheSame) {
  for (int64_t D : {32, 80}) {
    RotaryTable table = rotary_table(70, {.rotary = D / 4}, at::kCPU);
    std::vector<Tensor> in{leaf({2, 70, 6 * D}), leaf({6 * D})};
    Tensor d = random({2, 4, 70, D});
    expect_the_same([&] {
      Heads h = rotated_heads_(in[0] + in[1].detach(), {1, 4}, table, in[1]);
      return with_gradients(h.q + h.k + h.v, in, d);
    });
  }
}

TEST_P(InAnyOrder, AttentionToACacheIsTheSame) {
  for (int64_t D : {64, 128}) {
    SCOPED_TRACE(D);
    RotaryTable table = rotary_table(300, {.rotary = D / 4}, at::kCPU);
    Tensor qkv = random({2, 1, 6 * D}), lengths = at::tensor({299, 31}, at::kLong),
           arrived = at::zeros({8}, at::kInt), keys = random({2, 1, 300, D}),
           values = random({2, 1, 300, D});
    auto run = [&] {
      CacheStep cache{keys.clone(), values.clone(), lengths, 300, 0.1, {}, arrived};
      Tensor y = cached_attention_(qkv, {1, 4}, table, cache);
      return at::cat({y.flatten(), cache.keys.flatten(), cache.values.flatten()});
    };
    expect_the_same(run);
    Tensor by_one_block = reference(run());
    device.multiprocessors = 8;  // a row's keys are shared out
    expect_the_same(run);
    expect_close(run(), by_one_block, "shared out");
    device.multiprocessors = 2;
  }
}

TEST_P(InAnyOrder, ProductsOfRowsAreTheSame) {
  for (auto [C, N] : {std::pair{520, 48}, {64, 8200}}) {
    SCOPED_TRACE(C);
    RowTerm a{random({3, C}), random({N, C}), random({N}), {random({C}), random({C})}},
        b{a.x, random({N, C}), {}, {random({C})}};
    expect_the_same([&] {
      auto both = row_products({{.terms = {a}}, {.terms = {b}, .gated = true}}, {});
      RowSum sum{.terms = {{both[0], a.weight.t().contiguous()}}, .residual = a.x};
      return at::cat({both[0].flatten(), both[1].flatten(), row_products({sum}, {})[0].flatten()});
    });
  }
}

TEST_P(InAnyOrder, TheNextTokensAreTheSame) {
  for (int64_t V : {50, 6288, 50257}) {
    Tensor logits = random({3, V}).round(), more = at::tensor({1, 0, 1}, at::kLong);
    expect_the_same([&] {
      Tensor tokens = at::zeros({3, 1}, at::kLong), lengths = at::tensor({4, 0, 6}, at::kLong);
      next_tokens(logits, V - 5, {tokens, lengths, more});
      return at::cat({tokens.flatten(), lengths});
    });
  }
}

TEST_P(InAnyOrder, CrossEntropyIsTheSame) {
  for (int64_t V : {50, 6288, 50257}) {
    Tensor logits = random({3, V}, 3), targets = at::randint(V, {3}, at::kLong);
    Tensor factor = at::rand({3}, GetParam().type == at::kDouble ? at::kDouble : at::kFloat);
    expect_the_same([&] {
      Tensor x = logits.clone(), loss = cross_entropy_(x, targets, factor);
      return at::cat({loss.to(x.scalar_type()), x.flatten()});
    });
    expect_the_same([&] {
      Tensor x = logits.clone(), own = row_statistics(x, {targets});
      gradients_(x, own[0], own.narrow(0, 1, 2), {targets}, factor);
      return at::cat({own.flatten().to(x.scalar_type()), x.flatten()});
    });
  }
}

class OnlyAligned : public KernelTest {};

TEST_P(OnlyAligned, KeysAndWeightsAreTaken) {
  Tensor weight = random({4, 16}), x = random({1, 16}), cache = random({1, 1, 9, 64});
  RotaryTable table = rotary_table(9, {}, at::kCPU);
  CacheStep step{shifted(cache),          cache, at::zeros({1}, at::kLong), 9, 0.1, {},
                 at::zeros({1}, at::kInt)};
  EXPECT_THROW(cached_attention_(random({1, 1, 192}), {1}, table, step), Error);
  EXPECT_THROW(row_products({{.terms = {{x, shifted(weight)}}}}, {}), Error);
  EXPECT_THROW(row_products({{.terms = {{shifted(x), weight}}}}, {}), Error);
  EXPECT_THROW(row_products({{.terms = {{random({9, 16}), weight}}}}, {}), Error);
  EXPECT_NO_THROW(row_products({{.terms = {{x, weight}}}}, {}));
}

INSTANTIATE_TEST_SUITE_P(All, OnlyAligned, testing::ValuesIn(kKernelCases, kKernelCases + 4),
                         kernel_case_name);
INSTANTIATE_TEST_SUITE_P(All, InAnyOrder, testing::ValuesIn(kKernelCases, kKernelCases + 4),
                         kernel_case_name);

TEST(CudaOnCpu, SumsOfSquaresDoNotDependOnTheSizeOfTheDevice) {
  Tensor x = at::randn({300'000}, at::kFloat);
  auto on = [&](int multiprocessors) {
    device.multiprocessors = multiprocessors;
    return sum_of_squares({{x}}).item<double>();
  };
  double large = on(132);
  EXPECT_EQ(on(2), large);
  for (const Tensor& sum : in_each_order([&] { return sum_of_squares({{x}}); }))
    EXPECT_EQ(sum.item<double>(), large);
}

}  // namespace
}  // namespace neox
