// neox-generate with the files that a run has beside its checkpoints, and prompts from a file.
#include <gtest/gtest.h>

#include "base/text.h"
#include "run_fixture.h"

namespace neox::testing {
namespace {

Ended generate_from(const std::string& from, const Strings& more) {
  Strings arguments = {program("neox-generate"), from, "--max-tokens", "12"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return Child(arguments).end();
}

TEST(GenerateFrom, APromptOfAFileThatIsTooLongIsNamedByItsLine) {
  Training run;
  ASSERT_EQ(run.train({"train_iters=2"}).code, 0);
  std::string words;
  for (int i = 0; i < 60; ++i) words += "and ";
  std::string file = run.dir().put("prompts", "the\n\n" + words + "\n");
  Ended ended = generate_from(run.save(), {"--file", file});
  EXPECT_EQ(ended.code, 64);
  EXPECT_TRUE(has(ended.err, file + ":3: the prompt 'and and")) << ended.err;
}

// A run, the text that it gives, and the first token of that.
struct GeneratedText : ::testing::Test {
  void SetUp() override {
    ASSERT_EQ(run.train().code, 0);
    whole = generate_from(run.save(), asked).out;
    ASSERT_GT(whole.size(), 8u);
    first = tokenizer.encode(whole.substr(7)).at(0);
  }
  Training run;
  const Strings asked = {"--prompt", "the and"};
  std::string whole;
  Tokenizer tokenizer = Tokenizer::from_json(Material::get() / "tokenizer.json");
  int32_t first = -1;
};

TEST_F(GeneratedText, TokensThatAConvertedModelEndsTextsWithEndThem) {
  fs::path hf = fs::path(run.save()) / "hf";
  fs::create_directories(hf);
  write_file_atomically(hf / "config.json", R"({"eos_token_id": 0})");
  EXPECT_EQ(generate_from(run.save(), asked).out, whole);
  // Ids that no tokenizer has, of which one is another in 32 bits.
  write_file_atomically(hf / "config.json",
                        concat(R"({"eos_token_id": [-1, 100000, )", (int64_t{1} << 32) + first,
                               ", 18446744073709551615]}"));
  EXPECT_EQ(generate_from(run.save(), asked).out, whole);
  std::string deep = std::string(200000, '[') + std::string(200000, ']');
  write_file_atomically(hf / "generation_config.json", R"({"eos_token_id": )" + deep + "}");
  EXPECT_EQ(generate_from(run.save(), asked).out, whole);
  write_file_atomically(hf / "generation_config.json",
                        concat(R"({"eos_token_id": [0, )", first, "]}"));
  EXPECT_EQ(trim(generate_from(run.save(), asked).out), "the and");
  EXPECT_EQ(trim(generate_from(run.step_dir(20) + "/", asked).out), "the and");
}

// Of a converted model, whose configuration names the tokenizer in hf/ by its absolute path.
TEST_F(GeneratedText, ATokenizerMovesAlongWithItsModel) {
  fs::path was = run.dir() / "was", now = run.dir() / "now";
  fs::create_directories(was / "hf");
  fs::copy_file(Material::get() / "tokenizer.json", was / "hf" / "tokenizer.json");
  std::string vocab = "vocab_file=" + (was / "hf" / "tokenizer.json").string();
  ASSERT_EQ(run.train({vocab, "save=" + was.string(), "load=" + was.string()}).code, 0);
  fs::rename(was, now);
  EXPECT_EQ(generate_from(now, asked).out, whole);
  Ended ended = generate_from(now, asked + Strings{"--vocab-file", was / "hf" / "tokenizer.json"});
  EXPECT_EQ(ended.code, 74);
  EXPECT_TRUE(has(ended.err, "which does not exist")) << ended.err;
  fs::rename(now / "hf", now / "other");
  EXPECT_EQ(generate_from(now, asked).code, 74);
}

// A run that was trained on from a converted model has no files beside its checkpoints.
TEST_F(GeneratedText, TheFilesBesideItsTokenizerSayWhatEndsTheTextsOfARun) {
  fs::path hf = run.dir() / "tuned";
  fs::create_directories(hf);
  fs::copy_file(Material::get() / "tokenizer.json", hf / "tokenizer.json");
  Strings there = asked;
  there.insert(there.end(), {"--vocab-file", hf / "tokenizer.json"});
  EXPECT_EQ(generate_from(run.save(), there).out, whole);
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    write_file_atomically(
        hf / name,
        nlohmann::json{{"eos_token", tokenizer.decode({first}, Tokenizer::Special::kKeep)}}.dump());
    EXPECT_EQ(trim(generate_from(run.save(), there).out), "the and");
    write_file_atomically(hf / name, "broken");
    Ended ended = generate_from(run.save(), there);
    EXPECT_EQ(ended.out, whole);
    EXPECT_TRUE(has(ended.err, concat(name, " is not a JSON object; which tokens end a text")));
    fs::remove(hf / name);
  }
  write_file_atomically(hf / "generation_config.json", concat("{\"eos_token_id\": ", first, "}"));
  EXPECT_EQ(trim(generate_from(run.save(), there).out), "the and");
}

}  // namespace
}  // namespace neox::testing
