// Labels for fine-tuning: masks before a token, conversations by chat templates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "labels_fixture.h"

namespace neox {
namespace {

using testing::Arguments;
using testing::Directory;
using testing::Encoded;
using testing::error_of;
using ::testing::HasSubstr;
using testing::Ids;
using testing::kMasked;
using testing::Labels;
using ::testing::StartsWith;

TEST_F(Labels, BeginBehindTheFirstPlaceOfTheTokens) {
  std::string pattern = id("!") + "," + id("!") + ", " + id("?");
  Arguments mask = {"--mask-before-token", pattern, "--append-eod"};
  Encoded e = encode("Q!!!?A!!?", mask);
  EXPECT_EQ(text(e.tokens), "Q!!!?A!!?<|endoftext|>");
  EXPECT_EQ(text(e.labels), "A!!?<|endoftext|>");
  EXPECT_EQ(e.labels[4], kMasked);
  e = encode("no such tokens", mask);
  EXPECT_EQ(e.labels, e.tokens);
}

const std::string kChat =
    R"([{"role": "system", "content": "cat"}, {"role": "user", "content": " Q "},
        {"role": "assistant", "content": "A\n"}, {"content": "R", "role": "user", "x": 1},
        {"role": "assistant", "content": "B"}])";

TEST_F(Labels, OfConversationsAreTheReplies) {
  Encoded e = encode(kChat, {"--chat-template", "chatml"});
  EXPECT_EQ(text(e.tokens),
            "<|im_start|>system\ncat<|im_end|>\n<|im_start|>user\n Q <|im_end|>\n"
            "<|im_start|>assistant\nA\n<|im_end|>\n<|im_start|>user\nR<|im_end|>\n"
            "<|im_start|>assistant\nB<|im_end|>\n<|endoftext|>");
  EXPECT_EQ(text(e.labels), "A\n<|im_end|>\nB<|im_end|>\n<|endoftext|>");
  EXPECT_EQ(text({e.tokens[0]}), "<|im_start|>");
}

TEST_F(Labels, OfConversationsMayBeTheLastTurnTheVerdictOrNone) {
  EXPECT_EQ(text(encode(kChat, {"--chat-template", "chatml", "--only-last"}).labels),
            "B<|im_end|>\n<|endoftext|>");
  Encoded verdict = encode(kChat, {"--chat-template", "chatml", "--for_rm"});
  EXPECT_EQ(text(verdict.labels), "<|endoftext|>");
  EXPECT_THAT(text(verdict.tokens), ::testing::EndsWith("\n<|endoftext|><|endoftext|>"));
  Encoded all = encode(kChat, {"--chat-template", "chatml", "--no-mask"});
  EXPECT_THAT(text(all.tokens), ::testing::EndsWith("B<|im_end|>\n"));
}

TEST_F(Labels, OfAnUnansweredQuestionAreNone) {
  Arguments chat = {"--chat-template", "chatml", "--append-eod"};
  Encoded e = encode(R"([{"role": "user", "content": "Q"}])", chat);
  EXPECT_EQ(text(e.tokens), "<|im_start|>user\nQ<|im_end|>\n<|endoftext|><|endoftext|>");
  EXPECT_EQ(text(e.labels), "");
}

TEST_F(Labels, OfADocumentWithoutTextAreNoneWhateverStandsAroundTexts) {
  auto json = nlohmann::json::parse(read_file(dir_ / "tokenizer.json"));
  json["post_processor"] = nlohmann::json::parse(
      R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "B", "type_id": 0}},
          {"Sequence": {"id": "A", "type_id": 0}}],
          "special_tokens": {"B": {"id": "B", "ids": [0], "tokens": ["B"]}}})");
  dir_.put("tokenizer.json", json.dump());
  tokenizer_ = std::make_unique<Tokenizer>(Tokenizer::from_json(dir_ / "tokenizer.json"));
  EXPECT_EQ(encode("", {"--append-eod"}).tokens, Ids());
  EXPECT_EQ(encode("c", {"--append-eod"}).tokens.size(), 3u);
}

