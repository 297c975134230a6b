#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"
#include "base/json_bounds.h"
#include "base/text.h"
#include "generate/conversation.h"
#include "ops/random.h"
#include "serve/fields.h"
#include "serve/order.h"

namespace neox {
namespace {

constexpr int64_t kMostPrompts = 1024, kMostTexts = 1024, kMostLikeliest = 100;
// Each takes about 120 bytes of memory, more as it is told.
constexpr int64_t kMostScores = 4 << 20;
constexpr size_t kMostStops = 16;
constexpr JsonBounds kBodyBounds = {.levels = 16, .keys = 1000, .all_keys = 50'000};
constexpr const char* kNotHere = "not supported; leave it out";
constexpr int64_t kAnyNumber = std::numeric_limits<int64_t>::max();

Json parsed(const std::string& body) {
  std::string what = beyond(kBodyBounds, body);
  check_usage(what.empty(), "the body of the request ", what);
  try {
    return Json::parse(body);
  } catch (const Json::exception& e) {
    std::string_view why = e.what();  // "[json.exception.parse_error.101] parse error at ..."
    fail(Exit::kUsage, "the body of the request is not readable JSON: ",
         why.substr(std::min(why.find("] "), why.size() - 2) + 2));
  }
}

uint64_t any_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

class Reader {
 public:
  Reader(ApiForm form, const Json& body, const ServedModel& model)
      : fields_(body, "the body of the request"),
        model_(model),
        positions_(num_positions(model.config)) {
    order_.form = form;
    order_.sampling.vocab = model.tokenizer.vocab_size();
  }

  Order read() {
    if (order_.form == ApiForm::kMegatron)
      megatron();
    else
      openai();
    fields_.check_all_known();
    check_usage(std::ssize(order_.prompts) * order_.per_prompt <= kMostTexts, "a request for ",
                std::ssize(order_.prompts) * order_.per_prompt, " texts; at most ", kMostTexts);
    check_scores();
    add_choices();
    return std::move(order_);
  }

 private:
  void megatron() {
    fields_.only("max_len", {}, "no longer used: take tokens_to_generate");
    fields_.only("sentences", {}, "no longer used: take prompts");
    const Json* prompts = fields_.find("prompts");
    constexpr size_t kMost = 128;
    check_usage(prompts, "prompts argument required");
    check_usage(prompts->is_array(), "prompts is not a list of strings");
    check_usage(!prompts->empty(), "prompts is empty");
    check_usage(prompts->size() <= kMost, "Maximum number of prompts is ", kMost);
    bool begins = fields_.flag("add_BOS");
    for (const Json& prompt : *prompts) {
      check_usage(prompt.is_string(), "prompts is not a list of strings");
      check_usage(begins || !prompt.get_ref<const std::string&>().empty(),
                  "Empty prompts require add_BOS=true");
      add_text(prompt.get<std::string>(), begins);
    }
    order_.echo = true;
    order_.sampling.max_tokens = fields_.integer("tokens_to_generate", 0, kAnyNumber).value_or(64);
    if (fields_.flag("logprobs")) order_.likeliest = 0;
    check_usage(order_.sampling.max_tokens > 0 || order_.likeliest,
                "tokens_to_generate=0 implies logprobs should be True");
    megatron_sampling();
    for (auto& [prompt, tokens, scores] : order_.prompts) check_tokens(prompt, tokens);
  }

  void megatron_sampling() {
    Sampling& s = order_.sampling;
    constexpr int64_t kMostTopK = 1000;
    s.temperature = fields_.real("temperature", 0, 100).value_or(1);
    check_usage(s.temperature > 0,
                "temperature must be a positive number less than or equal to 100.0");
    s.top_k = fields_.integer("top_k", 0, kMostTopK).value_or(0);
    s.top_p = fields_.real("top_p", 0, 1).value_or(0);
    check_usage(s.top_k == 0 || s.top_p == 0, "cannot set both top-k and top-p samplings.");
    fields_.only("top_p_decay", {0, 0.0}, "top_p that changes along a text is not supported");
    fields_.only("top_p_bound", {0, 0.0}, "top_p that changes along a text is not supported");
    fields_.only("beam_width", {}, "Beam search is not supported; leave beam_width out");
    fields_.only("prevent_newline_after_colon", {false}, "not supported; leave it out");
    fields_.ignore({"stop_token", "length_penalty", "no_log", "barrier"});
    bool double_end = fields_.flag("stop_on_double_eol"), end = fields_.flag("stop_on_eol");
    if (end || double_end) order_.stops = {end ? "\n" : "\n\n"};
    order_.keeps_stop = true;
    auto seed = fields_.integer("random_seed", -1, kAnyNumber).value_or(-1);
    order_.seed = seed < 0 ? any_seed() : static_cast<uint64_t>(seed);
  }

  void openai() {
    bool chat = order_.form == ApiForm::kChat;
    chat ? messages() : prompts();
    order_.streams = fields_.flag("stream");
    numbers_of_texts();
    if (const Json* more = fields_.find("stream_options")) {
      Fields options(*more, "stream_options");
      order_.tells_usage = options.flag("include_usage");
      options.ignore({"include_obfuscation"});
      options.check_all_known();
    }
    for (std::string& stop : fields_.texts("stop", kMostStops)) add_stop(std::move(stop));
    auto seed = fields_.integer("seed", std::numeric_limits<int64_t>::min(), kAnyNumber);
    order_.seed = seed ? static_cast<uint64_t>(*seed) : any_seed();
    openai_sampling();
    openai_scores();
    auto most = fields_.integer("max_tokens", 0, kAnyNumber);
    if (chat) {
      auto newer = fields_.integer("max_completion_tokens", 0, kAnyNumber);
      check_usage(!most || !newer || *most == *newer, "max_tokens is ", most.value_or(0),
                  ", and max_completion_tokens, its newer name, ", newer.value_or(0));
      if (newer) most = newer;
    }
    // transformers' name, which lm-evaluation-harness hands on beside its own max_tokens.
    auto beside = fields_.integer("max_new_tokens", 0, kAnyNumber);
    if (beside) most = std::min(*beside, most.value_or(*beside));
    constexpr int64_t kUsual = 16;  // OpenAI's default
    order_.sampling.max_tokens = most.value_or(chat ? positions_ : kUsual);
    check_usage(order_.sampling.max_tokens > 0 || order_.echo, "max_tokens is 0: ",
                chat ? "nothing would be answered; give 1 or more"
                     : "nothing would be answered; give 1 or more, or echo: true for the prompt");
    for (auto& [prompt, tokens, scores] : order_.prompts) check_tokens(prompt, tokens);
    refuse_what_is_not_here();
  }

  // best_of may be 1, its default of OpenAI's, beside any n.
  void numbers_of_texts() {
    int64_t n = fields_.integer("n", 1, kMostTexts).value_or(1);
    order_.returned = order_.per_prompt = n;
    if (order_.form == ApiForm::kChat) return fields_.only("best_of", {1, n}, kNotHere);
    int64_t best_of = fields_.integer("best_of", 1, kMostTexts).value_or(1);
    check_usage(best_of == 1 || best_of >= n, "best_of is ", best_of, ", and n, how many of them ",
                "are returned, ", n, ": it must be as large as n or larger");
    order_.per_prompt = std::max(best_of, n);
    check_usage(!order_.picks() || !order_.streams, "best_of is ", best_of, ", and n ", n,
                ": which texts are the best shows when all are done; leave stream out");
  }

  // Special tokens are no text of an answer: one that is a stop is found as a token.
  void add_stop(std::string stop) {
    std::vector<int32_t> tokens;
    if (stop.empty()) return;
    model_.tokenizer.encode_plain(stop, tokens);
    auto special = std::ranges::find_if(
        tokens, [&](int32_t token) { return model_.tokenizer.is_special(token); });
    if (special == tokens.end()) return order_.stops.push_back(std::move(stop));
    check_usage(tokens.size() == 1, "stop has ", model_.tokenizer.token_bytes(*special),
                " beside other text: a special token is no text of an answer; give it alone");
    order_.stop_tokens.push_back(*special);
  }

  void openai_sampling() {
    Sampling& s = order_.sampling;
    s.temperature = fields_.real("temperature", 0, 100).value_or(1);
    s.top_p = fields_.real("top_p", 0, 1).value_or(1);
    s.top_k = fields_.integer("top_k", -1, kAnyNumber).value_or(0);
    if (s.top_p == 0) s.temperature = 0;  // the likeliest, as of any small one
    if (s.top_p == 1) s.top_p = 0;        // all
    if (s.top_k < 0) s.top_k = 0;         // all, as others write it
    s.min_p = fields_.real("min_p", 0, 1).value_or(0);
    if (s.temperature == 0) s.top_k = 0, s.top_p = 0, s.min_p = 0;  // the likeliest
    s.repetition_penalty = fields_.real("repetition_penalty", 0.1, 10).value_or(1);
    s.presence_penalty = fields_.real("presence_penalty", -2, 2).value_or(0);
    s.frequency_penalty = fields_.real("frequency_penalty", -2, 2).value_or(0);
    bias();
  }

  void openai_scores() {
    if (order_.form == ApiForm::kCompletions) {
      order_.echo = fields_.flag("echo");
      order_.likeliest = fields_.integer("logprobs", 0, kMostLikeliest);
    } else if (fields_.flag("logprobs")) {
      order_.likeliest = fields_.integer("top_logprobs", 0, kMostLikeliest).value_or(0);
    } else {
      fields_.only("top_logprobs", {0}, "goes with logprobs: true");
    }
    check_usage(!order_.streams || !order_.echo,
                "echo and stream cannot both be asked for; leave one out");
  }

  // {"TOKEN": NUMBER, ...}
  void bias() {
    const Json* given = fields_.find("logit_bias");
    if (!given) return;
    check_usage(given->is_object(), "logit_bias must be a JSON object");
    constexpr double kMost = 100;
    for (const auto& [key, value] : given->items()) {
      auto token = number_of<int32_t>(key);
      bool fits = token && *token >= 0 && *token < order_.sampling.vocab && value.is_number() &&
                  std::abs(value.get<double>()) <= kMost;
      check_usage(fits, "logit_bias has ", Fields::shown(key), ": ", Fields::shown(value),
                  "; must be {\"TOKEN\": NUMBER}, tokens from 0 to ", order_.sampling.vocab - 1,
                  ", numbers from -100 to 100");
      order_.sampling.bias.emplace_back(*token, value.get<double>());
    }
  }

  // What would change the answer, but for values that do not.
  void refuse_what_is_not_here() {
    const std::pair<const char*, std::vector<Json>> kElsewhere[] = {
        {"suffix", {""}},
        {"length_penalty", {1, 1.0}},
        {"min_tokens", {0}},
        {"ignore_eos", {false}},
        {"skip_special_tokens", {true}},
        {"num_beams", {1}},
        {"use_beam_search", {false}},
        {"early_stopping", {false}},
        {"tools", {Json::array()}},
        {"tool_choice", {"none", "auto"}},
        {"functions", {Json::array()}},
        {"function_call", {"none", "auto"}},
        {"response_format", {Json{{"type", "text"}}}},
        {"modalities", {Json::array({"text"})}},
        {"reasoning_effort", {}},
        {"verbosity", {}},
        {"prediction", {}},
        {"audio", {}},
        {"web_search_options", {}}};
    for (const auto& [name, values] : kElsewhere) fields_.only(name, values, kNotHere);
    fields_.ignore({"model", "user", "metadata", "store", "service_tier", "safety_identifier",
                    "parallel_tool_calls", "prompt_cache_key", "prompt_cache_retention",
                    "prompt_cache_options"});
  }

  // A text, a list of texts, a list of tokens, or a list of such lists.
  void prompts() {
    const Json* prompt = fields_.find("prompt");
    check_usage(prompt, "which prompt? Give \"prompt\": a text, a list of texts, or tokens");
    if (prompt->is_string()) return add_text(prompt->get<std::string>(), false);
    check_usage(prompt->is_array() && !prompt->empty() &&
                    (std::ssize(*prompt) <= kMostPrompts || prompt->front().is_number()),
                "prompt must be a text, a list of 1 to ", kMostPrompts, " texts, or tokens");
    if (prompt->front().is_number()) return add_tokens(*prompt);
    for (const Json& one : *prompt)
      one.is_string() ? add_text(one.get<std::string>(), false) : add_tokens(one);
  }

  // begins: behind what a text without a prompt begins with, which the tokenizer may have put
  // there.
  void add_text(const std::string& text, bool begins) {
    std::vector<int32_t> tokens, begin;
    if (!text.empty()) model_.tokenizer.encode(text, tokens);
    if (text.empty() || begins) begin = prompt_tokens("", model_.tokenizer, model_.config);
    if (std::ranges::mismatch(begin, tokens).in1 != begin.end())
      tokens.insert(tokens.begin(), begin.begin(), begin.end());
    order_.prompts.push_back({text, std::move(tokens)});
  }

  void add_tokens(const Json& list) {
    std::vector<int32_t> tokens;
    check_usage(list.is_array() && !list.empty(),
                "prompt must be a text, a list of texts, or tokens: lists of at least one number");
    for (const Json& token : list) {
      bool fits = token.is_number_unsigned() &&
                  token.get<uint64_t>() < static_cast<uint64_t>(model_.config.vocab);
      if (!fits)
        fail(Exit::kUsage, "prompt has the token ", Fields::shown(token),
             "; tokens of this model are 0 to ", model_.config.vocab - 1);
      tokens.push_back(token.get<int32_t>());
    }
    order_.prompts.push_back({model_.tokenizer.decode(tokens, Tokenizer::Special::kKeep), tokens});
  }

  void messages() {
    check_usage(model_.chat.has_value(),
                "this server has no chat template: start neox-serve with "
                "--chat-template NAME, or ask /v1/completions");
    const Json* list = fields_.find("messages");
    check_usage(list && list->is_array() && !list->empty(),
                "which messages? Give \"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]");
    order_.prompts.push_back(
        {"", tokens_before_reply(chat_messages(*list), *model_.chat, model_.tokenizer)});
  }

  std::vector<ChatMessage> chat_messages(const Json& list) const try {
    Json messages = Json::array();
    for (const Json& message : list)
      messages.push_back(for_template(message, concat("message ", messages.size() + 1)));
    return messages_of(messages, *model_.chat);
  } catch (const Error& e) { fail(Exit::kUsage, e.what()); }

  // Of a message's fields those that a template may write. A reply may be without content. what:
  // "message 2".
  static Json for_template(const Json& object, const std::string& what) {
    Fields one(object, what);
    Json message = Json::object();
    const Json *role = one.find("role"), *content = one.find("content");
    if (role) message["role"] = *role;
    message["content"] = content ? *content : Json("");
    bool reply = role && *role == "assistant";
    check_usage(content ? content->is_string() || content->is_array() : reply, what,
                " needs a content that is a text, or a list of parts of the type text");
    for (const char* name : {"name", "tool_call_id"}) {
      const Json* field = one.find(name);
      if (!field) continue;
      check_usage(field->is_string(), what, " has the ", name, " ", Fields::shown(*field),
                  "; must be a text");
      message[name] = *field;
    }
    one.only("tool_calls", {Json::array()}, kNotHere);
    one.only("function_call", {}, kNotHere);
    one.only("type", {"text"}, kNotHere);  // of lm-evaluation-harness 0.4.9 to 0.4.11
    one.ignore({"refusal", "annotations", "audio"});
    one.check_all_known();
    return message;
  }

  // Of which there may be one more than leave a position for the next where no more is read.
  void check_tokens(const std::string& text, const std::vector<int32_t>& tokens) const {
    bool only_read = order_.sampling.max_tokens == 0 || order_.scores_next();
    if (only_read && std::ssize(tokens) == positions_) return;
    constexpr const char* kTooLong = "context_length_exceeded";
    if (order_.form == ApiForm::kChat && std::ssize(tokens) >= positions_)
      throw OrderError(concat("the messages have ", counted(std::ssize(tokens), "token"),
                              "; the model has ", positions_, " positions: shorten them"),
                       kTooLong);
    try {
      check_room(text, tokens, model_.config);
    } catch (const Error& e) { throw OrderError(e.what(), tokens.empty() ? nullptr : kTooLong); }
  }

  // Each text tells those of its prompt anew, and of as many tokens behind it as there is room for.
  void check_scores() const {
    if (!order_.scored()) return;
    int64_t tokens = 0;
    for (const OrderedPrompt& prompt : order_.prompts) {
      int64_t own = std::ssize(prompt.tokens);
      if (order_.scores_prompts()) tokens += own;
      tokens += std::min(order_.sampling.max_tokens, std::max<int64_t>(positions_ - own, 0));
    }
    int64_t scores = tokens * order_.per_prompt * (*order_.scored() + 1);
    check_usage(scores <= kMostScores, "the answer would take ", scores,
                " scores of tokens (logprobs); at most ", kMostScores, ": take a smaller ",
                order_.form == ApiForm::kMegatron ? "tokens_to_generate"
                : order_.form == ApiForm::kChat   ? "n, max_tokens or top_logprobs"
                : order_.picks()                  ? "best_of, max_tokens or logprobs"
                                                  : "n, max_tokens or logprobs",
                order_.form == ApiForm::kChat ? "" : ", or fewer prompts");
  }

  void add_choices() {
    for (size_t prompt = 0; prompt < order_.prompts.size(); ++prompt) {
      bool text = order_.form == ApiForm::kChat || order_.prompts[prompt].text.empty();
      auto begin = text ? TextStream::Begin::kText : TextStream::Begin::kBehindPrompt;
      for (int64_t i = 0; i < order_.per_prompt; ++i)
        order_.choices.push_back({prompt, TextStream(model_.tokenizer, begin)});
    }
    order_.open = order_.choices.size();
  }

  Fields fields_;
  const ServedModel& model_;
  int64_t positions_;
  Order order_;
};

}  // namespace

Order read_order(ApiForm form, const std::string& body, const ServedModel& model) {
  Json json = parsed(body);
  return Reader(form, json, model).read();
}

}  // namespace neox
