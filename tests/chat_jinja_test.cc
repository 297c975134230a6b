// Conversations by the Jinja of a tokenizer: turns, labels, what a reply follows and ends with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "chat/chat.h"
#include "data_files.h"

namespace neox {
namespace {

using testing::Directory;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

constexpr const char* kChatMl =
    "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content | trim + "
    "'<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
// Drops what earlier replies thought, as Qwen3 does.
constexpr const char* kThinks =
    "{% for m in messages %}{% set c = m.content if loop.last else m.content.split('</think>')[-1] "
    "%}"
    "[{{ m.role }}]{{ c }};{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";
constexpr const char* kChat =
    R"([{"role": "system", "content": "S"}, {"role": "user", "content": " Q"},
    {"role": "assistant", "content": "A "}, {"role": "user", "content": "R"}, {"role": "assistant", "content": "B"}])";

class ChatByJinja : public ::testing::Test {
 protected:
  ChatTemplate style(const std::string& source, const SpecialTokens& tokens = {}) {
    return with_special_tokens(read_chat_template(dir_.put("t.jinja", source), ""), tokens);
  }
  std::vector<std::string> turns(const ChatTemplate& style, const std::string& json,
                                 Apart apart = Apart::kReplies) {
    std::vector<std::string> all;
    for (const ChatTurn& turn :
         render_chat(parse_conversation(json, style), style, "assistant", apart))
      all.push_back(turn.role + ": " + turn.text);
    return all;
  }
  Directory dir_;
};

TEST_F(ChatByJinja, RepliesAreApart) {
  ChatTemplate it = style(kChatMl, {"", "", {{"bos_token", "<s>"}}});
  const std::string asked =
      "<s><|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_THAT(turns(it, kChat),
              ElementsAre("user: " + asked, "assistant: A<|im_end|>\n",
                          "user: <|im_start|>user\nR<|im_end|>\n<|im_start|>assistant\n",
                          "assistant: B<|im_end|>\n"));
  EXPECT_THAT(turns(it, kChat, Apart::kLastReply),
              ElementsAre("user: " + asked +
                              "A<|im_end|>\n<|im_start|>user\nR<|im_end|>\n<|im_start|>assistant\n",
                          "assistant: B<|im_end|>\n"));
  EXPECT_EQ(turns(it, kChat, Apart::kNone).size(), 1u);
  EXPECT_EQ(end_of_reply(it), "<|im_end|>\n");
  auto before = turns_before_reply({{"user", "Q"}}, it);
  EXPECT_EQ(before.back().text, "<s><|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(ChatByJinja, ThatRewritesWhatWasSaidCanLearnTheLastReplyAlone) {
  const std::string chat =
      R"([{"role": "user", "content": "Q"}, {"role": "assistant", "content": "t</think>A"},
      {"role": "user", "content": "R"}, {"role": "assistant", "content": "u</think>B"}])";
  ChatTemplate it = style(kThinks);
  EXPECT_THAT(error_of([&] { turns(it, chat); }),
              AllOf(HasSubstr("t.jinja writes what stands before message 3 otherwise"),
                    HasSubstr("--only-last")));
  EXPECT_THAT(
      turns(it, chat, Apart::kLastReply),
      ElementsAre("user: [user]Q;[assistant]A;[user]R;[assistant]", "assistant: u</think>B;"));
}

TEST_F(ChatByJinja, MessagesHaveAllTheirFields) {
  ChatTemplate it = style(
      "{% for m in messages %}{{ m.content or m.tool_calls | tojson }}{{ m.name }}{% endfor %}");
  EXPECT_THAT(
      turns(it, R"([{"role": "assistant", "content": null, "tool_calls": [{"z": 1, "a": 2}]},
                            {"role": "tool", "content": "3", "name": "f"}])",
            Apart::kNone),
      ElementsAre("tool: [{\"z\": 1, \"a\": 2}]3f"));
  EXPECT_THAT(error_of([&] { turns(it, R"([{"content": "x"}])"); }),
              HasSubstr("message 1 has no 'role'"));
  EXPECT_THAT(error_of([&] { turns(it, R"([{"role": "user", "content": 9223372036854775808}])"); }),
              HasSubstr("message 1: the whole number 9223372036854775808 is not within 64 bits"));
}