TEST_F(Labels, NeedATokenizerThatFindsTheEndOfAConversation) {
  EXPECT_THAT(refusal({"--chat-template", "chatml", "--tokenizer-type", "CharLevelTokenizer"}),
              ::testing::HasSubstr("give the tokenizer.json of the model"));
}

TEST_F(Labels, FollowTheGenerationRole) {
  Arguments chat = {"--chat-template", "llama2", "--generation-role", "user"};
  Encoded e =
      encode(R"([{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}])", chat);
  EXPECT_EQ(text(e.labels), "<|endoftext|>[INST] Q [/INST]");
  EXPECT_THAT(refusal({"--chat-template", "chatml", "--generation-role", "user"}),
              HasSubstr("do not begin"));
}

TEST_F(Labels, EndWithTheTokenOfTheTokenizersConfig) {
  dir_.put("tokenizer_config.json", R"({"eos_token": {"content": "<|im_end|>"}, "bos_token": null,
                                        "chat_template": "{{ x }}"})");
  Encoded e = encode(kChat, {"--chat-template", "plain"});
  EXPECT_EQ(text(e.labels), " A<|im_end|> B<|im_end|><|im_end|>");
  dir_.put("tokenizer_config.json", R"({"eos_token": "the end"})");
  EXPECT_THAT(refusal({"--chat-template", "plain"}), HasSubstr("that ends conversations is"));
}

TEST_F(Labels, ATemplateWithTheEndOfDocumentsInsideIsWarnedOf) {
  auto said = [&](const std::string& json, const char* name) {
    ::testing::internal::CaptureStderr();
    encode(json, {"--chat-template", name, "--append-eod"});
    return ::testing::internal::GetCapturedStderr();
  };
  const char* one = R"([{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}])";
  EXPECT_THAT(said(one, "zephyr"), HasSubstr("without reset_attention_mask"));
  EXPECT_THAT(said(kChat, "plain"), HasSubstr("without reset_attention_mask"));
  for (const char* fine : {"plain", "chatml", "llama3"}) EXPECT_EQ(said(one, fine), "") << fine;
}

std::string rendered(const std::string& name, const std::string& json) {
  ChatTemplate style =
      with_special_tokens(read_chat_template(name, chat_template_table()), {"<s>", "</s>"});
  std::string text;
  for (const ChatTurn& turn : render_chat(parse_conversation(json, style), style, "assistant"))
    text += turn.text;
  return text;
}

TEST(ChatTemplates, AreThoseOfTheModels) {
  EXPECT_EQ(rendered("llama2", kChat),
            "<s>[INST] <<SYS>>\ncat\n<</SYS>>\n\n Q [/INST] A </s><s>[INST] R [/INST] B </s>");
  EXPECT_EQ(rendered("llama3", R"([{"role": "user", "content": "\u00a0Q "}])"),
            "<s><|start_header_id|>user<|end_header_id|>\n\nQ<|eot_id|>");
  EXPECT_EQ(rendered("mistral", R"([{"role": "user", "content": "Q"},
                                    {"role": "assistant", "content": "A"}])"),
            "<s>[INST] Q [/INST]A</s>");
  EXPECT_EQ(rendered("zephyr", R"([{"role": "user", "content": "Q"},
                                   {"role": "assistant", "content": "A"}])"),
            "<|user|>\nQ</s>\n<|assistant|>\nA</s>\n");
}

