// neox-serve: what requests get is what neox-generate and the model's logits give; the forms of
// OpenAI and Megatron-LM; texts beside each other.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <csignal>

#include "base/memory.h"
#include "base/text.h"
#include "generate/load.h"
#include "generate/score.h"
#include "generate/text_stream.h"
#include "launch/process_info.h"
#include "serve/service.h"
#include "serve_program.h"

namespace neox::testing {
namespace {

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
      double likeliest = -INFINITY;  // beside it stands the given one
      for (const auto& [token, logarithm] : scores["top_logprobs"][i].items())
        likeliest = std::max(likeliest, logarithm.get<double>());
      EXPECT_EQ(likeliest, expected.given[i - 1].likeliest[0].second);
      EXPECT_TRUE(scores["top_logprobs"][i].contains(scores["tokens"][i]));
    }
    if (most == 0) continue;
    EXPECT_NEAR(scores["token_logprobs"][tokens.size()].get<double>(),
                expected.next.log_probability, 1e-4);
  }
}

// The long one waits in front of the short one when the service begins.
TEST_F(Serve, TakesTextsOfRequestsInTurn) {
  LoadedModel loaded(run().save(), {}, at::kCPU);
  ServedModel served{loaded.tokenizer(), loaded.model().config(), "run"};
  Json texts = {{"prompt", "the"}, {"max_tokens", 40}, {"n", 1000}};
  Json scores = {{"prompt", std::vector<Tokens>(1000, Tokens(40, 7))}, {"max_tokens", 0}};
  scores.update({{"echo", true}, {"logprobs", 1}});
  for (const Json& order : {texts, scores}) {
    Service service(loaded.model(), served, {.batch_size = 1});
    HttpClient client = client_of(service.url());
    std::string body = order.dump();
    int fd = client.send(
        concat("POST /v1/completions HTTP/1.1\r\nContent-Length: ", body.size(), "\r\n\r\n", body));
    ::usleep(300'000);
    auto answer = std::async(std::launch::async, [&] {
      return client.post("/v1/completions", R"({"prompt": "the", "max_tokens": 2, "n": 2})");
    });
    ::usleep(300'000);
    auto runs = std::async(std::launch::async, [&] { service.run(); });
    EXPECT_EQ(answer.get().status, 200);
    char first = 0;
    EXPECT_LT(::recv(fd, &first, 1, MSG_DONTWAIT), 0) << "the long one was answered before";
    ::close(fd);
    service.stop();
    runs.get();
  }
}

// Clients ask again at once, so that prompts to be scored wait all the time.
TEST_F(Serve, TextsGrowWhilePromptsAreScored) {
  const int num_clients = 4, most = 60;
  const Json scored = {{"prompt", std::vector<Tokens>(16, Tokens(40, 7))},
                       {"max_tokens", 1},
                       {"temperature", 0},
                       {"logprobs", 1},
                       {"echo", true}};
  const std::string expected = generated("the");
  std::atomic<int> answers = 0;
  std::atomic<bool> grown = false;
  std::vector<std::future<void>> clients;
  for (int i = 0; i < num_clients; ++i)
    clients.push_back(std::async(std::launch::async, [&] {
      for (int n = 0; n < most && !grown; ++n, ++answers) server().completion(scored);
    }));
  auto asks = [&] { return clients[0].wait_for(std::chrono::milliseconds(1)); };
  while (answers == 0 && asks() == std::future_status::timeout) continue;
  Json order = {{"prompt", "the"}, {"max_tokens", 12}, {"temperature", 0}, {"stream", true}};
  HttpAnswer answer = server().client().post("/v1/completions", order.dump());
  grown = true;
  EXPECT_EQ(streamed(answer.body), expected);
  for (auto& client : clients) client.get();
  EXPECT_LT(answers, num_clients * most / 2);
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
  EXPECT_EQ(body["text"][0], joined);
  EXPECT_EQ(body["logprobs"][0].size() + 1, body["segments"][0].size());
  for (double value : body["logprobs"][0]) EXPECT_LT(value, 0);
  order = {{"prompts", {prompt}}, {"tokens_to_generate", 0}, {"logprobs", true}};
  body = Json::parse(server().client().ask("PUT", "/api", order.dump()).body);
  EXPECT_EQ(body["text"][0], prompt);
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

TEST_F(Serve, ASecondSignalOfAnyKindEndsItAtOnce) {
  const Strings longer = {"--set", "seq_length=20000", "--set", "max_position_embeddings=20000"};
  std::vector<Tokens> prompts;
  for (int32_t token = 5; token < 13; ++token) prompts.push_back({token});
  Json order = {{"prompt", prompts}, {"max_tokens", 19000}, {"temperature", 0}};
  std::string body = order.dump();
  for (int second : {SIGINT, SIGUSR1}) {
    Child child(Strings{program("neox-serve"), run().save(), "--listen", "0"} + longer);
    ASSERT_TRUE(child.wait_for("/v1/completions -d"));
    const std::string& said = child.said();
    HttpClient client = client_of(said.substr(0, said.find(',', said.find("127.0.0.1:"))));
    int fd = client.send(
        concat("POST /v1/completions HTTP/1.1\r\nContent-Length: ", body.size(), "\r\n\r\n", body));
    for (int number : {SIGTERM, second}) ::usleep(200'000), child.signal(number);
    Ended ended = child.end();
    EXPECT_EQ(ended.code, -second);  // the texts would take seconds
    EXPECT_TRUE(has(ended.err, "\nneox-serve: ends when the texts that have begun are done"));
    ::close(fd);
  }
}

// As `neox-serve RUN 2>&1 | tee log`, whose tee is gone.
TEST_F(Serve, GoesOnWhereNobodyReadsItsLog) {
  int log[2];
  ASSERT_EQ(::pipe2(log, O_CLOEXEC), 0);
  Child child([&] {
    ::dup2(log[1], STDERR_FILENO);
    ::setenv("OMP_NUM_THREADS", "1", 1);
    return ::execl(program("neox-serve").c_str(), "neox-serve", run().save().c_str(), "--listen",
                   "0", nullptr);
  });
  ::close(log[1]);
  std::string said;
  char part[256];
  for (ssize_t n; !has(said, "/v1/completions -d") && (n = ::read(log[0], part, sizeof part)) > 0;)
    said.append(part, static_cast<size_t>(n));
  ::close(log[0]);
  ASSERT_TRUE(has(said, "http://127.0.0.1:")) << said;
  HttpClient client = client_of(said.substr(0, said.find(',', said.find("127.0.0.1:"))));
  for (int i = 0; i < 3; ++i)  // each is told in the log
    EXPECT_EQ(client.post("/v1/completions", R"({"prompt": "the", "max_tokens": 2})").status, 200);
  child.signal(SIGTERM);
  EXPECT_EQ(child.end().code, 0);
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
  order["max_completion_tokens"] = 12;
  EXPECT_EQ(chat.client().post("/v1/chat/completions", order.dump()).status, 200);
  order["max_completion_tokens"] = 11;
  answer = chat.client().post("/v1/chat/completions", order.dump());
  EXPECT_TRUE(has(answer.body, "max_tokens is 12, and max_completion_tokens")) << answer.body;
  order.erase("max_tokens");
  order["messages"][0]["name"] = "ren";
  EXPECT_EQ(chat.client().post("/v1/chat/completions", order.dump()).status, 200);
  order["messages"][0]["weight"] = 2;
  answer = chat.client().post("/v1/chat/completions", order.dump());
  EXPECT_TRUE(has(answer.body, "there is no field weight")) << answer.body;
  order["messages"][0].erase("weight");
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
           {"192.0.2.1:5000",
            "cannot listen there: Cannot assign requested address; 0.0.0.0 "
            "stands for all addresses that this machine has"}}) {
    Ended ended = Child({program("neox-serve"), run().save(), "--listen", listen}).end();
    EXPECT_EQ(ended.code, 64) << listen;
    EXPECT_TRUE(has(ended.err, says)) << ended.err;
  }
}

TEST_F(Serve, SaysWhatItLacksWhereKeysAndValuesHaveNoRoom) {
  Ended ended = Child({program("neox-serve"), run().save(), "--listen", "0", "--batch-size",
                       "1000000", "--set", "precision=fp32", "--set", "seq_length=100000", "--set",
                       "max_position_embeddings=100000"})
                    .end();
  EXPECT_EQ(ended.code, 64) << ended.err;
  EXPECT_FALSE(has(ended.err, "Serving")) << ended.err;
  for (const char* says : {"1000000 texts at once (--batch-size)", "51.2 MB for 100,000 positions",
                           "--set seq_length=N --set max_position_embeddings=N"})
    EXPECT_TRUE(has(ended.err, says)) << ended.err;
  int64_t texts = available_memory() / 51'200'000 + 10;
  ended = Child({program("neox-serve"), run().save(), "--listen", "0", "--batch-size",
                 concat(texts), "--set", "precision=fp32", "--set", "seq_length=100000", "--set",
                 "max_position_embeddings=100000"})
              .end();
  EXPECT_EQ(ended.code, 64) << ended.err;
  EXPECT_TRUE(has(ended.err, "positions, and ")) << ended.err;
  LoadedModel shorter(run().save(), {"seq_length=20", "max_position_embeddings=20"}, at::kCPU);
  EXPECT_EQ(num_positions(shorter.model().config()), 20);
}

}  // namespace
}  // namespace neox::testing
