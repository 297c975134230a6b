#include "generate/generate.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "generate/text_stream.h"
#include "model/decode_replay.h"
#include "model/fused_decode.h"
#include "ops/next_tokens.h"
#include "ops/random.h"

namespace neox {
namespace {

using Transfer = Communicator::Transfer;

// One pass of tokens [B, t] through all stages: the logits [B, V] on the last one.
Tensor pass_through(GptNeoX& model, const Tensor& tokens, KvCache& cache) {
  Mesh& mesh = model.mesh();
  Tensor x;
  if (!mesh.first_stage()) {
    x = at::empty({tokens.size(0), tokens.size(1), model.config().hidden}, model.hidden_options());
    std::vector<Transfer> receive = {{Transfer::kReceive, mesh.pp().rank() - 1, x}};
    mesh.pp().exchange(receive);
  }
  Tensor y = model.generate_step(x, tokens, cache);
  if (mesh.last_stage()) return y;
  std::vector<Transfer> send = {{Transfer::kSend, mesh.pp().rank() + 1, y.contiguous()}};
  mesh.pp().exchange(send);
  return {};
}

Tensor row_of(std::span<const int32_t> tokens) {
  Tensor row = at::empty({1, std::ssize(tokens)}, at::kLong);
  std::ranges::copy(tokens, row.mutable_data_ptr<int64_t>());
  return row;
}

// How many prompts of these lengths, from the first one on, a GPU reads at once: those that are not
// much shorter than the longest, because they are computed as long as that.
size_t prompts_at_once(std::span<const int64_t> lengths) {
  constexpr int64_t kMostTokens = 8192;
  constexpr double kMostOfReal = 1.25;
  int64_t longest = 0, real = 0, count = 0;
  for (int64_t n : lengths) {
    int64_t all = std::max(longest, n) * (count + 1);
    if (count > 0 && (all > kMostTokens ||
                      static_cast<double>(all) > kMostOfReal * static_cast<double>(real + n)))
      break;
    longest = std::max(longest, n);
    real += n;
    ++count;
  }
  return static_cast<size_t>(count);
}

// On a CPU a text is the same in any company, bit for bit, and experts would work for what is
// padded.
bool pads_prompts(GptNeoX& model) {
  return !model.hidden_options().device().is_cpu() && model.mesh().pp().size() == 1 &&
         !model.config().moe;
}

bool is_greedy(const Sampling& s) { return s.temperature == 0 && s.top_k == 0 && s.top_p == 0; }

// Without numbers the likeliest token would be the first. greatest: a logit, on the host.
void check_numbers(const Tensor& greatest) {
  double top = *greatest.const_data_ptr<double>();
  if (std::isfinite(top)) return;
  fail(Exit::kNotFinite, "behind the prompt the model's greatest logit is ", top,
       ": weights are not finite (see neox-convert inspect), or fp16 overflows (take fp32)");
}

// New tokens of some requests, on their way from the device or there.
struct NewTokens {
  std::vector<size_t> requests;
  Tensor tokens;    // [requests] int64 on the host
  Tensor top = {};  // the greatest logit behind a prompt; or undefined
  std::optional<c10::Event> copied = {};
};

// The texts of a list of requests, a batch of them at a time. Prompts are read one by one, or
// together: on a CPU in a way in which each gives what it gives alone, so that a text is the same
// in any company. Where steps are replayed on a device and all are greedy, a step takes its tokens
// from the one before it on the device; the host looks at them some steps behind, and leaves aside
// what follows the end of a text.
class Texts {
 public:
  Texts(GptNeoX& model, std::span<const TextRequest> requests, const TextOptions& options)
      : model_(model),
        requests_(requests),
        options_(options),
        texts_(requests.size()),
        begun_(requests.size()),
        ended_(requests.size()) {
    int64_t capacity = 1;
    for (const TextRequest& r : requests)
      capacity = std::max(capacity, std::ssize(r.prompt) + most(r));
    int64_t rows = std::min(options.batch_size, std::max<int64_t>(1, std::ssize(requests)));
    cache_ = model.new_cache(rows, capacity);
    cache_.lengths.clear();
    choose_where();
  }

