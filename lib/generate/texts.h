// What generate() runs: texts that grow side by side, a batch of them at a time. Prompts are read
// one by one, or together: on a CPU in a way in which each gives what it gives alone, so that a
// text is the same in any company. Where steps are replayed on a device and all are greedy, a step
// takes its tokens from the one before it on the device; the host looks at them some steps behind,
// and leaves aside what follows the end of a text. On one thread.
#pragma once
#include <c10/core/Event.h>

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "generate/generate.h"

namespace neox {

// What is known before the first text comes.
struct TextPlan {
  KvCache cache;        // all rows are free
  bool greedy = false;  // all are, and chosen among the same ids, without scores
  int64_t vocab = 0;    // those
};

class Texts {
 public:
  // All must outlive it.
  Texts(GptNeoX& model, const TextSource& source, const TextOptions& options, TextPlan plan);
  void run();

 private:
  static constexpr size_t kBehind = 3;  // steps, so that the device always has the next one

  struct Text {
    TextRequest request;
    int64_t length = 0, begun = 0;  // tokens behind the prompt; with those the host has not seen
    int32_t last = 0;               // of them
    TokenCounts made = {};          // where the sampling asks for it
  };
  // New tokens of some texts, on their way from the device or there.
  struct NewTokens {
    std::vector<size_t> texts;
    Tensor tokens;  // [texts] int64 on the host; -1: there is none
    std::vector<std::optional<TokenScore>> scores = {};  // of the texts, or none at all
    std::vector<std::string> faults = {};  // why there is no token; "": the logits are not finite
    std::optional<c10::Event> copied = {};
  };

  bool fetch();
  int64_t most(const TextRequest& r) const;
  bool on_device() const { return behind_ > 0; }
  bool step_is_due() const;
  AfterLayer after_layer();
  template <class Work>
  void attempt(const std::vector<size_t>& texts, const Work& work);

  void start();
  void read(const std::vector<size_t>& begun, std::span<const int64_t> lengths, size_t together);
  Tensor logits_behind(const Tensor& tokens, std::span<const int64_t> lengths, size_t together,
                       KvCache& part);
  size_t together(std::span<const int64_t> lengths) const;
  void place(const std::vector<size_t>& begun, std::span<const int64_t> lengths, size_t first);
  void step();
  void take(const Tensor& logits, const std::vector<size_t>& begun, int64_t first_row);
  NewTokens chosen(const Tensor& logits, std::vector<size_t> texts);
  void choose_for(size_t i, const Tensor& logits, NewTokens& next) const;
  void send(std::vector<size_t> texts, int64_t first_row);
  void count(std::span<const size_t> texts);
  void receive(size_t behind);
  void accept(size_t number, Text& text, int64_t id);
  void lose(size_t text, const std::string& why);
  void end(size_t text, TextEnd how);
  void drop(size_t text);
  void drop_row(size_t row);
  Tensor there(const Tensor& x) const;

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
  int64_t read_ = 0;   // tokens of prompts, times layers, since the last step
};

}  // namespace neox
