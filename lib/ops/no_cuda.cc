// Stands in for the CUDA sources in a build without CUDA.
#include "base/error.h"
#include "ops/activation.h"
#include "ops/adamw.h"
#include "ops/cached_attention.h"
#include "ops/column_sums.h"
#include "ops/cross_entropy.h"
#include "ops/cuda_build.h"
#include "ops/dropout.h"
#include "ops/embedding.h"
#include "ops/next_tokens.h"
#include "ops/norm.h"
#include "ops/one_moment.h"
#include "ops/rotary.h"
#include "ops/row_products.h"

namespace neox {
namespace {

[[noreturn]] void refuse(const char* operation) {
  fail(Exit::kInternal, operation, " on a GPU: this program was built without CUDA");
}

}  // namespace

bool built_with_cuda() { return false; }

void cached_attention_cuda(const CacheRows&) { refuse("attention to a cache"); }

void dropout_cuda(const DropoutRows&) { refuse("dropout"); }
int64_t dropout_parts_cuda(int64_t, int64_t) { refuse("dropout"); }

void embedding_rows_cuda(const EmbeddingRows&) { refuse("an embedding"); }
void embedding_gradient_cuda(const EmbeddingGradient&) { refuse("the gradient of an embedding"); }

void adamw_cuda(const AdamWRange&, const AdamWConstants&, const UpdateDeviceScalars&) {
  refuse("AdamW");
}

void sum_of_squares_cuda(const SquaresRange&) { refuse("the norm of gradients"); }
int64_t sum_of_squares_parts_cuda(int64_t) { refuse("the norm of gradients"); }

void sgd_cuda(const OneMomentRange&, const SgdConstants&, const UpdateDeviceScalars&) {
  refuse("SGD");
}
void lion_cuda(const OneMomentRange&, const LionConstants&, const UpdateDeviceScalars&) {
  refuse("Lion");
}

void gradients_cuda(const CrossEntropyRows&) { refuse("cross entropy"); }
void cross_entropy_cuda(const CrossEntropyRows&) { refuse("cross entropy"); }

void norm_cuda(const NormRows&) { refuse("a norm"); }
void norm_gradient_cuda(const NormGradientRows&) { refuse("a norm"); }
int64_t norm_parts_cuda(int64_t, int64_t) { refuse("a norm"); }

void activation_cuda(const ActivationRows&) { refuse("an activation"); }
void activation_gradient_cuda(const ActivationRows&) { refuse("an activation"); }
int64_t activation_parts_cuda(int64_t, int64_t) { refuse("an activation"); }

void sum_of_parts_cuda(const PartSums&) { refuse("the sum of parts"); }

void next_tokens_cuda(const TokenRows&) { refuse("the choice of tokens"); }

void row_products_cuda(const ProductRows&) { refuse("a product of rows"); }
bool row_products_fit(Element, int64_t) { refuse("a product of rows"); }

void rotate_heads_cuda(const HeadRows&) { refuse("rotary embedding"); }
void head_gradients_cuda(const HeadRows&) { refuse("rotary embedding"); }
int64_t head_parts_cuda(int64_t, int64_t) { refuse("rotary embedding"); }

}  // namespace neox
