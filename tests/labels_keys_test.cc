// What stands beside conversations in JSON lines: rewards, and the tools that a model may call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "labels_fixture.h"

namespace neox {
namespace {

using ::testing::AllOf;
using testing::Arguments;
using testing::error_of;
using ::testing::HasSubstr;
using testing::Ids;
using testing::Labels;
using ::testing::StartsWith;

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

TEST_F(Labels, RefuseOptionsOfRewardsThatContradict) {
  EXPECT_THAT(refusal({"--reward-key", "r"}), HasSubstr("goes with --chat-template"));
  EXPECT_THAT(refusal({"--chat-template", "plain", "--binary-reward"}),
              HasSubstr("goes with --reward-key"));
  EXPECT_THAT(refusal({"--chat-template", "plain", "--reward-key", "conversation"}),
              HasSubstr("is a key of --jsonl-keys, too"));
}

// Writes the names of tools in front, as templates of models that call them do.
constexpr const char* kOfTools =
    "{% if tools %}[{% for t in tools %}{{ t.function.name }},{% endfor %}]{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

TEST_F(Labels, AreOfConversationsWithTools) {
  const std::string
      chat =
          R"("conversation": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}])",
      tools = R"([{"type": "function", "function": {"name": "hat"}}])";
  std::string lines;
  for (const std::string& of :
       {R"("t": )" + tools + ", ", R"("t": )" + nlohmann::json(tools).dump() + ", ",
        std::string(R"("t": [], )"), std::string(R"("t": null, )"), std::string(R"("t": "null", )"),
        std::string()})
    lines += "{" + of + chat + "}\n";
  dir_.put("in.jsonl", lines);
  AloneControl alone;
  PrepareResult result = prepare_data(
      options({"--chat-template", dir_.put("t.jinja", kOfTools), "--tools-key", "t"}), alone);
  EXPECT_EQ(result.datasets.size(), 2u);
  IndexedDataset data(dir_ / "out_conversation_document", IndexedDataset::kAnyNumber),
      labels(dir_ / "out_conversation_label_document", IndexedDataset::kAnyNumber);
  auto of = [&](const IndexedDataset& set, int64_t i) {
    std::vector<int64_t> ids(static_cast<size_t>(set.lengths()[static_cast<size_t>(i)]));
    set.get(i, 0, ids);
    return text(Ids(ids.begin(), ids.end()));
  };
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(of(data, i), std::string(i < 2 ? "[hat,]" : "") + "<user>Q<assistant>A<|endoftext|>");
    EXPECT_EQ(of(labels, i), "A<|endoftext|>");
  }
}

TEST_F(Labels, ToolsThatAreNoneAreErrorsWithTheirLine) {
  std::string jinja = dir_.put("t.jinja", kOfTools);
  for (auto [tools, says] : {std::pair{"{}", "are object"},
                             {"[1]", "are a list of other things"},
                             {"\"x\"", "are no JSON"},
                             {"[{\"x\": 1e99999999999}]", "jsonl:1: "}}) {
    dir_.put("in.jsonl",
             concat("{\"t\": ", tools, R"(, "conversation": [{"role": "user", "content": "Q"}]})"));
    AloneControl alone;
    EXPECT_THAT(error_of([&] {
                  prepare_data(options({"--chat-template", jinja, "--tools-key", "t"}), alone);
                }),
                AllOf(StartsWith("74: "), HasSubstr("in.jsonl:1: "), HasSubstr(says)));
  }
}

TEST_F(Labels, RefuseToolsThatNoTemplateWrites) {
  EXPECT_THAT(refusal({"--tools-key", "t"}), HasSubstr("goes with --chat-template"));
  EXPECT_THAT(refusal({"--chat-template", "chatml", "--tools-key", "t"}),
              HasSubstr("chatml writes nothing of tools"));
  std::string jinja = dir_.put("t.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
  EXPECT_THAT(refusal({"--chat-template", jinja, "--tools-key", "t"}),
              HasSubstr("t.jinja writes nothing of tools"));
  EXPECT_THAT(
      refusal({"--chat-template", dir_.put("u.jinja", kOfTools), "--tools-key", "conversation"}),
      HasSubstr("--tools-key conversation is a key of --jsonl-keys, too"));
}

}  // namespace
}  // namespace neox
