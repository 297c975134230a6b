#include "generate/generate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "ops/random.h"
#include "tokenizer/unicode.h"

namespace neox {
namespace {

using Transfer = Communicator::Transfer;

// One pass of tokens [1, t] through all stages: the logits [V] on the last one.
Tensor pass_through(GptNeoX& model, const Tensor& tokens, KvCache& cache) {
  Mesh& mesh = model.mesh();
  Tensor x;
  if (!mesh.first_stage()) {
    x = at::empty({1, tokens.size(1), model.config().hidden}, model.hidden_options());
    std::vector<Transfer> receive = {{Transfer::kReceive, mesh.pp().rank() - 1, x}};
    mesh.pp().exchange(receive);
  }
  Tensor y = model.generate_step(x, tokens, cache);
  if (mesh.last_stage()) return y.squeeze(0);
  std::vector<Transfer> send = {{Transfer::kSend, mesh.pp().rank() + 1, y.contiguous()}};
  mesh.pp().exchange(send);
  return {};
}

// The bytes at the end of `text` that begin a UTF-8 character without finishing it.
size_t unfinished_bytes(const std::string& text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80) return 0;
    if (byte < 0xC0) continue;
    size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    return length > back ? back : 0;
  }
  return 0;
}

}  // namespace

int64_t choose(const Tensor& logits, const Sampling& s, int64_t position) {
  int64_t n = s.vocab > 0 ? std::min(s.vocab, logits.size(0)) : logits.size(0);
  Tensor scores = logits.to(at::kFloat).contiguous();
  const auto* score = scores.const_data_ptr<float>();
  auto likeliest = [&] { return std::max_element(score, score + n) - score; };
  if (s.temperature == 0 && s.top_k == 0 && s.top_p == 0) return likeliest();
  double temperature = s.temperature > 0 ? s.temperature : 1;
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  auto k = static_cast<size_t>(s.top_k > 0 ? std::min(s.top_k, n) : n);
  // Ties by id, so that the order does not depend on the sort.
  auto before = [&](int64_t a, int64_t b) {
    return score[a] != score[b] ? score[a] > score[b] : a < b;
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(k), order.end(), before);
  std::vector<double> weight(k);
  for (size_t i = 0; i < k; ++i)
    weight[i] = std::exp((score[order[i]] - score[order[0]]) / temperature);
  double total = std::accumulate(weight.begin(), weight.end(), 0.0), kept = 0;
  size_t count = 0;
  while (count < k && (count == 0 || s.top_p <= 0 || kept < s.top_p * total))
    kept += weight[count++];
  float u = 0;
  uniform_at(s.key, position, {&u, 1});
  double left = u * kept;
  for (size_t i = 0; i < count; ++i)
    if ((left -= weight[i]) < 0) return order[i];
  return order[count - 1];
}

std::vector<int32_t> generate(GptNeoX& model, std::span<const int32_t> prompt,
                              const Sampling& sampling, std::optional<int32_t> end,
                              const OnToken& on_token) {
  at::NoGradGuard no_grad;
  int64_t positions = std::max(model.config().positions, model.config().seq),
          length = static_cast<int64_t>(prompt.size());
  check_usage(length > 0, "the prompt is empty: give at least one token of text");
  check_usage(length < positions, "the prompt has ", length, " tokens; the model has ", positions,
              " positions: shorten the prompt");
  int64_t most = std::min(sampling.max_tokens, positions - length);
  KvCache cache = model.new_cache(1, length + most);
  Mesh& mesh = model.mesh();
  at::Device device = model.hidden_options().device();
  Tensor tokens = at::empty({1, length}, at::kLong);
  std::copy(prompt.begin(), prompt.end(), tokens.mutable_data_ptr<int64_t>());
  tokens = tokens.to(device);
  std::vector<int32_t> result;
  for (int64_t i = 0; i < most; ++i) {
    Tensor logits = pass_through(model, tokens, cache);
    Tensor next = at::empty({1, 1}, at::dtype(at::kLong).device(device));
    if (mesh.last_stage()) next.fill_(choose(logits.cpu(), sampling, length + i));
    mesh.pp().broadcast(next, mesh.pp().size() - 1);
    auto token = static_cast<int32_t>(next.item<int64_t>());
    if (end && token == *end) break;
    result.push_back(token);
    if (on_token && !on_token(token)) break;
    tokens = next;
  }
  return result;
}

std::string TextStream::add(int32_t token) {
  kept_ += tokenizer_.token_bytes(token);
  size_t ready = kept_.size() - unfinished_bytes(kept_);
  std::string storage, text(unicode::repair(std::string_view(kept_).substr(0, ready), storage));
  kept_.erase(0, ready);
  return text;
}

std::string TextStream::rest() {
  std::string storage, text(unicode::repair(kept_, storage));
  kept_.clear();
  return text;
}

}  // namespace neox
