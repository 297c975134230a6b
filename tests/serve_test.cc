// neox-serve: what requests get is what neox-generate and the model's logits give; the forms of
// OpenAI and Megatron-LM; texts beside each other; what is wrong is said, and costs nobody else
// anything.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <future>

#include "base/text.h"
#include "generate/load.h"
#include "generate/score.h"
#include "generate_program.h"
#include "http_client.h"
#include "launch/process_info.h"

namespace neox::testing {
namespace {

using Json = nlohmann::json;
using Tokens = std::vector<int32_t>;

class Serve : public GenerateProgram {
 protected:
  // A server of the run's model while a test lasts.
  class Server {
   public:
    explicit Server(const Strings& more = {}, const Strings& environment = {})
        : child_(Strings{program("neox-serve"), run().save(), "--listen", "0"} + more,
                 {.environment = environment}) {
      EXPECT_TRUE(child_.wait_for("/v1/completions -d"));
      const std::string& said = child_.said();
      size_t at = said.find("http://127.0.0.1:");
      check(at != std::string::npos, "no address: ", said);
      port_ = std::stoi(said.substr(at + std::string("http://127.0.0.1:").size()));
      // Its messages are read, or it would wait for room in the pipe.
      reads_ = std::async(std::launch::async, [this] { child_.wait_for("Stopped"); });
    }
    HttpClient client() const { return HttpClient(port_); }
    Json completion(const Json& order) const {
      HttpAnswer answer = client().post("/v1/completions", order.dump());
      EXPECT_EQ(answer.status, 200) << answer.body;
      return Json::parse(answer.body);
    }
    std::string text(const Json& order) const { return completion(order)["choices"][0]["text"]; }
    Ended stop() {
      child_.signal(SIGTERM);
      reads_.get();
      return child_.end();
    }
    ~Server() {
      if (reads_.valid()) stop();
    }
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

   private:
    Child child_;
    int port_ = 0;
    std::future<void> reads_;
  };

