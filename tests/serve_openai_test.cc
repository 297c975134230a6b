// neox-serve as clients of OpenAI's API see it: fields, codes of errors, events; methods of HTTP.
#include <algorithm>
#include <cmath>
#include <set>

#include "serve_program.h"

namespace neox::testing {
namespace {

class OpenAi : public Serve {
 protected:
  static HttpAnswer ask(Json order) {
    if (!order.contains("prompt")) order["prompt"] = "the mi";
    order.update({{"max_tokens", 12}, {"temperature", 0}});
    return server().client().post("/v1/completions", order.dump());
  }
  static Json choice(const Json& order) {
    HttpAnswer answer = ask(order);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return Json::parse(answer.body)["choices"][0];
  }
  static Json error(const HttpAnswer& answer) { return Json::parse(answer.body)["error"]; }
};

TEST_F(OpenAi, ABiasChangesWhatIsChosenAndNotItsScore) {
  Tokens tokens = Tokenizer::from_json(Material::get() / "tokenizer.json").encode("ka ka");
  std::string token = std::to_string(tokens.at(0)),
              word = Tokenizer::from_json(Material::get() / "tokenizer.json")
                         .token_bytes(tokens.at(0));
  Json biased = choice({{"logit_bias", {{token, 100}}}, {"logprobs", 1}});
  Json plain = choice({{"logit_bias", Json::object()}, {"logprobs", 1}});
  for (const std::string taken : biased["logprobs"]["tokens"]) EXPECT_EQ(taken, word);
  double likeliest = -INFINITY;
  for (const auto& [text, logarithm] : biased["logprobs"]["top_logprobs"][0].items())
    likeliest = std::max(likeliest, logarithm.get<double>());
  EXPECT_NEAR(likeliest, plain["logprobs"]["token_logprobs"][0].get<double>(), 1e-5);
  EXPECT_LT(biased["logprobs"]["token_logprobs"][0].get<double>(), likeliest);
  // Also of the one token that could come with the scores of its prompt.
  Json one = {{"prompt", "the mi"}, {"max_tokens", 1}, {"temperature", 0}, {"echo", true}};
  one.update({{"logprobs", 1}, {"logit_bias", {{token, 100}}}});
  EXPECT_EQ(server().text(one), "the mi" + word);
}

TEST_F(OpenAi, SaysWhatIsWrongWithABias) {
  for (const char* bias : {R"([1])", R"({"the": 1})", R"({"-1": 1})", R"({"99999999": 1})",
                           R"({"5": "x"})", R"({"5": 101})"}) {
    HttpAnswer answer = ask({{"logit_bias", Json::parse(bias)}});
    EXPECT_EQ(answer.status, 400) << bias;
    EXPECT_TRUE(has(answer.body, "logit_bias")) << answer.body;
  }
}

TEST_F(OpenAi, PenaltiesKeepATextFromRepeatingItself) {
  auto different = [](const Json& order) {
    Json tokens = choice(order)["logprobs"]["tokens"];
    return std::set(tokens.begin(), tokens.end()).size();
  };
  EXPECT_LT(different({{"logprobs", 0}}), 8U);
  EXPECT_GT(different({{"logprobs", 0}, {"frequency_penalty", 2}, {"presence_penalty", 2}}),
            different({{"logprobs", 0}}));
  EXPECT_GT(different({{"logprobs", 0}, {"repetition_penalty", 10}}), different({{"logprobs", 0}}));
  EXPECT_EQ(ask({{"frequency_penalty", 2.5}}).status, 400);
  EXPECT_EQ(ask({{"repetition_penalty", 0}}).status, 400);
  EXPECT_EQ(ask({{"min_p", 1.5}}).status, 400);
}

// Those of tokens whose text waits come with it.
TEST_F(OpenAi, ScoresOfEventsJoinedAreThoseOfTheText) {
  for (const Json& stop : {Json(), Json("ka"), Json("e")}) {
    Json order = {{"logprobs", 3}, {"stop", stop}};
    Json whole = choice(order)["logprobs"], joined;
    order["stream"] = true;
    for (const std::string& event : events_in(ask(order).body)) {
      if (event == "[DONE]") continue;
      const Json scores = Json::parse(event)["choices"][0]["logprobs"];
      for (const auto& [name, list] : scores.items())
        for (const Json& item : list) joined[name].push_back(item);
    }
    EXPECT_EQ(joined, whole) << stop;
  }
}

TEST_F(OpenAi, EventsSayThatTheNumbersOfTokensComeLast) {
  Json order = {{"stream", true}, {"stream_options", {{"include_usage", true}}}};
  std::vector<std::string> events = events_in(ask(order).body);
  ASSERT_GT(events.size(), 3U);
  for (size_t i = 0; i + 2 < events.size(); ++i) {
    EXPECT_TRUE(Json::parse(events[i]).contains("usage"));
    EXPECT_TRUE(Json::parse(events[i])["usage"].is_null());
  }
  order["stream_options"]["include_usage"] = false;
  EXPECT_FALSE(Json::parse(events_in(ask(order).body)[0]).contains("usage"));
}

TEST_F(OpenAi, ErrorsHaveTheCodesThatClientsLookAt) {
  HttpAnswer longer = ask({{"prompt", Tokens(48, 7)}});
  EXPECT_EQ(longer.status, 400);
  EXPECT_EQ(error(longer)["code"], "context_length_exceeded");
  EXPECT_EQ(error(longer)["type"], "invalid_request_error");
  EXPECT_EQ(error(server().client().ask("GET", "/v1/models/other"))["code"], "model_not_found");
  EXPECT_TRUE(error(ask({{"stop", 1}}))["code"].is_null());
  Server own({}, {"NEOX_SERVE_KEY=open sesame"});
  HttpAnswer locked = own.client().ask("GET", "/v1/models");
  EXPECT_EQ(error(locked)["code"], "invalid_api_key");
  EXPECT_TRUE(has(locked.head, "WWW-Authenticate: Bearer")) << locked.head;
  EXPECT_EQ(own.client().ask("OPTIONS", "/v1/models").status, 200);
}

TEST_F(OpenAi, WhatItLacksIsRefusedByNameAndWhatChangesNothingIsNot) {
  for (const char* field :
       {R"("response_format": {"type": "json_object"})", R"("reasoning_effort": "low")",
        R"("functions": [{}])", R"("modalities": ["audio"])", R"("ignore_eos": true)",
        R"("length_penalty": 1.2)", R"("best_of": 5, "stream": true)"}) {
    HttpAnswer answer = ask(Json::parse(concat("{", field, "}")));
    std::string name = std::string(field).substr(1, std::string(field).find('"', 1) - 1);
    EXPECT_EQ(answer.status, 400) << field;
    EXPECT_TRUE(has(answer.body, name)) << answer.body;
  }
  for (const char* field :
       {R"("response_format": {"type": "text"})", R"("tool_choice": "auto")", R"("tools": [])",
        R"("modalities": ["text"])", R"("prompt_cache_key": "a")", R"("ignore_eos": false)",
        R"("reasoning_effort": null)", R"("best_of": 1)", R"("logit_bias": {})"})
    EXPECT_EQ(ask(Json::parse(concat("{", field, "}"))).status, 200) << field;
}

// Of as many texts as n would return by the same seed, the likeliest first.
TEST_F(OpenAi, ReturnsTheBestOfManyTexts) {
  Json order = {{"prompt", {"the mi", "of"}}, {"max_tokens", 7}, {"seed", 3}, {"n", 5}};
  order["logprobs"] = 0;
  Json all = server().completion(order)["choices"];
  std::vector<std::pair<double, std::string>> expected;
  for (size_t i = 0; i < all.size(); ++i) {
    double sum = 0;
    const Json& scores = all[i]["logprobs"]["token_logprobs"];
    for (const Json& score : scores) sum += score.get<double>();
    expected.emplace_back(-sum / static_cast<double>(scores.size()), all[i]["text"]);
  }
  std::sort(expected.begin(), expected.begin() + 5);
  std::sort(expected.begin() + 5, expected.end());
  order.erase("logprobs");
  order.update({{"n", 2}, {"best_of", 5}});
  Json answer = server().completion(order), best = answer["choices"];
  ASSERT_EQ(best.size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(best[i]["text"], expected[i % 2 + (i < 2 ? 0 : 5)].second) << i;
    EXPECT_EQ(best[i]["index"], i);
    EXPECT_TRUE(best[i]["logprobs"].is_null());
  }
  EXPECT_EQ(answer["usage"]["completion_tokens"], 70);  // of all
}

// The two requests of its local-completions, with all their fields.
TEST_F(OpenAi, TakesTheRequestsOfTheEvaluationHarness) {
  Tokens tokens = Tokenizer::from_json(Material::get() / "tokenizer.json").encode("the mi ka");
  Json texts = {{"prompt", {tokens, tokens}}, {"model", "run"}, {"max_tokens", 12}};
  texts.update({{"temperature", 0}, {"stop", {"\n\n", "<|endoftext|>"}}, {"seed", 1234}});
  Json choices = server().completion(texts)["choices"];
  ASSERT_EQ(choices.size(), 2U);
  EXPECT_EQ(choices[1]["index"], 1);
  EXPECT_EQ(choices[1]["text"], generated("the mi ka"));
  Json scores = {{"model", "run"}, {"prompt", {tokens}}, {"temperature", 0}, {"max_tokens", 1}};
  scores.update({{"logprobs", 1}, {"seed", 1234}, {"echo", true}});
  Json found = server().completion(scores)["choices"][0]["logprobs"];
  EXPECT_EQ(found["token_logprobs"].size(), tokens.size() + 1);
  EXPECT_EQ(found["top_logprobs"].size(), tokens.size() + 1);
}

TEST_F(OpenAi, SaysWhichMethodsAnAddressTakes) {
  HttpClient client = server().client();
  for (const auto& [path, allows] :
       std::vector<std::pair<const char*, const char*>>{{"/v1/completions", "POST, OPTIONS"},
                                                        {"/api", "PUT, POST, OPTIONS"},
                                                        {"/v1/models/x", "GET, HEAD, OPTIONS"},
                                                        {"/", "GET, HEAD, OPTIONS"}}) {
    HttpAnswer wrong = client.ask("DELETE", path), asked = client.ask("OPTIONS", path);
    EXPECT_EQ(wrong.status, 405) << path;
    EXPECT_TRUE(has(wrong.body, concat(path, " takes ", allows, ", not DELETE"))) << wrong.body;
    EXPECT_EQ(asked.status, 200) << path;
    for (const HttpAnswer& answer : {wrong, asked})
      EXPECT_TRUE(has(answer.head, concat("Allow: ", allows))) << answer.head;
  }
  EXPECT_EQ(client.ask("OPTIONS", "/v2").status, 404);
}

}  // namespace
}  // namespace neox::testing
