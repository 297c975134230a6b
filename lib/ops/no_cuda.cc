// Stands in for the CUDA sources in a build without CUDA.
#include "base/error.h"
#include "ops/adamw.h"
#include "ops/cross_entropy.h"
#include "ops/cuda_build.h"
#include "ops/one_moment.h"
#include "ops/random.h"

namespace neox {
namespace {

constexpr const char* kCrossEntropy = "cross entropy on a GPU: this program was built without CUDA";

}  // namespace

bool built_with_cuda() { return false; }

void dropout_cuda(const void*, void*, DropoutType, int64_t, int64_t, double, const DropoutSite&) {
  fail(Exit::kInternal, "dropout on a GPU: this program was built without CUDA");
}

void adamw_cuda(void*, const void*, void*, void*, UpdateType, int64_t, const AdamWConstants&,
                const UpdateDeviceScalars&) {
  fail(Exit::kInternal, "AdamW on a GPU: this program was built without CUDA");
}

void sgd_cuda(void*, const void*, void*, UpdateType, int64_t, const SgdConstants&,
              const UpdateDeviceScalars&) {
  fail(Exit::kInternal, "SGD on a GPU: this program was built without CUDA");
}

void lion_cuda(void*, const void*, void*, UpdateType, int64_t, const LionConstants&,
               const UpdateDeviceScalars&) {
  fail(Exit::kInternal, "Lion on a GPU: this program was built without CUDA");
}

void row_max_cuda(const CrossEntropyRows&) { fail(Exit::kInternal, kCrossEntropy); }
void exp_sums_cuda(const CrossEntropyRows&) { fail(Exit::kInternal, kCrossEntropy); }
void gradients_cuda(const CrossEntropyRows&) { fail(Exit::kInternal, kCrossEntropy); }
void cross_entropy_cuda(const CrossEntropyRows&) { fail(Exit::kInternal, kCrossEntropy); }

}  // namespace neox
