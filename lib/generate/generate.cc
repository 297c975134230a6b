#include "generate/generate.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "generate/score.h"
#include "generate/text_stream.h"
#include "model/decode_replay.h"
#include "model/fused_decode.h"

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

// New tokens of some texts, on their way from the device or there.
struct NewTokens {
  std::vector<size_t> texts;
  Tensor tokens;  // [texts] int64 on the host; -1: the logits are not finite
  std::vector<std::optional<TokenScore>> scores = {};  // of the texts, or none at all
  std::optional<c10::Event> copied = {};
};

// What is known before the first text comes.
struct Plan {
  KvCache cache;        // all rows are free
  bool greedy = false;  // all are, and chosen among the same ids, without scores
  int64_t vocab = 0;    // those
};

// Texts that grow side by side, a batch of them at a time. Prompts are read one by one, or
// together: on a CPU in a way in which each gives what it gives alone, so that a text is the same
// in any company. Where steps are replayed on a device and all are greedy, a step takes its tokens
// from the one before it on the device; the host looks at them some steps behind, and leaves aside
// what follows the end of a text.
class Texts {
 public:
  Texts(GptNeoX& model, const TextSource& source, const TextOptions& options, Plan plan)
      : model_(model), source_(source), options_(options), cache_(std::move(plan.cache)) {
    cache_.lengths.clear();
    if (!plan.greedy || !cache_.replay || cache_.fused || model.mesh().pp().size() > 1) return;
    cache_.replay->vocab = plan.vocab;
    behind_ = kBehind;
  }

  void run() {
    while (fetch() || !rows_.empty()) {
      waiting_.empty() ? step() : start();
      receive(behind_);
    }
    receive(0);
  }

 private:
  static constexpr size_t kBehind = 3;  // steps, so that the device always has the next one

  struct Text {
    TextRequest request;
    int64_t length = 0, begun = 0;  // tokens behind the prompt; with those the host has not seen
    int32_t last = 0;               // of them
  };

  // Whether a text has room that waits for it.
  bool fetch() {
    if (rows_.empty() && waiting_.empty()) receive(0);
    while (!done_ && std::ssize(rows_) + std::ssize(waiting_) < options_.batch_size) {
      bool idle = rows_.empty() && waiting_.empty();
      std::optional<TextRequest> next = source_(idle);
      if (!next) {
        done_ = idle;
        break;
      }
      texts_[came_] = {std::move(*next)};
      waiting_.push_back(came_++);
    }
    return !waiting_.empty();
  }

  // The number of tokens that may follow.
  int64_t most(const TextRequest& r) const {
    return std::min(r.sampling.max_tokens, num_positions(model_.config()) - std::ssize(r.prompt));
  }

  bool on_device() const { return behind_ > 0; }

  // The next texts, as many as have prompts that are best read together.
  void start() {
    auto first = std::ssize(rows_);
    std::vector<int64_t> lengths;
    for (size_t text : waiting_) lengths.push_back(std::ssize(texts_.at(text).request.prompt));
    size_t count = together(lengths);
    lengths.resize(std::max<size_t>(1, count));
    auto end = waiting_.begin() + std::ssize(lengths);
    std::vector<size_t> begun(waiting_.begin(), end);
    waiting_.erase(waiting_.begin(), end);
    std::vector<int32_t> tokens;
    for (size_t text : begun) {
      if (options_.on_start) options_.on_start(text);
      std::ranges::copy(texts_.at(text).request.prompt, std::back_inserter(tokens));
    }
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
    if (on_device()) {
      cache_.replay->choose(logits, first_row);
      send(begun, first_row);
    } else {
      arriving_.push_back(chosen(logits, begun));
    }
    count(begun);
  }

  void step() {
    std::vector<size_t> texts = rows_;
    if (on_device()) {
      model_.greedy_step(cache_);
      send(texts, 0);
    } else {
      std::vector<int32_t> last;
      for (size_t text : rows_) last.push_back(texts_.at(text).last);
      Tensor tokens = there(row_of(last).t().contiguous());
      arriving_.push_back(chosen(pass_through(model_, tokens, cache_), texts));
    }
    count(texts);
  }