  static Server& server() {
    static Server server;
    return server;
  }
  static std::string generated(const std::string& prompt) {
    std::string all = text({"--prompt", prompt, "--temperature", "0", "--json"});
    return Json::parse(all)["text"];
  }
};

// What follows each event's "data: ".
std::vector<std::string> events_in(const std::string& body) {
  std::vector<std::string> events;
  for (size_t at = 0; at < body.size();) {
    size_t end = body.find("\n\n", at);
    EXPECT_EQ(body.compare(at, 6, "data: "), 0) << body.substr(at);
    if (end == std::string::npos) break;
    events.push_back(body.substr(at + 6, end - at - 6));
    at = end + 2;
  }
  return events;
}

// The pieces of a text in a stream of OpenAI's events, joined.
std::string streamed(const std::string& body) {
  std::string text;
  for (const std::string& event : events_in(body)) {
    if (event == "[DONE]" || Json::parse(event)["choices"].empty()) continue;
    Json choice = Json::parse(event)["choices"][0];
    text +=
        (choice.contains("delta") ? choice["delta"]["content"] : choice["text"]).get<std::string>();
  }
  return text;
}

TEST_F(Serve, ScoresOfATextAreTheLogitsOfStepsByThemselves) {
  LoadedModel loaded(run().save(), {"precision=fp32"}, at::kCPU);
  Tokens tokens = loaded.tokenizer().encode("the mi ka of ren");
  TextScores all = score(loaded.model(), tokens, 3, 0);
  ASSERT_EQ(all.given.size() + 1, tokens.size());
  at::NoGradGuard no_grad;
  KvCache cache = loaded.model().new_cache(1, std::ssize(tokens));
  for (size_t i = 0; i < tokens.size(); ++i) {
    at::Tensor token = at::full({1, 1}, tokens[i], at::kLong);
    at::Tensor logits = loaded.model().generate_step({}, token, cache)[0].to(at::kFloat);
    at::Tensor expected = at::log_softmax(logits, 0);
    const TokenScore& found = i < all.given.size() ? all.given[i] : all.next;
    EXPECT_EQ(found.token, i < all.given.size() ? tokens[i + 1] : logits.argmax().item<int32_t>());
    EXPECT_NEAR(found.log_probability, expected[found.token].item<float>(), 2e-5);
    ASSERT_EQ(found.likeliest.size(), 3U);
    for (const auto& [id, logarithm] : found.likeliest)
      EXPECT_NEAR(logarithm, expected[id].item<float>(), 2e-5);
    EXPECT_EQ(found.likeliest[0].first, logits.argmax().item<int32_t>());
    TokenScore again = score_of(logits, found.token, 3, 0);
    EXPECT_NEAR(again.log_probability, found.log_probability, 2e-5);
  }
}

TEST_F(Serve, GivesTheTextsOfNeoxGenerate) {
  for (const char* prompt : {"the mi ka", "of ren", "ka"}) {
    std::string expected = generated(prompt);
    Json order = {{"prompt", prompt}, {"max_tokens", 12}, {"temperature", 0}};
    Json answer = server().completion(order);
    EXPECT_EQ(answer["choices"][0]["text"], expected);
    EXPECT_EQ(answer["object"], "text_completion");
    EXPECT_EQ(answer["usage"]["completion_tokens"], 12);
    EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
    order["echo"] = true;
    EXPECT_EQ(server().text(order), prompt + expected);
  }
}

TEST_F(Serve, TakesTokensAsPrompts) {
  Tokenizer tokenizer = Tokenizer::from_json(Material::get() / "tokenizer.json");
  Json order = {{"prompt", {tokenizer.encode("the mi"), tokenizer.encode("of ren")}},
                {"max_tokens", 12},
                {"temperature", 0}};
  Json choices = server().completion(order)["choices"];
  EXPECT_EQ(choices[0]["text"], generated("the mi"));
  EXPECT_EQ(choices[1]["text"], generated("of ren"));
  EXPECT_EQ(choices[1]["index"], 1);
}

TEST_F(Serve, TextsBesideEachOtherAreTheSameAsAlone) {
  std::vector<std::string> prompts, alone;
  for (int i = 0; i < 12; ++i) prompts.push_back(TextGenerator(100 + i).text(3 + i));
  auto order = [](const std::string& prompt, int i) {
    return Json{{"prompt", prompt}, {"max_tokens", 5 + i}, {"seed", i}, {"temperature", i % 2}};
  };
  for (int i = 0; i < 12; ++i) alone.push_back(server().text(order(prompts[i], i)));
  std::vector<std::future<std::string>> together;
  for (int i = 0; i < 12; ++i)
    together.push_back(
        std::async(std::launch::async, [&, i] { return server().text(order(prompts[i], i)); }));
  for (int i = 0; i < 12; ++i) EXPECT_EQ(together[i].get(), alone[i]) << i;
}

TEST_F(Serve, EqualSeedsGiveEqualTexts) {
  Json order = {{"prompt", "the"}, {"max_tokens", 20}, {"n", 3}, {"seed", 5}};
  Json first = server().completion(order)["choices"], again = server().completion(order)["choices"];
  EXPECT_EQ(first, again);
  EXPECT_NE(first[0]["text"], first[1]["text"]);
  order["seed"] = 6;
  EXPECT_NE(server().completion(order)["choices"], first);
}

TEST_F(Serve, EventsJoinedAreTheText) {
  Json order = {{"prompt", "the mi"}, {"max_tokens", 12}, {"temperature", 0}};
  std::string expected = server().text(order);
  order["stream"] = true;
  order["stream_options"] = {{"include_usage", true}};
  HttpAnswer answer = server().client().post("/v1/completions", order.dump());
  EXPECT_TRUE(has(answer.head, "text/event-stream")) << answer.head;
  std::vector<std::string> events = events_in(answer.body);
  ASSERT_GT(events.size(), 4U);
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(Json::parse(events[events.size() - 2])["usage"]["completion_tokens"], 12);
  EXPECT_EQ(streamed(answer.body), expected);
}

TEST_F(Serve, AStopEndsATextAndIsNeverTold) {
  Json order = {{"prompt", "the mi"}, {"max_tokens", 12}, {"temperature", 0}};
  std::string whole = server().text(order);
  ASSERT_GT(whole.size(), 8U);
  std::string stop = whole.substr(whole.size() / 2, 3),
              expected = whole.substr(0, whole.find(stop));
  order["stop"] = {"never there", stop};
  Json choice = server().completion(order)["choices"][0];
  EXPECT_EQ(choice["text"], expected);
  EXPECT_EQ(choice["finish_reason"], "stop");
  order["stream"] = true;
  EXPECT_EQ(streamed(server().client().post("/v1/completions", order.dump()).body), expected);
}

// As lm-evaluation-harness asks: the prompt's scores, and one token that is cut off.
TEST_F(Serve, ScoresPrompts) {
  LoadedModel loaded(run().save(), {}, at::kCPU);
  Tokens tokens = loaded.tokenizer().encode("the mi ka of ren");
  TextScores expected = score(loaded.model(), tokens, 1, loaded.tokenizer().vocab_size());
  Json order = {
      {"prompt", {tokens}}, {"max_tokens", 1}, {"temperature", 0}, {"logprobs", 1}, {"echo", true}};
  for (int most : {1, 0, 2}) {
    order["max_tokens"] = most;
    Json scores = server().completion(order)["choices"][0]["logprobs"];
    ASSERT_EQ(scores["token_logprobs"].size(), tokens.size() + most);
    EXPECT_TRUE(scores["token_logprobs"][0].is_null());
    for (size_t i = 1; i < tokens.size(); ++i) {
      EXPECT_EQ(scores["token_logprobs"][i].get<double>(), expected.given[i - 1].log_probability);
      for (const auto& [token, logarithm] : scores["top_logprobs"][i].items())
        EXPECT_EQ(logarithm.get<double>(), expected.given[i - 1].likeliest[0].second);
    }
    if (most == 0) continue;
    EXPECT_NEAR(scores["token_logprobs"][tokens.size()].get<double>(),
                expected.next.log_probability, 1e-4);
  }
}

// The longest text that a model takes has no position behind it for the token that is cut off.
TEST_F(Serve, ScoresTextsOfAllPositions) {
  Json order = {{"prompt", Tokens(48, 7)},
                {"max_tokens", 1},
                {"temperature", 0},
                {"logprobs", 1},
                {"echo", true}};
  EXPECT_EQ(server().completion(order)["choices"][0]["logprobs"]["tokens"].size(), 49U);
  order["prompt"] = Tokens(49, 7);
  HttpAnswer answer = server().client().post("/v1/completions", order.dump());
  EXPECT_EQ(answer.status, 400);
  EXPECT_TRUE(has(answer.body, "has 49 tokens; the model has 48 positions")) << answer.body;
}

TEST_F(Serve, AnswersAsMegatronsServerDoes) {
  std::string prompt = "the mi";
  Json order = {
      {"prompts", {prompt}}, {"tokens_to_generate", 12}, {"top_k", 1}, {"logprobs", true}};
  HttpAnswer answer = server().client().ask("PUT", "/api", order.dump());
  ASSERT_EQ(answer.status, 200) << answer.body;
  Json body = Json::parse(answer.body);
  EXPECT_EQ(body["text"][0], prompt + generated(prompt));
  std::string joined;
  for (const std::string segment : body["segments"][0]) joined += segment;
  EXPECT_EQ(joined, body["text"][0]);
  EXPECT_EQ(body["logprobs"][0].size() + 1, body["segments"][0].size());
  for (double value : body["logprobs"][0]) EXPECT_LT(value, 0);
  order = {{"prompts", {prompt}}, {"tokens_to_generate", 0}, {"logprobs", true}};
  body = Json::parse(server().client().ask("PUT", "/api", order.dump()).body);
  EXPECT_EQ(body["text"][0], prompt);
}

struct Wrong {
  const char *path, *body, *says;
};

TEST_F(Serve, SaysWhatIsWrongWithARequest) {
  for (const auto& [path, body, says] : std::vector<Wrong>{
           {"/v1/completions", "{\"prompt\": ", "not readable JSON"},
           {"/v1/completions", "[1]", "must be a JSON object"},
           {"/v1/completions", "{}", "which prompt?"},
           {"/v1/completions", R"({"prompt": {}})", "prompt must be a text"},
           {"/v1/completions", R"({"prompt": []})", "prompt must be a text"},
           {"/v1/completions", R"({"prompt": [1, 9999]})", "the token 9999; tokens of this model"},
           {"/v1/completions", R"({"prompt": [1, -1]})", "the token -1"},
           {"/v1/completions", R"({"prompt": "a", "temperature": "hot"})",
            "temperature is \\\"hot"},
           {"/v1/completions", R"({"prompt": "a", "temprature": 1})", "did you mean temperature?"},
           {"/v1/completions", R"({"prompt": "a", "top_p": 2})", "from 0 to 1"},
           {"/v1/completions", R"({"prompt": "a", "n": 100000})", "n is 100000"},
           {"/v1/completions", R"({"prompt": "a", "max_tokens": 0})", "max_tokens is 0"},
           {"/v1/completions", R"({"prompt": "a", "max_tokens": 1e99})", "must be an integer"},
           {"/v1/completions", R"({"prompt": "a", "frequency_penalty": 1})", "not supported"},
           {"/v1/completions", R"({"prompt": "a", "stop": [1]})", "stop must be a text"},
           {"/v1/completions", R"({"prompt": "a", "stream": true, "logprobs": 1})",
            "leave one out"},
           {"/v1/chat/completions", R"({"messages": []})", "--chat-template NAME"},
           {"/api", R"({"prompt": "a"})", "prompts argument required"},
           {"/api", R"({"prompts": [""]})", "Empty prompts require add_BOS=true"},
           {"/api", R"({"prompts": ["a"], "top_k": 2, "top_p": 0.5})", "cannot set both"},
           {"/api", R"({"prompts": ["a"], "max_len": 2})", "tokens_to_generate"},
           {"/api", R"({"prompts": ["a"], "beam_width": 2})", "Beam search"}}) {
    HttpAnswer answer = server().client().post(path, body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_TRUE(has(answer.body, says)) << body << " gave " << answer.body;
    Json json = Json::parse(answer.body);
    EXPECT_TRUE(std::string(path) == "/api" ? json.contains("message")
                                            : json["error"].contains("message"));
  }
}

TEST_F(Serve, KnowsItsAddresses) {
  HttpClient client = server().client();
  EXPECT_EQ(client.ask("GET", "/health").status, 200);
  EXPECT_TRUE(has(client.ask("GET", "/").body, "<html"));
  EXPECT_EQ(Json::parse(client.ask("GET", "/v1/models").body)["data"][0]["max_model_len"], 48);
  HttpAnswer nowhere = client.ask("GET", "/v2");
  EXPECT_EQ(nowhere.status, 404);
  EXPECT_TRUE(has(nowhere.body, "/v1/completions"));
  EXPECT_EQ(client.ask("GET", "/v1/completions").status, 405);
}

TEST_F(Serve, RequestsThatAreTooLargeOrBrokenCostNobodyElseAnything) {
  HttpClient client = server().client();
  EXPECT_EQ(client.post("/v1/completions", std::string(17 << 20, 'a')).status, 413);
  EXPECT_EQ(client.ask("GET", "/health", "", "X: " + std::string(20000, 'x') + "\r\n").status, 413);
  ::close(client.send("GARBAGE\r\n\r\n"));
  ::close(client.send("POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\nhalf"));
  EXPECT_EQ(client.ask("GET", "/health").status, 200);
}

// Those who hang up make room: what they asked for would take longer than the test.
TEST_F(Serve, WhoHangsUpMakesRoom) {
  Server small({"--batch-size", "1"});
  Json order = {{"prompt", "the"}, {"max_tokens", 40}, {"n", 1000}, {"temperature", 1}};
  std::string body = order.dump();
  int fd = small.client().send(
      concat("POST /v1/completions HTTP/1.1\r\nContent-Length: ", body.size(), "\r\n\r\n", body));
  ::usleep(200'000);
  ::close(fd);
  order = {{"prompt", "the mi ka"}, {"max_tokens", 12}, {"temperature", 0}};
  EXPECT_EQ(small.text(order), generated("the mi ka"));
  Ended ended = small.stop();
  EXPECT_EQ(ended.code, 0) << ended.err;
  size_t at = ended.err.find("given up by the client: 1000 texts");
  ASSERT_NE(at, std::string::npos) << ended.err;
  std::string rest = ended.err.substr(ended.err.find(" and ", at) + 5);
  std::erase(rest, ',');
  EXPECT_LT(std::stoi(rest), 39'000) << ended.err;  // of 40,000
}

TEST_F(Serve, WhatHasBegunIsFinishedWhenItStops) {
  Server own;
  Json order = {{"prompt", "the mi ka"}, {"max_tokens", 40}, {"temperature", 0}, {"stream", true}};
  auto answer = std::async(std::launch::async,
                           [&] { return own.client().post("/v1/completions", order.dump()); });
  ::usleep(20'000);
  Ended ended = own.stop();
  EXPECT_EQ(ended.code, 0) << ended.err;
  HttpAnswer got = answer.get();  // begun, or refused: never cut off
  EXPECT_TRUE(got.status == 503 || has(got.body, "[DONE]") || got.head.empty()) << got.body;
}

TEST_F(Serve, AKeyKeepsOthersOut) {
  Server own({}, {"NEOX_SERVE_KEY=open sesame"});
  std::string order = R"({"prompt": "the", "max_tokens": 2})";
  HttpClient client = own.client();
  EXPECT_EQ(client.post("/v1/completions", order).status, 401);
  EXPECT_EQ(client.ask("GET", "/v1/models").status, 401);
  EXPECT_EQ(client.ask("GET", "/health").status, 200);
  std::string wrong = "Authorization: Bearer open\r\n",
              right = "Authorization: Bearer open sesame\r\n";
  EXPECT_EQ(client.ask("POST", "/v1/completions", order, wrong).status, 401);
  EXPECT_EQ(client.ask("POST", "/v1/completions", order, right).status, 200);
}

TEST_F(Serve, RepliesToMessages) {
  Server chat({"--chat-template", "plain"});
  Json order = {{"messages", {{{"role", "user"}, {"content", "the mi"}}}},
                {"max_tokens", 12},
                {"temperature", 0}};
  HttpAnswer answer = chat.client().post("/v1/chat/completions", order.dump());
  ASSERT_EQ(answer.status, 200) << answer.body;
  Json body = Json::parse(answer.body);
  std::string expected = Json::parse(text(
      {"--prompt", "the mi", "--temperature", "0", "--json", "--chat-template", "plain"}))["text"];
  EXPECT_EQ(body["choices"][0]["message"]["content"], expected);
  EXPECT_EQ(body["object"], "chat.completion");
  order["stream"] = true;
  EXPECT_EQ(streamed(chat.client().post("/v1/chat/completions", order.dump()).body), expected);
  order["messages"][0]["role"] = "wizard";
  EXPECT_EQ(chat.client().post("/v1/chat/completions", order.dump()).status, 400);
}

TEST_F(Serve, OfAllAddressesItNamesTheNode) {
  Child child({program("neox-serve"), run().save(), "--listen", "0.0.0.0:0"});
  EXPECT_TRUE(child.wait_for("/v1/completions -d"));
  EXPECT_TRUE(has(child.said(), concat("on http://", host_name(), ":"))) << child.said();
}

TEST_F(Serve, SaysWhereItCannotListen) {
  for (const auto& [listen, says] : std::vector<std::pair<std::string, std::string>>{
           {"nowhere", "must be HOST:PORT or PORT"},
           {"127.0.0.1:99999", "must be HOST:PORT or PORT"},
           {"192.0.2.1:5000", "cannot listen there"}}) {
    Ended ended = Child({program("neox-serve"), run().save(), "--listen", listen}).end();
    EXPECT_EQ(ended.code, 64) << listen;
    EXPECT_TRUE(has(ended.err, says)) << ended.err;
  }
}

}  // namespace
}  // namespace neox::testing