  std::vector<std::vector<int32_t>> run() {
    while (next_ < requests_.size() || !rows_.empty()) {
      while (next_ < requests_.size() && std::ssize(rows_) < options_.batch_size) {
        start();
        receive(behind_);
      }
      if (!rows_.empty()) step();
      receive(behind_);
    }
    receive(0);
    return std::move(texts_);
  }

 private:
  static constexpr size_t kBehind = 3;  // steps, so that the device always has the next one

  // The number of tokens that may follow.
  int64_t most(const TextRequest& r) const {
    return std::min(r.sampling.max_tokens, num_positions(model_.config()) - std::ssize(r.prompt));
  }

  void choose_where() {
    auto alike = [&](const TextRequest& r) {
      return is_greedy(r.sampling) && r.sampling.vocab == requests_.front().sampling.vocab;
    };
    if (!cache_.replay || cache_.fused || model_.mesh().pp().size() > 1 || requests_.empty() ||
        !std::ranges::all_of(requests_, alike))
      return;
    cache_.replay->vocab = requests_.front().sampling.vocab;
    behind_ = kBehind;
  }

  bool on_device() const { return behind_ > 0; }

  // The next requests, as many as have room and prompts that are best read together.
  void start() {
    auto first = std::ssize(rows_);
    std::vector<int64_t> lengths;
    auto room =
        std::min(requests_.size() - next_, static_cast<size_t>(options_.batch_size - first));
    for (const TextRequest& r : requests_.subspan(next_, room))
      lengths.push_back(std::ssize(r.prompt));
    size_t count = together(lengths);
    lengths.resize(std::max<size_t>(1, count));
    std::vector<size_t> begun(lengths.size());
    std::iota(begun.begin(), begun.end(), next_);
    std::vector<int32_t> tokens;
    for (size_t request : begun) {
      if (options_.on_start) options_.on_start(request);
      tokens.insert(tokens.end(), requests_[request].prompt.begin(),
                    requests_[request].prompt.end());
    }
    next_ += begun.size();
    rows_.insert(rows_.end(), begun.begin(), begun.end());
    cache_.lengths.resize(rows_.size());
    KvCache part = cache_.narrow(first, std::ssize(begun));
    Tensor row = row_of(tokens);
    Tensor logits = count == 0     ? pass_through(model_, there(row), part)
                    : cache_.fused ? cache_.fused->prompts(row, lengths, part)
                                   : model_.read_prompts(row[0], lengths, part);
    std::ranges::copy(part.lengths, cache_.lengths.begin() + first);
    take(logits, begun, first);
  }

  // How many of the prompts are best read together; 0: one alone, by the model's own layers.
  size_t together(std::span<const int64_t> lengths) const {
    if (cache_.fused) return cache_.fused->prompts_together(lengths);
    size_t padded = pads_prompts(model_) ? prompts_at_once(lengths) : 0;
    return padded > 1 ? padded : 0;
  }

  // The first new tokens of some rows.
  void take(const Tensor& logits, const std::vector<size_t>& begun, int64_t first_row) {
    Tensor top = logits.defined() ? logits.amax().to(at::kDouble) : Tensor();
    if (on_device()) {
      cache_.replay->choose(logits, first_row);
      send(begun, first_row, top);
    } else {
      if (top.defined()) check_numbers(top.cpu());
      arriving_.push_back(chosen(logits, begun));
    }
    count(begun);
  }