  // The next tokens of these texts, from the last stage.
  NewTokens chosen(const Tensor& logits, std::vector<size_t> texts) {
    Mesh& mesh = model_.mesh();
    Tensor next = at::empty({std::ssize(texts)}, at::kLong);
    std::vector<std::optional<TokenScore>> scores(texts.size());
    if (mesh.last_stage()) {
      Tensor host = logits.cpu();
      for (size_t i = 0; i < texts.size(); ++i) {
        const auto& [request, length, begun, last] = texts_.at(texts[i]);
        Tensor row = host[static_cast<int64_t>(i)];
        int64_t token = choose(row, request.sampling, std::ssize(request.prompt) + length);
        next.mutable_data_ptr<int64_t>()[i] = token;
        if (request.likeliest && token >= 0)
          scores[i] = score_of(row, token, *request.likeliest, request.sampling.vocab);
      }
    }
    next = there(next);
    mesh.pp().broadcast(next, mesh.pp().size() - 1);
    return {std::move(texts), next.cpu(), std::move(scores)};
  }

  // The last tokens of the rows from this one on go to the host.
  void send(std::vector<size_t> texts, int64_t first_row) {
    Tensor tokens = cache_.replay->tokens.narrow(0, first_row, std::ssize(texts)).flatten();
    at::Device device = tokens.device();
    Tensor host = at::empty(tokens.sizes(), at::dtype(at::kLong).pinned_memory(!device.is_cpu()));
    NewTokens sent{std::move(texts), host.copy_(tokens, true)};
    if (!device.is_cpu()) {
      sent.copied.emplace(device.type());
      sent.copied->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    }
    arriving_.push_back(std::move(sent));
  }

  // One token more of each; those that may have no more make room.
  void count(std::span<const size_t> texts) {
    for (auto i = texts.rbegin(); i != texts.rend(); ++i) {
      Text& text = texts_.at(*i);
      if (++text.begun >= most(text.request)) drop(*i);
    }
  }

  // All but the last `behind` of the tokens on their way.
  void receive(size_t behind) {
    while (arriving_.size() > behind) {
      NewTokens next = std::move(arriving_.front());
      arriving_.pop_front();
      if (next.copied) next.copied->synchronize();
      for (size_t i = next.texts.size(); i-- > 0;) {
        auto text = texts_.find(next.texts[i]);
        if (text == texts_.end()) continue;  // it has ended
        int64_t token = next.tokens.const_data_ptr<int64_t>()[i];
        if (token < 0) {
          lost_numbers(text->first);
          continue;
        }
        if (options_.on_score && i < next.scores.size() && next.scores[i])
          options_.on_score(text->first, *next.scores[i]);
        accept(text->first, text->second, token);
      }
    }
  }

  // A text's new token, or its end.
  void accept(size_t number, Text& text, int64_t id) {
    text.last = static_cast<int32_t>(id);
    if (std::ranges::find(options_.ends, text.last) != options_.ends.end())
      return end(number, TextEnd::kToken);
    ++text.length;
    if (options_.on_token && !options_.on_token(number, text.last))
      return end(number, TextEnd::kCaller);
    if (text.length >= most(text.request)) end(number, TextEnd::kLength);
  }

  void lost_numbers(size_t text) {
    std::string fault = not_finite("greatest logit");
    if (!options_.on_failure) fail(Exit::kNotFinite, fault);
    drop(text);
    texts_.erase(text);
    options_.on_failure(text, fault);
  }

  void end(size_t text, TextEnd how) {
    drop(text);
    texts_.erase(text);
    if (options_.on_end) options_.on_end(text, how);
  }

  // The last row takes the place of this text's, if it has one.
  void drop(size_t text) {
    auto row = std::ranges::find(rows_, text);
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
  const TextSource& source_;
  const TextOptions& options_;
  std::map<size_t, Text> texts_;  // by number: those that have not ended
  std::deque<size_t> waiting_;    // for their prompts to be read
  std::vector<size_t> rows_;      // the text of each row of the cache
  size_t came_ = 0;
  bool done_ = false;  // no more come
  KvCache cache_;
  std::deque<NewTokens> arriving_;
  size_t behind_ = 0;  // so many of which the host does not wait for
};

Plan plan_of(GptNeoX& model, std::span<const TextRequest> requests, int64_t batch_size) {
  int64_t positions = num_positions(model.config()), capacity = 1;
  for (const TextRequest& r : requests)
    capacity = std::max(
        capacity,
        std::min(std::ssize(r.prompt) + std::min(r.sampling.max_tokens, positions), positions));
  Plan plan{model.new_cache(std::clamp<int64_t>(std::ssize(requests), 1, batch_size), capacity)};
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
  TextSource list = [&](bool) {
    return next < requests.size() ? std::optional(requests[next++]) : std::nullopt;
  };
  Texts(model, list, kept, plan_of(model, requests, options.batch_size)).run();
  return texts;
}

}  // namespace neox
