// What is said where labels find nowhere to begin.
#include <gmock/gmock.h>

#include "input_forms.h"

namespace neox {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::InputForms;
using ::testing::Not;
using Arguments = std::vector<std::string>;

class LabelMarks : public InputForms {
 protected:
  // What the log says of these lines, which several ranks share.
  std::string said(const std::string& lines, const Arguments& more, int ranks) {
    ::testing::internal::CaptureStderr();
    prepare({dir_.put("in.jsonl", lines)}, more, ranks);
    return ::testing::internal::GetCapturedStderr();
  }
};

// Roles of a template of Jinja may be any.
TEST_F(LabelMarks, ConversationsWithoutTheRoleToLearnAreWarnedOf) {
  const std::string style =
      dir_.put("t.jinja", "{% for m in messages %}{{ m.role + m.content }}{% endfor %}");
  auto of = [&](const std::string& role, const Arguments& more, int ranks = 1) {
    Arguments all = {"--chat-template", style, "--generation-role", role};
    all.insert(all.end(), more.begin(), more.end());
    const std::string question = R"({"conversation": [{"role": "user", "content": "Q"})";
    return said(concat(question, "]}\n", question, R"(, {"role": "gpt", "content": "A"}]})", "\n"),
                all, ranks);
  };
  for (int ranks : {1, 3})
    EXPECT_THAT(of("bot", {}, ranks),
                HasSubstr("no conversation has a message of the role 'bot', so the labels mask"));
  EXPECT_THAT(of("bot", {"--only-last"}),
              AllOf(HasSubstr("no conversation ends with a message of the role 'bot'"),
                    HasSubstr("; they end with the roles gpt, user: name the role to learn as")));
  for (int ranks : {1, 3}) EXPECT_THAT(of("gpt", {}, ranks), Not(HasSubstr("no conversation")));
  EXPECT_THAT(of("bot", {"--no-mask"}), Not(HasSubstr("no conversation")));
}

TEST_F(LabelMarks, TokensToMaskBeforeThatNoDocumentHasAreWarnedOf) {
  Tokenizer tokenizer = Tokenizer::from_json(dir_ / "tokenizer.json");
  const std::string hat = concat(tokenizer.encode("!").at(0), ",", tokenizer.encode("?").at(0));
  auto of = [&](const char* text, int ranks) {
    return said(concat(R"({"text": "no"})", "\n", R"({"text": ")", text, "\"}\n"),
                {"--mask-before-token", hat}, ranks);
  };
  const std::string words = concat("(", hat, ") stand in a row in no document, so the labels mask");
  for (int ranks : {1, 3}) EXPECT_THAT(of("?!", ranks), HasSubstr(words));
  for (int ranks : {1, 3}) EXPECT_THAT(of("!?", ranks), Not(HasSubstr(words)));
}

}  // namespace
}  // namespace neox
