// Labels for fine-tuning: masks before a token, conversations by chat templates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "data_files.h"
#include "generated_text.h"
#include "prepare/document_encoder.h"
#include "prepare/prepare_options.h"

namespace neox {
namespace {

using testing::Directory;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Ids = std::vector<int32_t>;
using Arguments = std::vector<std::string>;

constexpr int32_t kMasked = -100;

struct Encoded {
  Ids tokens, labels;
};

// A tokenizer with the tokens of ChatML, and what the options make of a document.
class Labels : public ::testing::Test {
 protected:
  Labels() {
    write_tokenizer_json(dir_ / "plain.json",
                         train_bpe({.vocab_size = 280}, each({"the cat and the hat"})));
    auto json = nlohmann::json::parse(read_file(dir_ / "plain.json"));
    nlohmann::json token = json["added_tokens"][0];
    auto next = Tokenizer::from_json(dir_ / "plain.json").vocab_size();
    for (const char* content : {"<|im_start|>", "<|im_end|>"}) {
      token["id"] = next++;
      token["content"] = content;
      json["added_tokens"].push_back(token);
    }
    dir_.put("tokenizer.json", json.dump());
    tokenizer_ = std::make_unique<Tokenizer>(Tokenizer::from_json(dir_ / "tokenizer.json"));
  }

  PrepareOptions options(const Arguments& more) const {
    Arguments arguments = {"--output-prefix", dir_ / "out", "--tokenizer-path",
                           dir_.path(),       "--input",    dir_ / "in.jsonl"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Program program = prepare_program();
    check(program.parse(canonical_arguments(arguments)), "help was asked");
    return read_prepare_options(program);
  }
  std::string refusal(const Arguments& more) const {
    return error_of([&] {
      PrepareOptions wanted = options(more);
      DocumentEncoder encoder(wanted, *tokenizer_);
    });
  }
  static void add(const DocumentEncoder& encoder, const PrepareOptions& wanted,
                  const std::string& text, Encoded& to) {
    if (wanted.chat)
      encoder.encode_chat(wanted.rules.turns(text), to.tokens, to.labels);
    else
      encoder.encode(text, DocumentEncoder::Part::kLast, to.tokens, to.labels);
  }
  Encoded encode(const std::string& text, const Arguments& more) const {
    PrepareOptions wanted = options(more);
    DocumentEncoder encoder(wanted, *tokenizer_);
    Encoded e;
    add(encoder, wanted, text, e);
    EXPECT_EQ(e.labels.size(), encoder.has_labels() ? e.tokens.size() : 0);
    for (size_t i = 0; i < e.labels.size(); ++i)
      EXPECT_TRUE(e.labels[i] == kMasked || e.labels[i] == e.tokens[i]) << i;
    return e;
  }
  std::string text(Ids ids) const {
    std::erase(ids, kMasked);
    return tokenizer_->decode(ids, Tokenizer::Special::kKeep);
  }
  // The id of a character.
  std::string id(const std::string& character) const {
    return std::to_string(tokenizer_->encode(character).at(0));
  }

  Directory dir_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

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
  auto turns = render_chat({{"user", "Q"}, {"assistant", "A"}, {"user", "R"}}, style, "assistant");
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

// As GPT-NeoX's tool: int32, one for each document, of which fractions are cut off.
TEST_F(Labels, HaveRewardsBesideThem) {
  std::string lines;
  for (const char* reward : {"1", "-1", "0.75", "-2.5", "true", "false", "2e0", R"(2e3, "x": NaN)",
                             R"(-2147483648, "x": [1e999])"})
    lines += concat("{\"r\": ", reward, R"(, "conversation": [{"role": "user", "content": "Q"},)",
                    R"({"role": "assistant", "content": "A"}]})", "\n");
  dir_.put("in.jsonl", lines);
  AloneControl alone;
  PrepareOptions wanted = options({"--chat-template", "plain", "--reward-key", "r"});
  ::testing::internal::CaptureStderr();
  PrepareResult result = prepare_data(wanted, alone);
  std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("in.jsonl:3: the reward 0.75 by 0: rewards are whole numbers"));
  EXPECT_THAT(said, ::testing::Not(HasSubstr("jsonl:7")));
  std::string prefix = dir_ / "out_conversation_reward_document";
  EXPECT_EQ(result.datasets.at(2).prefix, prefix);
  const Ids rewards = {1, -1, 0, -2, 1, 0, 2, 2000, INT32_MIN};
  std::string bytes = read_file(prefix + ".bin");
  EXPECT_EQ(bytes, std::string(reinterpret_cast<const char*>(rewards.data()), 4 * rewards.size()));
  IndexedDataset data(prefix, IndexedDataset::kAnyNumber);
  EXPECT_EQ(data.type(), TokenType::kInt32);
  EXPECT_EQ(data.num_documents(), 9);
  EXPECT_EQ(data.num_sequences(), 9);
  EXPECT_THAT(summary(wanted, result),
              AllOf(HasSubstr("9 documents, 9 rewards, 36 B"), HasSubstr("  train_impl: kto\n"),
                    HasSubstr("train_reward_data_paths: [" + prefix)));
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

TEST_F(Labels, HaveRewardsOfOneSignWhereAsked) {
  const std::pair<const char*, int> cases[] = {
      {"true", 1},  {"false", -1}, {"null", -1}, {"0", -1},  {"0.5", 1},
      {"\"\"", -1}, {"\"no\"", 1}, {"[]", -1},   {"NaN", 1}, {"-Infinity", 1}};
  for (auto [json, want] : cases) EXPECT_EQ(read_reward(json, RewardRule::As::kSign).value, want);
}

TEST_F(Labels, RewardsThatAreNoNumbersAreErrorsWithTheirLineOrSkipped) {
  const std::string chat = R"("conversation": [{"role": "user", "content": "Q"}]})";
  dir_.put("in.jsonl", "{\"r\": 1, " + chat + "\n{\"r\": \"good\", " + chat + "\n{" + chat);
  AloneControl alone;
  Arguments rewards = {"--chat-template", "plain", "--reward-key", "r"};
  EXPECT_THAT(error_of([&] { prepare_data(options(rewards), alone); }),
              AllOf(StartsWith("74: "), HasSubstr("in.jsonl:2: the reward is of type string")));
  EXPECT_THAT(error_of([&] { read_reward("1e400", RewardRule::As::kNumber); }),
              HasSubstr("the reward 1e400 does not fit into 32 bits"));
  rewards.push_back("--skip-bad-lines");
  PrepareResult result = prepare_data(options(rewards), alone);
  EXPECT_EQ(result.documents, 1);
  EXPECT_EQ(result.skipped, 2);  // the last has none
  EXPECT_EQ(result.datasets.at(2).tokens, 1);
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
  EXPECT_THAT(refusal({"--reward-key", "r"}), HasSubstr("goes with --chat-template"));
  EXPECT_THAT(refusal({"--chat-template", "plain", "--binary-reward"}),
              HasSubstr("goes with --reward-key"));
  EXPECT_THAT(refusal({"--chat-template", "plain", "--reward-key", "conversation"}),
              HasSubstr("is a key of --jsonl-keys, too"));
}

}  // namespace
}  // namespace neox