  void step() {
    std::vector<size_t> requests = rows_;
    if (on_device()) {
      model_.greedy_step(cache_);
      send(requests, 0);
    } else {
      std::vector<int32_t> last;
      for (size_t request : rows_) last.push_back(texts_[request].back());
      Tensor tokens = there(row_of(last).t().contiguous());
      arriving_.push_back(chosen(pass_through(model_, tokens, cache_), requests));
    }
    count(requests);
  }

  // The next tokens of these requests, from the last stage.
  NewTokens chosen(const Tensor& logits, std::vector<size_t> requests) {
    Mesh& mesh = model_.mesh();
    Tensor next = at::empty({std::ssize(requests)}, at::kLong);
    if (mesh.last_stage()) {
      Tensor host = logits.cpu();
      for (size_t i = 0; i < requests.size(); ++i) {
        const TextRequest& r = requests_[requests[i]];
        auto length = std::ssize(r.prompt) + std::ssize(texts_[requests[i]]);
        auto row = static_cast<int64_t>(i);
        next.mutable_data_ptr<int64_t>()[i] = choose(host[row], r.sampling, length);
      }
    }
    next = there(next);
    mesh.pp().broadcast(next, mesh.pp().size() - 1);
    return {std::move(requests), next.cpu()};
  }

  // The last tokens of the rows from this one on go to the host.
  void send(std::vector<size_t> requests, int64_t first_row, const Tensor& top = {}) {
    Tensor tokens = cache_.replay->tokens.narrow(0, first_row, std::ssize(requests)).flatten();
    at::Device device = tokens.device();
    auto on_its_way = [&](const Tensor& x) {
      Tensor host =
          at::empty(x.sizes(), x.options().device(at::kCPU).pinned_memory(!device.is_cpu()));
      return host.copy_(x, true);
    };
    NewTokens sent{std::move(requests), on_its_way(tokens)};
    if (top.defined()) sent.top = on_its_way(top);
    if (!device.is_cpu()) {
      sent.copied.emplace(device.type());
      sent.copied->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    }
    arriving_.push_back(std::move(sent));
  }

  // One token more of each; those that may have no more make room.
  void count(std::span<const size_t> requests) {
    for (auto request = requests.rbegin(); request != requests.rend(); ++request)
      if (++begun_[*request] >= most(requests_[*request])) drop(*request);
  }

  // All but the last `behind` of the tokens on their way.
  void receive(size_t behind) {
    while (arriving_.size() > behind) {
      NewTokens next = std::move(arriving_.front());
      arriving_.pop_front();
      if (next.copied) next.copied->synchronize();
      if (next.top.defined()) check_numbers(next.top);
      for (size_t i = next.requests.size(); i-- > 0;)
        if (!ended_[next.requests[i]])
          accept(next.requests[i], next.tokens.const_data_ptr<int64_t>()[i]);
    }
  }

  // A text's new token, or its end.
  void accept(size_t request, int64_t id) {
    auto token = static_cast<int32_t>(id);
    if (std::ranges::find(options_.ends, token) != options_.ends.end())
      return end(request, TextEnd::kToken);
    texts_[request].push_back(token);
    if (options_.on_token && !options_.on_token(request, token))
      return end(request, TextEnd::kCaller);
    if (std::ssize(texts_[request]) >= most(requests_[request])) end(request, TextEnd::kLength);
  }

  void end(size_t request, TextEnd how) {
    ended_[request] = true;
    drop(request);
    if (options_.on_end) options_.on_end(request, how);
  }

  // The last row takes the place of this request's, if it has one.
  void drop(size_t request) {
    auto row = std::ranges::find(rows_, request);
    if (row == rows_.end()) return;
    cache_.drop_row(row - rows_.begin());
    *row = rows_.back();
    rows_.pop_back();
  }

  // A GPU copies by itself, out of pinned memory.
  Tensor there(const Tensor& x) const {
    at::Device device = model_.hidden_options().device();
    return device.is_cpu() ? x : x.pin_memory().to(device, true);
  }

