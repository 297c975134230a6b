#include "serve/order.h"

#include <algorithm>
#include <functional>
#include <span>
#include <utility>

#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace neox {
namespace {

// Of one token by itself: bytes that do not form UTF-8 become U+FFFD.
std::string text_of(int32_t token, const ServedModel& model) {
  std::string storage;
  return std::string(unicode::repair(model.tokenizer.token_bytes(token), storage));
}

// Counts characters of a text whose bytes come in pieces, as unicode::repair() gives it: a U+FFFD
// for each part that is no UTF-8.
class Characters {
 public:
  // That begin in these bytes.
  int64_t add(std::string_view bytes) {
    const size_t known = last_.size();
    last_ += bytes;
    int64_t begun = 0;
    size_t at = 0;
    for (size_t next = 0; next < last_.size(); next += utf8_sequence(last_, next).bytes)
      begun += next >= known ? 1 : 0, at = next;
    last_.erase(0, at);
    return begun;
  }
  // What follows is a text of its own.
  void end() { last_.clear(); }

 private:
  std::string last_;  // which the next bytes may go on with
};

// How much of the end of a text may be the beginning of a stop.
size_t begun_stop(const std::string& text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops)
    for (size_t n = std::min(stop.size() - 1, text.size()); n > longest; --n)
      if (text.ends_with(std::string_view(stop).substr(0, n))) longest = n;
  return longest;
}

// Where the first stop begins and ends in what is new since `from`; or nothing.
std::optional<std::pair<size_t, size_t>> first_stop(const std::string& text, size_t from,
                                                    const std::vector<std::string>& stops) {
  std::optional<std::pair<size_t, size_t>> first;
  for (const std::string& stop : stops) {
    size_t at = text.find(stop, from - std::min(from, stop.size() - 1));
    if (at != std::string::npos && (!first || at < first->first)) first = {at, at + stop.size()};
  }
  return first;
}

// Tokens that are told of a choice: of its prompt where it is echoed, and its own.
struct Told {
  std::vector<int32_t> tokens;
  std::vector<const TokenScore*> scores;  // null: of the first one of a prompt
};

// From one of its own scores on; 0: all.
Told told_of(const Order& order, const Choice& choice, size_t from = 0) {
  Told told;
  const OrderedPrompt& prompt = order.prompts[choice.prompt];
  if (order.echo && from == 0) {
    told.tokens = prompt.tokens;
    told.scores.push_back(nullptr);
    if (prompt.scores)
      for (const TokenScore& score : prompt.scores->given) told.scores.push_back(&score);
  }
  for (const TokenScore& score : std::span(choice.scores).subspan(from)) {
    told.tokens.push_back(score.token);
    told.scores.push_back(&score);
  }
  return told;
}

Json likeliest_of(const TokenScore& score, const ServedModel& model) {
  Json all = Json::object();
  for (const auto& [token, logarithm] : score.likeliest) {
    std::string text = text_of(token, model);
    if (!all.contains(text)) all[text] = logarithm;
  }
  std::string taken = text_of(score.token, model);
  if (!all.contains(taken)) all[taken] = score.log_probability;
  return all;
}

}  // namespace

// Where the tokens that are told of a choice begin in its text, in characters.
class TokenOffsets {
 public:
  TokenOffsets(const Order& order, const Choice& choice, const ServedModel& model)
      : model_(model),
        rest_(order.prompts[choice.prompt].text),
        of_prompt_(order.echo ? order.prompts[choice.prompt].tokens.size() : 0),
        at_(order.echo ? 0 : static_cast<int64_t>(count_characters(rest_))),
        begins_(order.echo || rest_.empty()) {}

  // That of the next token.
  int64_t next(int32_t token) {
    if (passed_ == of_prompt_) characters_.end();
    int64_t offset = at_;
    if (is_text(token)) at_ += characters_.add(bytes_of(token));
    ++passed_;
    return offset;
  }

 private:
  std::string bytes_of(int32_t token) {
    std::string bytes = model_.tokenizer.token_bytes(token);
    if (begins_ && !model_.tokenizer.is_special(token))
      begins_ = model_.tokenizer.strip_begin(token, bytes);
    return bytes;
  }
  // Special tokens are none, but for those that stand in a prompt: not what a tokenizer puts in
  // front of it.
  bool is_text(int32_t token) {
    if (!model_.tokenizer.is_special(token)) {
      in_front_ = false;
      return true;
    }
    std::string bytes = model_.tokenizer.token_bytes(token);
    if (in_front_ && !rest_.starts_with(bytes)) return false;
    if (in_front_) rest_.remove_prefix(bytes.size());
    return passed_ < of_prompt_;
  }

