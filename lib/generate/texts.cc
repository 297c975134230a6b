#include "generate/texts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/program.h"
#include "generate/text_stream.h"
#include "model/decode_replay.h"
#include "model/fused_decode.h"

namespace neox {
namespace {

// Why a text failed, for whoever asked for it.
std::string reason_of(const std::exception& e) {
  return is_out_of_memory(e) ? "there is no memory for the text: ask for fewer, or shorter ones"
                             : e.what();
}

using Transfer = Communicator::Transfer;

// One pass of tokens [B, t] through all stages: the logits [B, V] on the last one.
Tensor pass_through(GptNeoX& model, const Tensor& tokens, KvCache& cache,
                    const AfterLayer& after_layer = {}) {
  Mesh& mesh = model.mesh();
  Tensor x;
  if (!mesh.first_stage()) {
    x = at::empty({tokens.size(0), tokens.size(1), model.config().hidden}, model.hidden_options());
    std::vector<Transfer> receive = {{Transfer::kReceive, mesh.pp().rank() - 1, x}};
    mesh.pp().exchange(receive);
  }
  Tensor y = model.generate_step(x, tokens, cache, after_layer);
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

}  // namespace

Texts::Texts(GptNeoX& model, const TextSource& source, const TextOptions& options, TextPlan plan)
    : model_(model), source_(source), options_(options), cache_(std::move(plan.cache)) {
  // Where memory is lacking, rows and their texts still agree.
  rows_.reserve(cache_.lengths.size());
  cache_.lengths.clear();
  if (!plan.greedy || !cache_.replay || cache_.fused || model.mesh().pp().size() > 1) return;
  cache_.replay->vocab = plan.vocab;
  behind_ = kBehind;
}

void Texts::run() {
  while (fetch() || !rows_.empty()) {
    waiting_.empty() || step_is_due() ? step() : start();
    receive(behind_);
  }
  receive(0);
}

// Whether a text has room that waits for it.
bool Texts::fetch() {
  if (rows_.empty() && waiting_.empty()) receive(0);
  while (!done_ && std::ssize(rows_) + std::ssize(waiting_) < options_.batch_size) {
    bool idle = rows_.empty() && waiting_.empty();
    std::optional<TextRequest> next = source_(idle, after_layer());
    // Steps between the layers of what the source computed may have ended the last text: then it is
    // asked again, and may wait.
    if (!next && !idle && rows_.empty() && waiting_.empty()) continue;
    if (!next) {
      done_ = idle;
      break;
    }
    Text& text = texts_[came_] = {std::move(*next)};
    if (text.request.sampling.repetition_penalty != 1)
      for (int32_t token : text.request.prompt) text.made[token];  // 0 times
    waiting_.push_back(came_++);
  }
  return !waiting_.empty();
}

// The number of tokens that may follow.
int64_t Texts::most(const TextRequest& r) const {
  return std::min(r.sampling.max_tokens, num_positions(model_.config()) - std::ssize(r.prompt));
}

// Whether those that grow have waited for prompts as long as they may.
bool Texts::step_is_due() const {
  int64_t most = options_.read_at_once * model_.config().layers;
  return !rows_.empty() && most > 0 && read_ >= most;
}

// Of prompts: the texts that grow take a step in between where one is due. Steps by the CPU's
// kernels share nothing with what reads a prompt but the cache, of which they use the rows in
// front.
AfterLayer Texts::after_layer() {
  if (options_.read_at_once == 0 || !cache_.fused) return {};
  return [this](int64_t tokens) {
    read_ += tokens;
    if (!step_is_due()) return;
    step();
    receive(0);
  };
}

// What lacks memory costs these texts and no other, where somebody is told so.
template <class Work>
void Texts::attempt(const std::vector<size_t>& texts, const Work& work) try {
  work();
} catch (const std::exception& e) {
  if (!options_.on_failure || !is_out_of_memory(e)) throw;
  std::ranges::for_each(texts, [&](size_t text) { lose(text, reason_of(e)); });
}

// The next texts, as many as have prompts that are best read together.
void Texts::start() {
  std::vector<int64_t> lengths;
  for (size_t text : waiting_) lengths.push_back(std::ssize(texts_.at(text).request.prompt));
  size_t count = together(lengths);
  lengths.resize(std::max<size_t>(1, count));
  auto end = waiting_.begin() + std::ssize(lengths);
  std::vector<size_t> begun(waiting_.begin(), end);
  waiting_.erase(waiting_.begin(), end);
  attempt(begun, [&] { read(begun, lengths, count); });
}

void Texts::read(const std::vector<size_t>& begun, std::span<const int64_t> lengths,
                 size_t together) {
  std::vector<int32_t> tokens;
  for (size_t text : begun) {
    if (options_.on_start) options_.on_start(text);
    std::ranges::copy(texts_.at(text).request.prompt, std::back_inserter(tokens));
  }
  size_t first = rows_.size();
  KvCache part = cache_.rows_behind(begun.size());
  Tensor logits = logits_behind(row_of(tokens), lengths, together, part);
  place(begun, part.lengths, first);
  take(logits, begun, static_cast<int64_t>(first));
}

// Behind each of these prompts [B, V].
Tensor Texts::logits_behind(const Tensor& tokens, std::span<const int64_t> lengths, size_t together,
                            KvCache& part) {
  AfterLayer after = after_layer();
  if (!after) read_ += tokens.numel() * model_.config().layers;
  if (together == 0) return pass_through(model_, there(tokens), part, after);
  if (cache_.fused) return cache_.fused->prompts(tokens, lengths, part, after);
  return model_.read_prompts(tokens[0], lengths, part);
}

// How many of the prompts are best read together; 0: one alone, by the model's own layers.
size_t Texts::together(std::span<const int64_t> lengths) const {
  if (cache_.fused) return cache_.fused->prompts_together(lengths);
  size_t padded = pads_prompts(model_) ? prompts_at_once(lengths) : 0;
  return padded > 1 ? padded : 0;
}

// The rows from `first` on are those of the texts that have begun. Others that have ended meanwhile
// have left rows in front of them.
void Texts::place(const std::vector<size_t>& begun, std::span<const int64_t> lengths,
                  size_t first) {
  size_t grown = rows_.size();
  rows_.resize(first);
  cache_.lengths.resize(first);
  rows_.insert(rows_.end(), begun.begin(), begun.end());
  cache_.lengths.insert(cache_.lengths.end(), lengths.begin(), lengths.end());
  for (size_t left = first; left-- > grown;) drop_row(left);
}

// The first new tokens of some rows.
void Texts::take(const Tensor& logits, const std::vector<size_t>& begun, int64_t first_row) {
  if (on_device()) {
    cache_.replay->choose(logits, first_row);
    send(begun, first_row);
  } else {
    arriving_.push_back(chosen(logits, begun));
  }
  count(begun);
}

void Texts::step() {
  read_ = 0;
  std::vector<size_t> texts = rows_;
  attempt(texts, [&] {
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
  });
}

// The next tokens of these texts, from the last stage.
Texts::NewTokens Texts::chosen(const Tensor& logits, std::vector<size_t> texts) {
  Mesh& mesh = model_.mesh();
  size_t n = texts.size();
  NewTokens next{.texts = std::move(texts),
                 .tokens = at::empty({static_cast<int64_t>(n)}, at::kLong),
                 .scores = std::vector<std::optional<TokenScore>>(n),
                 .faults = std::vector<std::string>(n)};
  if (mesh.last_stage()) {
    Tensor host = logits.cpu();
    for (size_t i = 0; i < n; ++i) choose_for(i, host[static_cast<int64_t>(i)], next);
  }
  Tensor tokens = there(next.tokens);
  mesh.pp().broadcast(tokens, mesh.pp().size() - 1);
  next.tokens = tokens.cpu();
  return next;
}

// Of its text i, by logits [V]. What fails is this text's alone, where somebody is told so.
void Texts::choose_for(size_t i, const Tensor& logits, NewTokens& next) const {
  const Text& text = texts_.at(next.texts[i]);
  int64_t& token = next.tokens.mutable_data_ptr<int64_t>()[i];
  try {
    const TextRequest& request = text.request;
    token = choose(logits, request.sampling, std::ssize(request.prompt) + text.length, text.made);
    if (request.likeliest && token >= 0)
      next.scores[i] = score_of(logits, token, *request.likeliest, request.sampling.vocab);
  } catch (const std::exception& e) {
    if (!options_.on_failure) throw;
    token = -1;
    next.faults[i] = reason_of(e);
  }
}

// The last tokens of the rows from this one on go to the host.
void Texts::send(std::vector<size_t> texts, int64_t first_row) {
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
void Texts::count(std::span<const size_t> texts) {
  for (auto i = texts.rbegin(); i != texts.rend(); ++i) {
    Text& text = texts_.at(*i);
    if (++text.begun >= most(text.request)) drop(*i);
  }
}

// All but the last `behind` of the tokens on their way.
void Texts::receive(size_t behind) {
  while (arriving_.size() > behind) {
    NewTokens next = std::move(arriving_.front());
    arriving_.pop_front();
    if (next.copied) next.copied->synchronize();
    for (size_t i = next.texts.size(); i-- > 0;) {
      auto text = texts_.find(next.texts[i]);
      if (text == texts_.end()) continue;  // it has ended
      int64_t token = next.tokens.const_data_ptr<int64_t>()[i];
      if (token < 0) {
        std::string why = i < next.faults.size() ? next.faults[i] : "";
        if (why.empty()) why = not_finite("greatest logit");
        if (!options_.on_failure) fail(Exit::kNotFinite, why);
        lose(text->first, why);
        continue;
      }
      if (options_.on_score && i < next.scores.size() && next.scores[i])
        options_.on_score(text->first, *next.scores[i]);
      accept(text->first, text->second, token);
    }
  }
}

// A text's new token, or its end.
void Texts::accept(size_t number, Text& text, int64_t id) {
  text.last = static_cast<int32_t>(id);
  if (std::ranges::find(options_.ends, text.last) != options_.ends.end())
    return end(number, TextEnd::kToken);
  ++text.length;
  if (counts_tokens(text.request.sampling)) ++text.made[text.last];
  if (options_.on_token && !options_.on_token(number, text.last))
    return end(number, TextEnd::kCaller);
  if (text.length >= most(text.request)) end(number, TextEnd::kLength);
}

void Texts::lose(size_t text, const std::string& why) {
  drop(text);
  texts_.erase(text);
  options_.on_failure(text, why);
}

void Texts::end(size_t text, TextEnd how) {
  drop(text);
  texts_.erase(text);
  if (options_.on_end) options_.on_end(text, how);
}

// The last row takes the place of this text's, if it has one.
void Texts::drop(size_t text) {
  auto row = std::ranges::find(rows_, text);
  if (row != rows_.end()) drop_row(static_cast<size_t>(row - rows_.begin()));
}

void Texts::drop_row(size_t row) {
  cache_.drop_row(static_cast<int64_t>(row));
  rows_[row] = rows_.back();
  rows_.pop_back();
}

// A GPU copies by itself, out of pinned memory.
Tensor Texts::there(const Tensor& x) const {
  at::Device device = model_.hidden_options().device();
  return device.is_cpu() ? x : x.pin_memory().to(device, true);
}

}  // namespace neox
