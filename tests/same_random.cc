// Random tensors are the same in every run of a test, whichever others run: ATen's own seed is new
// in each process. --gtest_random_seed=N gives others.
#include <ATen/Context.h>
#include <gtest/gtest.h>

namespace {

struct SameRandom : testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override {
    at::manual_seed(static_cast<uint64_t>(GTEST_FLAG_GET(random_seed)));
  }
};

const bool appended = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new SameRandom);
  return true;
}();

}  // namespace