  GptNeoX& model_;
  std::span<const TextRequest> requests_;
  const TextOptions& options_;
  std::vector<std::vector<int32_t>> texts_;
  std::vector<int64_t> begun_;  // tokens of each text, with those that the host has not seen
  std::vector<bool> ended_;
  std::vector<size_t> rows_;  // the request of each row of the cache
  size_t next_ = 0;
  KvCache cache_;
  std::deque<NewTokens> arriving_;
  size_t behind_ = 0;  // so many of which the host does not wait for
};

// Ids by their weight, of which the greatest is 1; ties by id: `most` of them, or so many at least
// as weigh more than `mass` together. What is light is not sorted where it is not asked for.
std::vector<int64_t> heaviest(std::span<const double> weights, size_t most, double mass) {
  std::vector<int64_t> ids;
  for (double least = 1.0 / 64;; least = least > 1e-30 ? least * least : 0) {
    ids.clear();
    double sum = 0;
    for (size_t i = 0; i < weights.size(); ++i)
      if (weights[i] >= least) {
        ids.push_back(static_cast<int64_t>(i));
        sum += weights[i];
      }
    if (least == 0 || ids.size() >= most || sum > mass) break;
  }
  auto weight = [&](int64_t id) { return weights[static_cast<size_t>(id)]; };
  std::ranges::stable_sort(ids, std::greater<>(), weight);
  ids.resize(std::min(ids.size(), most));
  return ids;
}

// The first ids that weigh as much as `mass` stay, one at least: what they weigh.
double keep_mass(std::vector<int64_t>& ids, std::span<const double> weights, double mass) {
  double kept = 0;
  size_t count = 0;
  while (count < ids.size() && (count == 0 || kept < mass))
    kept += weights[static_cast<size_t>(ids[count++])];
  ids.resize(count);
  return kept;
}

}  // namespace

int64_t choose(const Tensor& logits, const Sampling& s, int64_t position) {
  int64_t n = s.vocab > 0 ? std::min(s.vocab, logits.size(0)) : logits.size(0);
  Tensor scores = logits.narrow(0, 0, n).to(at::kFloat).contiguous();
  int64_t top = likeliest({scores.const_data_ptr<float>(), static_cast<size_t>(n)});
  if (is_greedy(s)) return top;
  double temperature = s.temperature > 0 ? s.temperature : 1;
  Tensor weights = (scores - scores[top]).to(at::kDouble).div_(temperature).exp_();
  const auto* weight = weights.const_data_ptr<double>();
  std::span<const double> all(weight, static_cast<size_t>(n));
  float u = 0;
  uniform_at(s.key, position, {&u, 1});
  double total = 0;
  std::vector<int64_t> order;
  if (s.top_k > 0 && s.top_k < n) {
    order = heaviest(all, static_cast<size_t>(s.top_k), std::numeric_limits<double>::infinity());
    for (int64_t id : order) total += weight[id];
  } else {
    total = std::accumulate(all.begin(), all.end(), 0.0);
    order = heaviest(all, all.size(), (s.top_p > 0 ? s.top_p : u) * total);
  }
  if (order.empty()) return top;  // nothing is a number
  if (s.top_p > 0) total = keep_mass(order, all, s.top_p * total);
  double left = u * total;
  for (int64_t id : order)
    if ((left -= weight[id]) < 0) return id;
  return order.back();
}

std::vector<std::vector<int32_t>> generate(GptNeoX& model, std::span<const TextRequest> requests,
                                           const TextOptions& options) {
  at::NoGradGuard no_grad;
  return Texts(model, requests, options).run();
}

std::vector<int32_t> generate(GptNeoX& model, std::span<const int32_t> prompt,
                              const Sampling& sampling, const std::vector<int32_t>& ends) {
  TextRequest request{{prompt.begin(), prompt.end()}, sampling};
  return generate(model, {&request, 1}, {.ends = ends}).front();
}

}  // namespace neox
