#include "generate/generate.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "generate/text_stream.h"
#include "generate/texts.h"

namespace neox {
namespace {

TextPlan plan_of(GptNeoX& model, std::span<const TextRequest> requests, int64_t batch_size) {
  int64_t positions = num_positions(model.config()), capacity = 1;
  for (const TextRequest& r : requests)
    capacity = std::max(
        capacity,
        std::min(std::ssize(r.prompt) + std::min(r.sampling.max_tokens, positions), positions));
  TextPlan plan{
      model.new_cache(std::clamp<int64_t>(std::ssize(requests), 1, batch_size), capacity)};
  if (requests.empty()) return plan;
  plan.vocab = requests.front().sampling.vocab;
  plan.greedy = std::ranges::all_of(requests, [&](const TextRequest& r) {
    return is_greedy(r.sampling) && r.sampling.vocab == plan.vocab && !r.likeliest;
  });
  return plan;
}

}  // namespace

void generate(GptNeoX& model, KvCache cache, const TextSource& next, const TextOptions& options) {
  at::NoGradGuard no_grad;
  Texts(model, next, options, {std::move(cache)}).run();
}

std::vector<std::vector<int32_t>> generate(GptNeoX& model, std::span<const TextRequest> requests,
                                           const TextOptions& options) {
  at::NoGradGuard no_grad;
  std::vector<std::vector<int32_t>> texts(requests.size());
  TextOptions kept = options;
  kept.on_token = [&](size_t text, int32_t token) {
    texts[text].push_back(token);
    return !options.on_token || options.on_token(text, token);
  };
  size_t next = 0;
  TextSource list = [&](bool, const AfterLayer&) {
    return next < requests.size() ? std::optional(requests[next++]) : std::nullopt;
  };
  Texts(model, list, kept, plan_of(model, requests, options.batch_size)).run();
  return texts;
}

}  // namespace neox