  const ServedModel& model_;
  std::string_view rest_;  // of the prompt, behind special tokens in front
  const size_t of_prompt_;
  size_t passed_ = 0;
  Characters characters_;
  int64_t at_;
  bool begins_, in_front_ = true;
};

namespace {

// OpenAI's form for completions. `begin` has passed the tokens before.
Json scores_of(const Order& order, const ServedModel& model, const Told& told,
               TokenOffsets& begin) {
  Json tokens = Json::array(), scores = tokens, likeliest = tokens, offsets = tokens;
  for (size_t i = 0; i < told.tokens.size(); ++i) {
    int64_t offset = begin.next(told.tokens[i]);
    const TokenScore* score = told.scores[i];
    tokens.push_back(text_of(told.tokens[i], model));
    scores.push_back(score ? Json(score->log_probability) : Json());
    likeliest.push_back(score ? likeliest_of(*score, model) : Json());
    offsets.push_back(offset);
  }
  return {{"tokens", tokens},
          {"token_logprobs", scores},
          {"top_logprobs", *order.likeliest > 0 ? likeliest : Json()},
          {"text_offset", offsets}};
}

// And for messages.
Json message_scores_of(const ServedModel& model, const Choice& choice, size_t from) {
  auto one = [&](int32_t token, double logarithm) {
    Json bytes = Json::array();
    for (unsigned char byte : model.tokenizer.token_bytes(token)) bytes.push_back(byte);
    return Json{{"token", text_of(token, model)}, {"logprob", logarithm}, {"bytes", bytes}};
  };
  Json content = Json::array();
  for (const TokenScore& score : std::span(choice.scores).subspan(from)) {
    Json item = one(score.token, score.log_probability), likeliest = Json::array();
    for (const auto& [token, logarithm] : score.likeliest)
      likeliest.push_back(one(token, logarithm));
    item["top_logprobs"] = likeliest;
    content.push_back(item);
  }
  return {{"content", content}};
}

// Of a whole answer; null where none are asked for.
Json logprobs_of(const Order& order, const ServedModel& model, const Choice& choice) {
  if (!order.likeliest) return {};
  if (order.form == ApiForm::kChat) return message_scores_of(model, choice, 0);
  TokenOffsets begin(order, choice, model);
  return scores_of(order, model, told_of(order, choice), begin);
}

// Of the tokens that no event has told.
Json untold_logprobs(const Order& order, const ServedModel& model, Choice& choice) {
  if (!order.likeliest) return {};
  size_t from = std::exchange(choice.told_scores, choice.scores.size());
  if (order.form == ApiForm::kChat) return message_scores_of(model, choice, from);
  if (!choice.offsets) choice.offsets = std::make_shared<TokenOffsets>(order, choice, model);
  return scores_of(order, model, told_of(order, choice, from), *choice.offsets);
}

Json usage_of(const Order& order) {
  int64_t prompts = order.prompt_tokens(), own = order.new_tokens();
  return {{"prompt_tokens", prompts}, {"completion_tokens", own}, {"total_tokens", prompts + own}};
}

// What all of OpenAI's answers begin with.
Json head_of(const Order& order, const ServedModel& model, const char* object) {
  return {{"id", order.id}, {"object", object}, {"created", order.created}, {"model", model.name}};
}

const char* object_of(const Order& order) {
  if (order.form == ApiForm::kCompletions) return "text_completion";
  return order.streams ? "chat.completion.chunk" : "chat.completion";
}

int64_t index_of(const Order& order, const Choice& choice) {
  return &choice - order.choices.data();
}

Json finish_of(const Choice& choice) {
  return choice.finish.empty() ? Json() : Json(choice.finish);
}

Json megatron_answer(const Order& order, const ServedModel& model) {
  Json texts = Json::array(), segments = texts, scores = texts;
  for (const Choice& choice : order.choices) {
    const OrderedPrompt& prompt = order.prompts[choice.prompt];
    texts.push_back(prompt.text + choice.text);
    std::vector<int32_t> tokens = prompt.tokens;
    std::ranges::copy(choice.tokens, std::back_inserter(tokens));
    Json pieces = Json::array(), logarithms = pieces;
    for (int32_t token : tokens) pieces.push_back(text_of(token, model));
    segments.push_back(pieces);
    for (const TokenScore* score : told_of(order, choice).scores)
      if (score && logarithms.size() + 1 < tokens.size())
        logarithms.push_back(score->log_probability);
    scores.push_back(logarithms);
  }
  return {{"text", texts}, {"segments", segments}, {"logprobs", order.likeliest ? scores : Json()}};
}

double mean_logarithm(const Choice* choice) {
  double all = 0;
  for (const TokenScore& score : choice->scores) all += score.log_probability;
  return choice->scores.empty() ? 0 : all / static_cast<double>(choice->scores.size());
}

// By prompts; where some are picked, the likeliest first.
std::vector<const Choice*> returned_of(const Order& order) {
  std::vector<const Choice*> returned;
  for (auto first = order.choices.begin(); first != order.choices.end();
       first += order.per_prompt) {
    std::vector<const Choice*> own;
    for (const Choice& choice : std::span(first, static_cast<size_t>(order.per_prompt)))
      own.push_back(&choice);
    if (order.picks()) std::ranges::stable_sort(own, std::greater(), mean_logarithm);
    returned.insert(returned.end(), own.begin(), own.begin() + order.returned);
  }
  return returned;
}

Json choice_of(const Order& order, const ServedModel& model, const Choice& choice, size_t index) {
  Json answer = {{"index", index}};
  bool chat = order.form == ApiForm::kChat;
  if (chat)
    answer["message"] = {{"role", "assistant"}, {"content", choice.text}};
  else
    answer["text"] = (order.echo ? order.prompts[choice.prompt].text : "") + choice.text;
  answer["logprobs"] = logprobs_of(order, model, choice);
  answer["finish_reason"] = finish_of(choice);
  return answer;
}

}  // namespace

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