TEST_F(ChatByJinja, MessagesAreWithinBounds) {
  ChatTemplate it = style(kChatMl);
  auto refused = [&](const std::string& value) {
    return error_of([&] {
      parse_conversation(concat(R"([{"role": "user", "content": "Q", "m": )", value, "}]"), it);
    });
  };
  EXPECT_EQ(refused(std::string(498, '[') + std::string(498, ']')), "");
  EXPECT_EQ(refused(std::string(100'000, '[') + std::string(100'000, ']')),
            "74: the conversation is nested in more than 500 levels");
  std::string keys;
  for (int i = 0; i < 60'000; ++i) keys += concat(i ? ", " : "", '"', i, "\": 1");
  EXPECT_EQ(refused("{" + keys + "}"), "74: the conversation has an object of more than 1000 keys");
}

TEST_F(ChatByJinja, WhereItIsFound) {
  auto said = [&](const std::string& place) {
    return turns(read_chat_template(dir_ / place, ""), R"([{"role": "user", "content": "Q"}])")
        .front();
  };
  nlohmann::json config = {{"chat_template", "one"}};
  dir_.put("a/tokenizer_config.json", config.dump());
  EXPECT_EQ(said("a"), "user: one");
  EXPECT_EQ(said("a/tokenizer_config.json"), "user: one");
  dir_.put("a/chat_template.jinja", "two");
  EXPECT_EQ(said("a"), "user: two");
  config["chat_template"] = {{{"name", "rag"}, {"template", "r"}},
                             {{"name", "default"}, {"template", "three"}}};
  dir_.put("b/tokenizer_config.json", config.dump());
  EXPECT_EQ(said("b"), "user: three");
  config["chat_template"].erase(1);
  dir_.put("b/tokenizer_config.json", config.dump());
  EXPECT_THAT(error_of([&] { said("b"); }), HasSubstr("it has rag"));
  dir_.put("c/tokenizer_config.json", "{}");
  EXPECT_THAT(error_of([&] { said("c"); }), HasSubstr("has no chat_template; take one by name"));
  fs::create_directory(dir_ / "d");
  EXPECT_THAT(error_of([&] { said("d"); }),
              HasSubstr("without chat_template.jinja and tokenizer_config.json"));
}

TEST_F(ChatByJinja, SeesTheTokensThatTheTokenizerHas) {
  dir_.put(
      "tokenizer_config.json",
      R"({"bos_token": null, "eos_token": {"content": "</s>"}, "pad_token": "<p>", "add_bos_token": true})");
  SpecialTokens tokens = special_tokens_beside(dir_ / "tokenizer.json");
  ChatTemplate it =
      style("{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ add_bos_token }}", tokens);
  EXPECT_THAT(turns(it, R"([{"role": "user", "content": "Q"}])"), ElementsAre("user: |</s>|<p>|"));
}

TEST_F(ChatByJinja, SeesTheTokensOfOlderTokenizers) {
  auto named = [&] {
    SpecialTokens tokens = special_tokens_beside(dir_ / "tokenizer.json");
    return concat(tokens.bos, " ", tokens.eos, " ", tokens.named.contains("bos_token"), " ",
                  tokens.named["pad_token"]);
  };
  const char* map = "special_tokens_map.json";
  dir_.put(map, R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": "<p>",
                    "additional_special_tokens": ["<a>"]})");
  EXPECT_EQ(named(), "<s> </s> 1 <p>");
  dir_.put("tokenizer_config.json", R"({"bos_token": null, "eos_token": "<e>"})");
  EXPECT_EQ(named(), "<s> <e> 1 <p>");
  // Newer ones say it all.
  dir_.put("tokenizer_config.json", R"({"eos_token": "<e>", "added_tokens_decoder": {}})");
  EXPECT_EQ(named(), "<|endoftext|> <e> 0 ");
  dir_.put("tokenizer_config.json", "{}");
  dir_.put(map, R"({"bos_token": ["<s>"]})");
  EXPECT_THAT(error_of(named), HasSubstr("special_tokens_map.json: bos_token is not a text"));
  dir_.put(map, "[]");
  EXPECT_THAT(error_of(named), HasSubstr("special_tokens_map.json is not a JSON object"));
}

// Values within each other are copied one in the other.
TEST_F(ChatByJinja, FilesAreNestedToABound) {
  std::string deep = std::string(200000, '[') + std::string(200000, ']');
  fs::path config =
      dir_.put("tokenizer_config.json",
               R"({"chat_template": )" + deep + R"(, "a_token": {"content": )" + deep + "}}");
  EXPECT_THAT(error_of([&] { special_tokens_beside(config); }), HasSubstr("more than 500 levels"));
  EXPECT_THAT(error_of([&] { read_chat_template(config, ""); }), HasSubstr("more than 500 levels"));
}

TEST_F(ChatByJinja, ThatDoesNotWriteRepliesIsRefused) {
  EXPECT_THAT(error_of([&] { end_of_reply(style("always the same")); }),
              HasSubstr("does not write what a message"));
}

std::string split_markers(const ChatTemplate& style) {
  ::testing::internal::CaptureStderr();
  warn_of_split_markers(style, Tokenizer::characters(), "the.json");
  return ::testing::internal::GetCapturedStderr();
}

TEST_F(ChatByJinja, MarkersThatAreNoTokensAreWarnedOf) {
  auto named = [](const char* name) { return read_chat_template(name, chat_template_table()); };
  EXPECT_THAT(split_markers(named("chatml")),
              HasSubstr("<|im_start|> of the chat template chatml is 12 tokens of the.json, which "
                        "has no token for it"));
  EXPECT_EQ(split_markers(named("plain")), "");
  EXPECT_THAT(split_markers(style(kChatMl)), HasSubstr("<|im_end|> of the chat template"));
}

TEST_F(ChatByJinja, NamesOfTheTableComeBeforeFiles) {
  fs::path before = fs::current_path();
  fs::current_path(dir_.path());
  dir_.put("mistral/chat_template.jinja", "{{ messages[0].content }}");
  dir_.put("mine", "{{ messages[0].content }}");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(read_chat_template("mistral", chat_template_table()).jinja, nullptr);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("give ./mistral"));
  EXPECT_NE(read_chat_template("./mistral", chat_template_table()).jinja, nullptr);
  EXPECT_NE(read_chat_template("mine", chat_template_table()).jinja, nullptr);
  fs::current_path(before);
  EXPECT_THAT(error_of([&] { style(" \n"); }), HasSubstr("the chat template is empty"));
}

TEST_F(ChatByJinja, MayWantASystemMessage) {
  const std::string wants =
      "{% if messages[0].role != 'system' %}{{ raise_exception('system first') }}{% endif %}";
  EXPECT_EQ(end_of_reply(style(wants + kChatMl)), "<|im_end|>\n");
  // One that refuses this, too, has no markers that could be missed.
  ChatTemplate never = style("{{ raise_exception('no') }}");
  EXPECT_THAT(error_of([&] { end_of_reply(never); }), HasSubstr("no"));
  EXPECT_EQ(split_markers(never), "");
}

}  // namespace
}  // namespace neox
