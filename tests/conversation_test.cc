// The forms in which files have the messages of conversations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "chat/chat.h"
#include "data_files.h"

namespace neox {
namespace {

using ::testing::AllOf;
using testing::Directory;
using testing::error_of;
using ::testing::HasSubstr;

class Conversation : public ::testing::Test {
 protected:
  // What a template makes of it; "": plain.
  std::string text(const std::string& json, const std::string& jinja = "") {
    std::string file = jinja.empty() ? "chatml" : dir_.put("t.jinja", jinja);
    ChatTemplate style = with_special_tokens(
        read_chat_template(file, jinja.empty() ? chat_template_table() : fs::path()), {});
    std::string all;
    for (const ChatTurn& turn :
         render_chat(parse_conversation(json, style), style, "assistant", Apart::kNone))
      all += turn.text;
    return all;
  }
  std::string refusal(const std::string& json, const std::string& jinja = "") {
    return error_of([&] { text(json, jinja); });
  }

  Directory dir_;
};

constexpr const char* kShown =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ m.weight }}{{ m.from }};{% endfor %}";
constexpr const char* kOfParts =
    "{% for m in messages %}[{{ m.role }}]{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}<{{ part.text }}>{% endfor %}{% endif %}{% endfor %}";

TEST_F(Conversation, OfShareGptHasOtherNames) {
  const std::string chat =
      R"([{"from": "system", "value": "S"}, {"from": "human", "value": "Q", "weight": 0},
          {"from": "gpt", "value": "A"}, {"from": "observation", "value": "O"},
          {"from": "chatgpt", "value": "B"}, {"from": "user", "value": "R"},
          {"from": "assistant", "value": "C"}])";
  EXPECT_EQ(text(chat),
            text(R"([{"role": "system", "content": "S"}, {"role": "user", "content": "Q"},
          {"role": "assistant", "content": "A"}, {"role": "tool", "content": "O"},
          {"role": "assistant", "content": "B"}, {"role": "user", "content": "R"},
          {"role": "assistant", "content": "C"}])"));
  EXPECT_EQ(text(chat, kShown),
            "[system]S;[user]Q0;[assistant]A;[tool]O;[assistant]B;[user]R;[assistant]C;");
  // What has a role needs no other one.
  EXPECT_EQ(text(R"([{"role": "user", "content": "Q", "from": "gpt", "value": "V"}])", kShown),
            "[user]Qgpt;");
}

TEST_F(Conversation, OfShareGptThatIsWrongNamesTheMessage) {
  const std::string first = R"([{"from": "human", "value": "Q"}, )";
  for (const char* jinja : {"", kShown}) {
    EXPECT_EQ(refusal(first + R"({"from": "gpt", "content": "A"}])", jinja),
              "74: message 2 has no 'value'; it has 'from', 'content'");
    EXPECT_EQ(refusal(first + R"({"from": 1, "value": "A"}])", jinja),
              "74: the 'from' of message 2 is of type number, not a string");
    EXPECT_EQ(refusal(first + R"({"value": "A"}])", jinja),
              "74: message 2 has no 'role'; it has 'value'");
  }
  EXPECT_EQ(refusal(first + R"({"from": "gpt", "value": null}])"),
            "74: the 'value' of message 2 is of type null, not a string");
  EXPECT_THAT(refusal(first + R"({"from": "function_call", "value": "A"}])"),
              HasSubstr("message 2 is of the role 'function_call'; the template chatml has"));
}

TEST_F(Conversation, PartsOfAContentAreLinesUnlessTheTemplateWritesThem) {
  const std::string parts =
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])";
  EXPECT_EQ(text(parts), text(R"([{"role": "user", "content": "a\nb"}])"));
  EXPECT_EQ(text(parts, kShown), "[user]a\nb;");
  EXPECT_EQ(text(parts, "{{ messages[0].content + '!' }}"), "a\nb!");
  EXPECT_EQ(text(parts, "{{ messages[0].content | tojson }}"), "\"a\\nb\"");
  EXPECT_EQ(text(parts, kOfParts), "[user]<a><b>");
  const std::string wants =
      "{% if messages[0].role != 'system' %}{{ raise_exception('no') }}{% endif %}";
  EXPECT_EQ(text(R"([{"role": "system", "content": "s"}, )" + parts.substr(1), wants + kOfParts),
            "[system]s[user]<a><b>");
  EXPECT_EQ(text(R"([{"role": "user", "content": []}])", kShown), "[user];");
}

TEST_F(Conversation, PartsThatAreNoTextAreRefused) {
  auto of = [](const std::string& part) {
    return R"([{"role": "user", "content": [{"type": "text", "text": "a"}, )" + part + "]}]";
  };
  for (const char* jinja : {"", kShown, kOfParts}) {
    EXPECT_EQ(
        refusal(of(R"({"type": "image_url", "image_url": {"url": "u"}})"), jinja),
        "74: part 2 of the 'content' of message 1 is of the type \"image_url\"; only parts of "
        "the type \"text\" are supported");
    EXPECT_THAT(refusal(of("\"b\""), jinja),
                HasSubstr("part 2 of the 'content' of message 1 is no object with a 'type'"));
    EXPECT_THAT(refusal(of(R"({"type": "text", "text": 1})"), jinja),
                AllOf(HasSubstr("part 2 of"), HasSubstr("no 'text' that is a string")));
  }
}

}  // namespace
}  // namespace neox
