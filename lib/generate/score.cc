#include "generate/score.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "config/estimate.h"

namespace neox {
namespace {

// Of rows of logits [N, V], where they are; then on the host.
struct Rows {
  Rows(const Tensor& logits, const Tensor& tokens, int64_t likeliest, int64_t vocab) {
    Tensor numbers = logits.to(at::kFloat), sums = numbers.logsumexp(1, true);
    int64_t V = vocab > 0 ? std::min(vocab, numbers.size(1)) : numbers.size(1);
    auto [top, ids_of_top] = numbers.narrow(1, 0, V).topk(std::clamp<int64_t>(likeliest, 1, V), 1);
    best = (top - sums).cpu(), ids = ids_of_top.cpu();
    at_tokens = (numbers.gather(1, tokens.unsqueeze(1)) - sums).cpu();
  }
  // Of row i; where the token is none of those given it is the likeliest.
  TokenScore at(int64_t i, std::optional<int32_t> token, int64_t likeliest) const {
    int64_t width = best.size(1);
    const auto* id = ids.const_data_ptr<int64_t>() + i * width;
    const float* logarithm = best.const_data_ptr<float>() + i * width;
    TokenScore score{token.value_or(static_cast<int32_t>(*id)),
                     token ? at_tokens.const_data_ptr<float>()[i] : *logarithm,
                     {}};
    for (int64_t k = 0; k < std::min(likeliest, width); ++k)
      score.likeliest.emplace_back(static_cast<int32_t>(id[k]), logarithm[k]);
    return score;
  }
  Tensor best, ids, at_tokens;  // [N, likeliest], the same, [N, 1]
};

// That are as much work.
int64_t layers_of_logits(const ModelConfig& c) {
  constexpr int64_t kMatrices = 12;  // [hidden, hidden] that a layer of GPT-NeoX's shape is
  return std::max<int64_t>(1, c.vocab / (kMatrices * c.hidden));
}

}  // namespace

TokenScore score_of(const Tensor& logits, int32_t token, int64_t likeliest, int64_t vocab) {
  Tensor place = at::empty({1}, at::kLong);
  *place.mutable_data_ptr<int64_t>() = token;
  return Rows(logits.unsqueeze(0), place, likeliest, vocab).at(0, token, likeliest);
}

TextScores score(GptNeoX& model, std::span<const int32_t> text, int64_t likeliest, int64_t vocab,
                 const AfterLayer& after_layer) {
  at::NoGradGuard no_grad;
  auto n = std::ssize(text);
  check(n > 0, "a text without tokens has no scores");
  Tensor tokens = at::empty({1, n}, at::kLong);
  std::ranges::copy(text, tokens.mutable_data_ptr<int64_t>());
  tokens = tokens.to(model.hidden_options().device());
  Tensor x = model.hidden_states(tokens, after_layer)[0];
  Tensor following = tokens[0].roll(-1);  // behind the last one anything
  int64_t at_once = std::max<int64_t>(1, kLogitElements / model.config().vocab);
  TextScores scores;
  for (int64_t from = 0; from < n; from += at_once) {
    int64_t rows = std::min(at_once, n - from);
    Rows all(model.logits(x.narrow(0, from, rows)), following.narrow(0, from, rows), likeliest,
             vocab);
    for (int64_t i = 0; i < rows; ++i)
      if (from + i + 1 < n)
        scores.given.push_back(all.at(i, text[static_cast<size_t>(from + i + 1)], likeliest));
      else
        scores.next = all.at(i, std::nullopt, likeliest);
    if (after_layer) after_layer(rows * layers_of_logits(model.config()));
  }
  return scores;
}

std::string not_finite(const char* name) {
  return concat("the model's ", name,
                " is not a finite number: weights are not finite (see neox-convert inspect), or "
                "fp16 overflows (take fp32)");
}

std::string fault_of_numbers(const TextScores& scores) {
  auto finite = [](const TokenScore& score) { return std::isfinite(score.log_probability); };
  bool all = std::ranges::all_of(scores.given, finite) && finite(scores.next);
  return all ? "" : not_finite("log-probability of a token");
}

}  // namespace neox