TEST(ChatTemplates, PutTheGenerationPromptIntoTheTurnBefore) {
  ChatTemplate style = read_chat_template("chatml", chat_template_table());
  auto turns =
      render_chat({{{"user", "Q"}, {"assistant", "A"}, {"user", "R"}}}, style, "assistant");
  EXPECT_EQ(turns[0].text, "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(turns[1].text, "A<|im_end|>\n");
  EXPECT_EQ(turns[2].text, "<|im_start|>user\nR<|im_end|>\n");
}

TEST(ChatTemplates, OfAUserNeedNoCompiling) {
  Directory dir;
  std::string file =
      dir.put("mine.yml",
              "chat_templates:\n  - name: mine\n    default_system: Be kind\n"
              "    begin: \"{bos}\"\n    roles:\n      - {role: system, after: \"|\"}\n"
              "      - {role: user, before: \"Q \", after: \"|\"}\n");
  EXPECT_EQ(rendered(file, R"([{"role": "user", "content": "a"}])"), "<s>Be kind|Q a|");
  EXPECT_EQ(rendered(file, R"([{"role": "system", "content": "b"}])"), "<s>b|");
}

TEST(ChatTemplates, ThatAreWrongNameTheirLine) {
  Directory dir;
  auto wrong = [&](const std::string& text) {
    return error_of([&] { read_chat_template(dir.put("t.yml", text), ""); });
  };
  EXPECT_THAT(wrong("{{ messages }}"), StartsWith("64: "));
  EXPECT_THAT(wrong("chat_templates:\n  - name: a\n    rols: []\n"),
              AllOf(HasSubstr("t.yml:3: unknown key rols; did you mean roles?")));
  EXPECT_THAT(wrong("chat_templates:\n  - name: a\n"), HasSubstr("t.yml:2: a needs roles"));
  EXPECT_THAT(wrong("chat_templates:\n  - name: a\n    roles:\n      - {role: b, within: c}\n"),
              HasSubstr("within names c"));
  EXPECT_THAT(error_of([] { read_chat_template("chatm", chat_template_table()); }),
              AllOf(HasSubstr("did you mean chatml?"), HasSubstr("Jinja"), HasSubstr("zephyr")));
}

TEST(Conversations, ThatAreWrongNameTheMessage) {
  auto wrong = [](const std::string& json, const char* style = "chatml") {
    return error_of([&] { rendered(style, json); });
  };
  EXPECT_EQ(wrong("[]"), "74: a conversation without messages");
  EXPECT_THAT(wrong("\"text\""), HasSubstr("not a list of messages"));
  EXPECT_THAT(wrong("[3]"), HasSubstr("message 1 is of type number, not an object"));
  EXPECT_EQ(wrong(R"([{"role": "user", "text": ""}])"),
            "74: message 1 has no 'content'; it has 'role', 'text'");
  EXPECT_EQ(wrong(R"([{"role": "user", "content": null}])"),
            "74: the 'content' of message 1 is of type null, not a string");
  EXPECT_EQ(wrong(R"([{"role": "human", "content": ""}])"),
            "74: message 1 is of the role 'human'; the template chatml has 'system', 'user', "
            "'assistant', 'tool'");
  EXPECT_THAT(
      wrong(R"([{"role": "user", "content": ""}, {"role": "user", "content": ""}])", "mistral"),
      HasSubstr("message 2 is of the role 'user' where the template mistral wants "
                "'assistant'"));
  EXPECT_THAT(wrong(R"([{"role": "system", "content": ""}])", "llama2"),
              HasSubstr("no message follows"));
}

TEST_F(Labels, OfBadConversationsAreErrorsWithTheirLineOrSkipped) {
  dir_.put("in.jsonl", "{\"conversation\": " + nlohmann::json::parse(kChat).dump() +
                           "}\n\n{\"conversation\": []}\n{\"conversation\": \"\"}\n");
  AloneControl alone;
  Arguments chat = {"--chat-template", "chatml", "--no-mask"};
  EXPECT_THAT(error_of([&] { prepare_data(options(chat), alone); }),
              AllOf(StartsWith("74: "), HasSubstr("in.jsonl:3: a conversation without messages")));
  chat.push_back("--skip-bad-lines");
  PrepareResult result = prepare_data(options(chat), alone);
  EXPECT_EQ(result.documents, 1);
  EXPECT_EQ(result.skipped, 2);
  EXPECT_EQ(result.datasets.at(0).prefix, dir_ / "out_conversation_document");
  PrepareOptions texts = options(chat);
  texts.inputs = {dir_.put("in.txt", "text")};
  EXPECT_THAT(error_of([&] { prepare_data(texts, alone); }), HasSubstr("in.txt is text"));
}

TEST_F(Labels, OfPairsAreForPreferencesOrForARewardModel) {
  const std::string chat = R"([{"role": "user", "content": "Q"}])";
  dir_.put("in.jsonl", R"({"chosen": )" + chat + R"(, "rejected": )" + chat + "}");
  for (auto [labels, impl] : {std::pair{"--only-last", "dpo"}, {"--for-rm", "rm"}}) {
    PrepareOptions wanted =
        options({"--chat-template", "plain", "--jsonl-keys", "chosen", "rejected", labels});
    AloneControl alone;
    EXPECT_THAT(summary(wanted, prepare_data(wanted, alone)),
                HasSubstr(concat("  train_impl: ", impl, "\n")));
  }
}

TEST_F(Labels, OfADocumentStandBehindThoseOfTheOneBefore) {
  const std::string other = R"([{"role": "user", "content": "Q"}])";
  for (const Arguments& more : {Arguments{"--mask-before-token", id("Q")},
                                {"--chat-template", "chatml"},
                                {"--chat-template", "chatml", "--for-rm"}}) {
    PrepareOptions wanted = options(more);
    DocumentEncoder encoder(wanted, *tokenizer_);
    Encoded both, one = encode(other, more), two = encode(kChat, more);
    for (const std::string& text : {other, kChat}) add(encoder, wanted, text, both);
    one.tokens.insert(one.tokens.end(), two.tokens.begin(), two.tokens.end());
    one.labels.insert(one.labels.end(), two.labels.begin(), two.labels.end());
    EXPECT_EQ(both.tokens, one.tokens);
    EXPECT_EQ(both.labels, one.labels);
  }
}

TEST_F(Labels, WantTextsWhole) {
  auto takes_parts = [&](const Arguments& more) {
    PrepareOptions wanted = options(more);
    return DocumentEncoder(wanted, *tokenizer_).takes_parts();
  };
  EXPECT_TRUE(takes_parts({}));
  EXPECT_FALSE(takes_parts({"--mask-before-token", "1"}));
  EXPECT_FALSE(takes_parts({"--chat-template", "plain", "--no-mask"}));
}

TEST_F(Labels, HaveTheNamesOfGptNeoxsTools) {
  PrepareOptions mask = options({"--mask-before-token", "1"});
  EXPECT_EQ(label_name(mask, "text"), "label");
  PrepareOptions chat = options({"--chat-template", "plain", "--jsonl-keys", "messages"});
  EXPECT_EQ(label_name(chat, "messages"), "messages_label");
}

TEST_F(Labels, RefuseOptionsThatContradict) {
  EXPECT_THAT(refusal({"--mask-before-token", "1,x"}), HasSubstr("'x' is no token id"));
  EXPECT_THAT(refusal({"--mask-before-token", "70000"}), HasSubstr("names the token 70000"));
  EXPECT_THAT(refusal({"--mask-before-token", "1", "--jsonl-keys", "a", "b"}),
              HasSubstr("labels of one key"));
  EXPECT_THAT(refusal({"--only-last"}), HasSubstr("goes with --chat-template"));
  EXPECT_THAT(refusal({"--chat-template", "plain", "--only-last", "--no-mask"}),
              HasSubstr("exclude each other"));
  EXPECT_THAT(refusal({"--chat-template", "plain", "--mask-before-token", "1"}),
              HasSubstr("exclude each other"));
}

}  // namespace
}  // namespace neox
