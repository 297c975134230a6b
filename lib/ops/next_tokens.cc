#include "ops/next_tokens.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace neox {
namespace {

using at::Tensor;

void check_integers(const Tensor& x, int64_t B) {
  check(x.scalar_type() == at::kLong && x.is_contiguous() && x.numel() == B,
        "what follows a step is ", x.scalar_type(), " ", x.sizes(), ", expected ", B,
        " of int64, contiguous");
}

void on_cpu(const Tensor& logits, int64_t n, const NextTokens& next) {
  Tensor scores = logits.narrow(1, 0, n).to(at::kFloat).contiguous();
  const auto* row = scores.const_data_ptr<float>();
  for (int64_t b = 0; b < logits.size(0); ++b, row += n)
    next.tokens.mutable_data_ptr<int64_t>()[b] = likeliest({row, static_cast<size_t>(n)});
  if (next.lengths.defined()) next.lengths.add_(next.more);
}

}  // namespace

int64_t likeliest(std::span<const float> scores) {
  constexpr size_t kLanes = 16;  // as many comparisons do not wait for each other
  std::array<float, kLanes> top;
  std::array<int, kLanes> nan = {};  // whether one was
  top.fill(-std::numeric_limits<float>::infinity());
  auto take = [&](size_t lane, float score) {
    top[lane] = std::max(top[lane], score);
    nan[lane] |= score != score;
  };
  size_t i = 0;
  for (; i + kLanes <= scores.size(); i += kLanes)
    for (size_t j = 0; j < kLanes; ++j) take(j, scores[i + j]);
  for (; i < scores.size(); ++i) take(0, scores[i]);
  float greatest = std::ranges::max(top);
  if (!std::isfinite(greatest) || std::ranges::max(nan) != 0) return -1;
  return std::ranges::find(scores, greatest) - scores.begin();
}

void next_tokens(const Tensor& logits, int64_t vocab, const NextTokens& next) {
  int64_t B = logits.size(0), V = logits.size(1), n = vocab > 0 ? std::min(vocab, V) : V;
  check_integers(next.tokens, B);
  if (next.lengths.defined()) check_integers(next.lengths, B), check_integers(next.more, B);
  if (!logits.is_cuda()) return on_cpu(logits, n, next);
  bool moves = next.lengths.defined();
  Tensor rows = logits.contiguous();
  next_tokens_cuda({.type = element_of("the choice of tokens", rows.scalar_type()),
                    .B = B,
                    .columns = V,
                    .vocab = n,
                    .logits = rows.const_data_ptr(),
                    .tokens = next.tokens.mutable_data_ptr<int64_t>(),
                    .lengths = moves ? next.lengths.mutable_data_ptr<int64_t>() : nullptr,
                    .more = moves ? next.more.const_data_ptr<int64_t>() : nullptr});
}

}  // namespace neox
