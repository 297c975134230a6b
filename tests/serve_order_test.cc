// What requests are read as, and where the tokens of an answer begin in its text.
#include "generate/conversation.h"
#include "serve/order.h"
#include "serve_program.h"

namespace neox::testing {
namespace {

class Orders : public ::testing::Test {
 protected:
  Orders() : tokenizer_(chat_tokenizer(file_)) {
    model_.vocab = tokenizer_.vocab_size();
    model_.positions = model_.seq = 200;
    served_.chat = with_special_tokens(
        read_chat_template("chatml", NEOX_SOURCE_DIR "/configs/chat_templates.yml"),
        {"<|endoftext|>", "<|endoftext|>"});
  }
  ~Orders() override { fs::remove(file_); }

  Order order(ApiForm form, const Json& body) const {
    return read_order(form, body.dump(), served_);
  }
  Order completion(Json body) const {
    if (!body.contains("prompt")) body["prompt"] = "the";
    return order(ApiForm::kCompletions, body);
  }
  Tokens chat(const Json& messages) const {
    return order(ApiForm::kChat, {{"messages", messages}}).prompts[0].tokens;
  }
  void take_jinja(const std::string& source) {
    fs::path file = fs::path(::testing::TempDir()) / "neox_order_template.jinja";
    write_file_atomically(file, source);
    served_.chat = with_special_tokens(read_chat_template(file, ""), {});
    fs::remove(file);
  }
  // The tokenizer, with <|im_start|> in front of each text.
  Tokenizer with_a_begin() const {
    Json root = Json::parse(read_file(file_));
    root["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single",
         {{{"SpecialToken", {{"id", "<|im_start|>"}, {"type_id", 0}}}},
          {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
        {"pair", Json::array()},
        {"special_tokens",
         {{"<|im_start|>",
           {{"id", "<|im_start|>"}, {"ids", {begin_}}, {"tokens", {"<|im_start|>"}}}}}}};
    write_file_atomically(file_, root.dump());
    return Tokenizer::from_json(file_);
  }
  template <class Call>
  static std::string refusal(const Call& call) {
    try {
      call();
    } catch (const Error& e) { return e.what(); }
    return "";
  }

  fs::path file_ = fs::path(::testing::TempDir()) / "neox_order_tokenizer.json";
  Tokenizer tokenizer_;
  int32_t begin_ = tokenizer_.encode("<|im_start|>").at(0);
  ModelConfig model_;
  ServedModel served_{tokenizer_, model_, "m"};
};

TEST_F(Orders, AStopMayBeASpecialToken) {
  int32_t end = tokenizer_.encode("<|im_end|>").at(0);
  Order order = completion({{"stop", {"<|im_end|>", "", "never"}}});
  EXPECT_EQ(order.stop_tokens, Tokens{end});
  EXPECT_EQ(order.stops, std::vector<std::string>{"never"});
  Choice& choice = order.choices[0];
  EXPECT_TRUE(add_token(order, choice, tokenizer_.encode(" the").at(0)));
  EXPECT_FALSE(add_token(order, choice, end));
  EXPECT_EQ(choice.finish, "stop");
  EXPECT_EQ(choice.text.find("im_end"), std::string::npos);
  EXPECT_NE(refusal([&] {
              completion({{"stop", "<|im_end|>\n"}});
            }).find("give it alone"),
            std::string::npos);
}

TEST_F(Orders, MessagesInTheFormsOfOthers) {
  Tokens plain = chat({{{"role", "user"}, {"content", "the\nmi"}}});
  EXPECT_EQ(chat({{{"role", "user"}, {"content", "the\nmi"}, {"type", "text"}}}), plain);
  Json parts = {{{"type", "text"}, {"text", "the"}}, {{"type", "text"}, {"text", "mi"}}};
  EXPECT_EQ(chat({{{"role", "user"}, {"content", parts}}}), plain);
  Json user = {{"role", "user"}, {"content", "a"}}, none = {{"role", "assistant"}};
  Json null = {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", Json::array()}};
  EXPECT_EQ(chat({user, null, user}), chat({user, none, user}));
  parts[1] = {{"type", "image_url"}, {"image_url", "x"}};
  EXPECT_NE(refusal([&] {
              chat({{{"role", "user"}, {"content", parts}}});
            }).find("part 2 of the 'content' of message 1 is of the type \"image_url\""),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              chat({{{"role", "user"}}});
            }).find("needs a content"),
            std::string::npos);
}

TEST_F(Orders, JinjaThatWritesPartsGetsThem) {
  Json part = {{"type", "text"}, {"text", "the"}};
  Json messages = {{{"role", "user"}, {"content", {part, part}}}};
  take_jinja(
      "{% for m in messages %}{% for p in m.content %}{{ p.text }};{% endfor %}{% endfor %}");
  EXPECT_EQ(tokenizer_.decode(chat(messages)), "the;the;");
  take_jinja("{% for m in messages %}{{ m.content + ';' }}{% endfor %}");
  EXPECT_EQ(tokenizer_.decode(chat(messages)), "the\nthe;");
}

TEST_F(Orders, JinjaMayWriteTheNamesOfMessages) {
  Json messages = {{{"role", "user"}, {"content", "the"}}};
  Tokens unnamed = chat(messages);
  messages[0]["name"] = "mi";
  EXPECT_EQ(chat(messages), unnamed);
  take_jinja("{% for m in messages %}{{ m.name }}: {{ m.content }}{% endfor %}");
  EXPECT_EQ(tokenizer_.decode(chat(messages)), "mi: the");
  messages[0].erase("name");
  EXPECT_EQ(tokenizer_.decode(chat(messages)), ": the");
  messages[0]["name"] = 5;
  EXPECT_EQ(refusal([&] { chat(messages); }), "message 1 has the name 5; must be a text");
}

TEST_F(Orders, AnswersOfToolsSayWhichCallTheyAreOf) {
  Json messages = {{{"role", "user"}, {"content", "the"}}, {{"role", "tool"}, {"content", "mi"}}};
  Tokens without = chat(messages);
  messages[1]["tool_call_id"] = "ka";
  EXPECT_EQ(chat(messages), without);
  take_jinja("{% for m in messages %}{{ m.tool_call_id }}: {{ m.content }};{% endfor %}");
  EXPECT_EQ(tokenizer_.decode(chat(messages)), ": the;ka: mi;");
}

TEST_F(Orders, SayWhatIsNoObject) {
  auto content = [](const Json& part) {
    return Json::array({{{"role", "user"}, {"content", Json::array({part})}}});
  };
  auto refused = [&](const Json& messages) { return refusal([&] { chat(messages); }); };
  EXPECT_EQ(refused(Json::array({"hi"})), "message 1 must be a JSON object");
  EXPECT_EQ(refused(content("a")),
            "part 1 of the 'content' of message 1 is no object with a 'type', such as {\"type\": "
            "\"text\", \"text\": \"...\"}");
  EXPECT_EQ(
      refused(content({{"type", "text"}})),
      "part 1 of the 'content' of message 1 is of the type \"text\" and has no 'text' that is "
      "a string");
  EXPECT_EQ(refused({{{"content", "a"}}}), "message 1 has no 'role'; it has 'content'");
  EXPECT_EQ(refusal([&] {
              completion({{"stream_options", true}});
            }),
            "stream_options must be a JSON object");
}

TEST_F(Orders, FieldsThatChangeNothingHere) {
  EXPECT_EQ(completion({{"max_tokens", 9}, {"max_new_tokens", 5}}).sampling.max_tokens, 5);
  EXPECT_EQ(completion({{"max_tokens", 9}, {"max_new_tokens", 12}}).sampling.max_tokens, 9);
  Json same = {{"num_beams", 1}, {"prediction", nullptr}, {"stream", true}};
  same["stream_options"] = {{"include_obfuscation", false}};
  EXPECT_EQ(refusal([&] { completion(same); }), "");
  EXPECT_NE(refusal([&] {
              completion({{"num_beams", 2}});
            }).find("num_beams is 2"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              completion({{"preference", 1}});
            }).find("no field preference"),
            std::string::npos);
}

// The one thread that reads requests says so.
TEST_F(Orders, MistakesOfManyBytesAreShownByTheirBeginning) {
  std::string large(1 << 20, 'x');
  Json parts = Json::array({{{"type", large}, {"text", "a"}}});
  Json messages = Json::array({{{"role", "user"}, {"content", parts}}});
  auto refused = [&](const Json& body) { return refusal([&] { completion(body); }); };
  for (const std::string& said : {refused({{large, 1}}), refused({{"prompt", {1, large}}}),
                                  refusal([&] { chat(messages); }), refusal([&] {
                                    chat({{{"role", large}, {"content", "a"}}});
                                  })}) {
    EXPECT_NE(said.find("xxx ..."), std::string::npos) << said.substr(0, 300);
    EXPECT_LT(said.size(), 300U);
  }
}

TEST_F(Orders, TheBestAreOfTextsWithinBounds) {
  auto refused = [&](const Json& body) { return refusal([&] { completion(body); }); };
  Order order = completion({{"n", 3}, {"best_of", 1}});
  EXPECT_EQ(order.choices.size(), 3U);
  EXPECT_FALSE(order.scored());
  EXPECT_EQ(refused({{"n", 3}, {"best_of", 2}}),
            "best_of is 2, and n, how many of them are returned, 3: it must be as large as n or "
            "larger");
  EXPECT_EQ(refused({{"best_of", 2}, {"stream", true}}),
            "best_of is 2, and n 1: which texts are the best shows when all are done; leave stream "
            "out");
  EXPECT_EQ(refused({{"prompt", {"a", "b"}}, {"best_of", 600}}),
            "a request for 1200 texts; at most 1024");
  model_.positions = model_.seq = 10'000;
  EXPECT_NE(refused({{"best_of", 1000}, {"max_tokens", 9000}}).find("a smaller best_of"),
            std::string::npos);
  EXPECT_EQ(refused({{"n", 1000}, {"max_tokens", 9000}}), "");
}

TEST_F(Orders, RefusesManyMessages) {
  Json one = {{"role", "user"}, {"content", "a"}};
  EXPECT_NE(refusal([&] { chat(std::vector<Json>(25'001, one)); }).find("has more than 50000 keys"),
            std::string::npos);
}

TEST_F(Orders, AnAnswerHasRoomForTheScoresOfItsPrompts) {
  Json body = {{"prompt", Tokens(150, 7)}, {"echo", true}, {"logprobs", 100}, {"n", 1024}};
  EXPECT_NE(refusal([&] {
              completion(body);
            }).find("17168384 scores of tokens (logprobs); at most 4194304: take a smaller n"),
            std::string::npos);
  for (const char* smaller : {"n", "logprobs"}) {
    Json fits = body;
    fits[smaller] = 1;
    EXPECT_EQ(refusal([&] { completion(fits); }), "") << smaller;
  }
  body["echo"] = false;
  EXPECT_EQ(refusal([&] { completion(body); }), "");
}

TEST_F(Orders, AnAnswerHasRoomForTheScoresOfItsTokens) {
  Json most = {{"prompt", Tokens(150, 7)}, {"logprobs", 100}, {"n", 1024}, {"max_tokens", 40}};
  EXPECT_EQ(refusal([&] { completion(most); }), "");
  most["max_tokens"] = 1'000'000'000;  // of which there is room for 50
  EXPECT_EQ(refusal([&] { completion(most); }),
            "the answer would take 5171200 scores of tokens (logprobs); at most 4194304: take a "
            "smaller n, max_tokens or logprobs, or fewer prompts");
  Json chat = {{"messages", {{{"role", "user"}, {"content", "the"}}}}, {"n", 1024}};
  chat.update({{"logprobs", true}, {"top_logprobs", 100}});
  EXPECT_NE(refusal([&] {
              order(ApiForm::kChat, chat);
            }).find("take a smaller n, max_tokens or top_logprobs"),
            std::string::npos);
  chat.erase("logprobs"), chat.erase("top_logprobs");
  EXPECT_EQ(refusal([&] { order(ApiForm::kChat, chat); }), "");
}

// As <s> of LLaMA: it is no text, of a stop neither.
TEST_F(Orders, ATokenThatStandsInFrontOfEachText) {
  Tokenizer tokenizer = with_a_begin();
  ASSERT_EQ(tokenizer.encode("the").at(0), begin_);
  ServedModel served{tokenizer, model_, "m"};
  Json body = {{"prompt", "the mi"}, {"stop", "ka"}, {"logprobs", 1}, {"echo", true}};
  Order order = read_order(ApiForm::kCompletions, body.dump(), served);
  EXPECT_EQ(order.stops, std::vector<std::string>{"ka"});
  EXPECT_EQ(order.stop_tokens, Tokens{});
  order.prompts[0].scores.emplace().given.resize(order.prompts[0].tokens.size() - 1);
  Json scores = Json::parse(answer_of(order, served))["choices"][0]["logprobs"];
  EXPECT_EQ(scores["tokens"][0], "<|im_start|>");
  EXPECT_EQ(scores["text_offset"][0], 0);
  EXPECT_EQ(scores["text_offset"][1], 0);
  EXPECT_LT(scores["text_offset"].back(), 6);
}

TEST_F(Orders, ATokenInFrontOfEachTextStandsThereOnce) {
  Tokenizer tokenizer = with_a_begin();
  ServedModel served{tokenizer, model_, "m"};
  for (bool asked : {true, false}) {
    Json body = {{"prompts", {"the mi"}}, {"add_BOS", asked}};
    Order order = read_order(ApiForm::kMegatron, body.dump(), served);
    EXPECT_EQ(order.prompts[0].tokens, tokenizer.encode("the mi")) << asked;
  }
  Json body = {{"prompts", {"the mi"}}, {"add_BOS", true}};
  Tokens behind_end = tokenizer_.encode("the mi");  // whose tokenizer puts nothing there
  behind_end.insert(behind_end.begin(), tokenizer_.end_of_document());
  EXPECT_EQ(order(ApiForm::kMegatron, body).prompts[0].tokens, behind_end);
  body["prompts"] = {""};
  Order empty = read_order(ApiForm::kMegatron, body.dump(), served);
  EXPECT_EQ(empty.prompts[0].tokens, Tokens{begin_});
}

// Tokens of a byte that begins a letter, and of two within it.
TEST_F(Orders, TokensBeginWhereTheirTextDoesBehindWhatIsNoUtf8) {
  Tokens of;
  for (const char* bytes : {"a", "\xe6", "\x97", "\xa5"})
    for (int32_t id = 0; id < tokenizer_.vocab_size(); ++id)
      if (tokenizer_.token_bytes(id) == bytes) of.push_back(id);
  ASSERT_EQ(of.size(), 4U);
  const int32_t a = of[0], first = of[1], second = of[2], third = of[3];
  for (bool echo : {true, false}) {
    Json body = {{"prompt", {a, second, second, a, first}}, {"logprobs", 1}, {"echo", echo}};
    Order order = completion(body);
    ASSERT_EQ(order.prompts[0].text, "a\ufffd\ufffda\ufffd");
    order.prompts[0].scores.emplace().given.resize(4);
    Choice& choice = order.choices[0];
    for (int32_t token : {second, first, a, first, second, third, a}) {
      choice.scores.push_back({.token = token});
      add_token(order, choice, token);
    }
    ASSERT_EQ(choice.text,
              "\ufffd\ufffda\xe6\x97\xa5"
              "a");
    Json offsets = Json::parse(answer_of(order, served_))["choices"][0]["logprobs"]["text_offset"];
    Tokens expected = {5, 6, 7, 8, 9, 9, 9};
    if (echo) expected.insert(expected.begin(), {0, 1, 2, 3, 4});
    EXPECT_EQ(offsets, Json(expected)) << echo;
  }
}

// Letters of several tokens, and special tokens, which are text in a prompt alone.
TEST_F(Orders, TokensBeginWhereTheirTextDoes) {
  std::string prompt = "the na\xc3\xafve \xe6\x97\xa5<|im_start|> mi the";
  for (bool echo : {true, false}) {
    Order order = completion({{"prompt", prompt}, {"logprobs", 1}, {"echo", echo}});
    size_t in_front = order.prompts[0].tokens.size();
    order.prompts[0].scores.emplace().given.resize(in_front - 1);
    Choice& choice = order.choices[0];
    for (const char* text : {" the", "<|im_start|>", " mi", "the"})
      for (int32_t token : tokenizer_.encode(text)) {
        choice.scores.push_back({.token = token});
        add_token(order, choice, token);
      }
    Json answer = Json::parse(answer_of(order, served_))["choices"][0];
    std::u32string all;  // a letter each
    for (char c : prompt + choice.text)
      if ((c & 0xC0) != 0x80) all += static_cast<unsigned char>(c);
    int compared = 0;
    Json tokens = answer["logprobs"]["tokens"], offsets = answer["logprobs"]["text_offset"];
    for (size_t i = 0; i < tokens.size(); ++i) {
      auto text = tokens[i].get<std::string>();
      bool ascii = std::ranges::all_of(text, [](char c) { return c > 0; });
      bool left_out = text.starts_with("<|") && (!echo || i >= in_front);
      if (!ascii || left_out) continue;
      EXPECT_EQ(all.substr(offsets[i].get<size_t>(), text.size()),
                std::u32string(text.begin(), text.end()))
          << i << " echo: " << echo;
      ++compared;
    }
    EXPECT_GT(compared, 3);
  }
}

// Events tell of each token once, and what the whole answer would tell.
TEST_F(Orders, EventsTellTheScoresOfTheWholeAnswer) {
  Order order = completion({{"prompt", "the"}, {"logprobs", 1}, {"stream", true}});
  Choice& choice = order.choices[0];
  Json told = Json::object();
  for (const char* text : {" the", "<|im_start|>", " \xe6\x97\xa5", " mi"}) {
    for (int32_t token : tokenizer_.encode(text)) {
      choice.scores.push_back({.token = token});
      add_token(order, choice, token);
    }
    Json event = Json::parse(event_of(order, served_, choice, untold(order, choice)));
    for (const char* key : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
      for (const Json& one : event["choices"][0]["logprobs"][key]) told[key].push_back(one);
  }
  EXPECT_EQ(told, Json::parse(answer_of(order, served_))["choices"][0]["logprobs"]);
}

}  // namespace
}  // namespace neox::testing