int64_t Order::prompt_tokens() const {
  int64_t tokens = 0;
  for (const OrderedPrompt& prompt : prompts) tokens += std::ssize(prompt.tokens);
  return tokens;
}

int64_t Order::new_tokens() const {
  int64_t tokens = 0;
  for (const Choice& choice : choices) tokens += std::ssize(choice.tokens);
  return tokens;
}

bool add_token(const Order& order, Choice& choice, int32_t token) {
  size_t before = choice.text.size();
  choice.tokens.push_back(token);
  choice.text += choice.stream.add(token);
  if (std::ranges::find(order.stop_tokens, token) != order.stop_tokens.end()) {
    choice.finish = "stop";
    return false;
  }
  auto stop = first_stop(choice.text, before, order.stops);
  if (!stop) return true;
  choice.text.resize(order.keeps_stop ? stop->second : stop->first);
  choice.finish = "stop";
  return false;
}

void end_choice(Choice& choice, const std::string& finish) {
  if (!choice.finish.empty()) return;
  choice.text += choice.stream.rest();
  choice.finish = finish;
}

std::string untold(const Order& order, Choice& choice) {
  size_t end = choice.text.size();
  if (choice.finish.empty()) end -= begun_stop(choice.text, order.stops);
  if (end <= choice.told) return "";
  std::string piece = choice.text.substr(choice.told, end - choice.told);
  choice.told = end;
  return piece;
}

std::string answer_of(const Order& order, const ServedModel& model) {
  if (order.form == ApiForm::kMegatron) return dumped(megatron_answer(order, model)) + "\n";
  Json answer = head_of(order, model, object_of(order)), choices = Json::array();
  for (const Choice* choice : returned_of(order))
    choices.push_back(choice_of(order, model, *choice, choices.size()));
  answer["choices"] = choices;
  answer["usage"] = usage_of(order);
  return dumped(answer) + "\n";
}

std::string event_of(const Order& order, const ServedModel& model, Choice& choice,
                     const std::string& piece) {
  Json event = head_of(order, model, object_of(order));
  Json part = {{"index", index_of(order, choice)}};
  if (order.form == ApiForm::kChat) {
    part["delta"] = Json::object();
    if (choice.told == piece.size()) part["delta"]["role"] = "assistant";
    part["delta"]["content"] = piece;
  } else {
    part["text"] = piece;
  }
  part["logprobs"] = untold_logprobs(order, model, choice);
  part["finish_reason"] = finish_of(choice);
  event["choices"] = Json::array({part});
  if (order.tells_usage) event["usage"] = nullptr;  // until the last
  return dumped(event);
}

std::string usage_event(const Order& order, const ServedModel& model) {
  Json event = head_of(order, model, object_of(order));
  event["choices"] = Json::array();
  event["usage"] = usage_of(order);
  return dumped(event);
}

std::string error_body(ApiForm form, int status, const std::string& message, const char* code) {
  if (form == ApiForm::kMegatron) return dumped({{"message", message}});
  constexpr int kServer = 500;
  const char* type = status >= kServer ? "server_error" : "invalid_request_error";
  Json error = {{"message", message}, {"type", type}, {"param", nullptr}, {"code", nullptr}};
  if (code) error["code"] = code;
  return dumped({{"error", error}});
}

}  // namespace neox
