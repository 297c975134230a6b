// A request for texts, what becomes of it, and how it is read from JSON and told in JSON: the forms
// of Megatron-LM's text generation server (PUT /api, megatron/text_generation_server.py) and of
// OpenAI's API (POST /v1/completions, /v1/chat/completions).
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "chat/chat.h"
#include "generate/generate.h"
#include "generate/score.h"
#include "generate/text_stream.h"
#include "serve/http.h"

namespace neox {

using Json = nlohmann::ordered_json;

enum class ApiForm { kMegatron, kCompletions, kChat };

// What requests are made to.
struct ServedModel {
  const Tokenizer& tokenizer;
  const ModelConfig& config;
  std::string name;
  std::optional<ChatTemplate> chat = {};
};

struct OrderedPrompt {
  std::string text;
  std::vector<int32_t> tokens;
  std::optional<TextScores> scores = {};  // where they are asked for, and known
};

class TokenOffsets;

// One text of an order.
struct Choice {
  size_t prompt;  // which one
  TextStream stream;
  std::string text = {};  // behind the prompt, so far
  size_t told = 0;        // bytes of it that events have told
  size_t told_scores = 0;
  std::shared_ptr<TokenOffsets> offsets = {};  // where events tell scores
  std::vector<int32_t> tokens = {};
  std::vector<TokenScore> scores = {};  // also of a token that ends the text
  std::string finish = {};              // "": it grows; else "stop" or "length"
};

struct Order {
  ApiForm form = ApiForm::kCompletions;
  std::vector<OrderedPrompt> prompts;
  Sampling sampling;
  uint64_t seed = 0;
  int64_t per_prompt = 1;            // texts that grow for each prompt
  int64_t returned = 1;              // of them: the likeliest, by the mean over their tokens
  std::optional<int64_t> likeliest;  // how many are told with each token; none: no scores
  bool echo = false, streams = false, tells_usage = false;
  std::vector<std::string> stops;
  std::vector<int32_t> stop_tokens = {};
  bool keeps_stop = false;  // as the end of a text
  std::string id;
  int64_t created = 0;  // Unix time
  std::chrono::steady_clock::time_point begun = {};
  std::shared_ptr<HttpReply> reply = nullptr;
  std::vector<Choice> choices = {};
  size_t open = 0;  // that have not ended

  int64_t prompt_tokens() const;
  int64_t new_tokens() const;
  bool picks() const { return returned < per_prompt; }
  // How many likeliest ones a text is scored with, to be told or to be picked; none: it is not.
  std::optional<int64_t> scored() const { return likeliest || !picks() ? likeliest : 0; }
  bool scores_prompts() const { return echo && likeliest; }
  // One new token, the likeliest, comes with the scores of its prompt.
  bool scores_next() const {
    return scores_prompts() && sampling.max_tokens == 1 && is_greedy(sampling);
  }
};

// What is wrong with a request, with OpenAI's code for it; null: none.
struct OrderError : Error {
  OrderError(const std::string& what, const char* its_code)
      : Error(Exit::kUsage, what), code(its_code) {}
  const char* code;
};

// The order in the body of a request, with its choices. Throws Error (64) saying which field is
// wrong, in what way; OrderError where clients look at the code.
Order read_order(ApiForm form, const std::string& body, const ServedModel& model);

// A token more of a choice. False where the text is at its end: `finish` is set.
bool add_token(const Order& order, Choice& choice, int32_t token);
// No more come: finish is "stop" or "length", unless it is set already.
void end_choice(Choice& choice, const std::string& finish);
// What events may tell of a choice now: all of an ended one, else what no stop can begin in. ""
// where there is nothing new.
std::string untold(const Order& order, Choice& choice);

// Bytes that do not form UTF-8, as names of directories may have them, become U+FFFD.
std::string dumped(const Json& json);
// The answer to an order whose choices have all ended.
std::string answer_of(const Order& order, const ServedModel& model);
// Events: that a piece of a choice has come, and the last one.
std::string event_of(const Order& order, const ServedModel& model, Choice& choice,
                     const std::string& piece);
std::string usage_event(const Order& order, const ServedModel& model);
// {"message": ...}, or OpenAI's {"error": {"message": ...}}, with a code of OpenAI's or none.
std::string error_body(ApiForm form, int status, const std::string& message,
                       const char* code = nullptr);

}  // namespace neox
