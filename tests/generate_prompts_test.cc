// Where neox-generate takes prompts from, and what it says of what it is asked for.
#include <set>
#include <sstream>
#include <streambuf>

#include "base/text.h"
#include "generate/session.h"
#include "generate_program.h"

namespace neox::testing {
namespace {

// The texts of --json that are not the same.
std::set<std::string> texts_in(const std::string& out) {
  std::set<std::string> texts;
  for (const std::string& line : split(out, '\n'))
    if (!line.empty()) texts.insert(nlohmann::json::parse(line).at("text").get<std::string>());
  return texts;
}

TEST_F(GenerateProgram, PromptsOfAFileMayHaveLines) {
  std::string file = run().dir().put("prompts", "\xEF\xBB\xBF the\nand###\n\n### of\n###");
  EXPECT_EQ(text({"--file", file, "--set", "prompt_end=\"###\""}),
            text({"--prompt", "the\nand", "--prompt", "of"}));
  EXPECT_EQ(generate({"--set", "prompt_end=\"###\""}, "the\nand###of").out,
            text({"--prompt", "the\nand", "--prompt", "of"}));
}

TEST_F(GenerateProgram, StandardInputIsAFileToo) {
  std::string both = text({"--prompt", "the", "--prompt", "and"});
  EXPECT_EQ(generate({"--file", "-"}, "the\n and \n").out, both);
  EXPECT_EQ(generate({"--batch-size", "3"}, "the\n\nand\n").out, both);
  EXPECT_EQ(generate({}, "\xEF\xBB\xBF\r\nthe\r\nand\r\n").out, both);
}

// Gives a line at a time, and keeps what was answered when the next was asked for.
class LineByLine : public std::streambuf {
 public:
  LineByLine(Strings lines, const std::ostringstream& out) : lines_(std::move(lines)), out_(out) {}
  Strings answered;

 protected:
  int_type underflow() override {
    answered.push_back(out_.str());
    if (answered.size() > lines_.size()) return traits_type::eof();
    std::string& line = lines_[answered.size() - 1];
    setg(line.data(), line.data(), line.data() + line.size());
    return traits_type::to_int_type(line.front());
  }

 private:
  Strings lines_;
  const std::ostringstream& out_;
};

TEST_F(GenerateProgram, LinesOfStandardInputAreAnsweredAsTheyCome) {
  for (const char* file : {"", "-"}) {
    SessionOptions options{.checkpoint = run().save(), .max_tokens = 3};
    options.file = file;
    std::ostringstream out;
    LineByLine lines({"the\n", "and\n"}, out);
    std::istream in(&lines);
    run_session(options, in, out, false);
    ASSERT_GE(lines.answered.size(), 3u);
    EXPECT_TRUE(lines.answered[1].starts_with("the")) << file;
    EXPECT_TRUE(has(lines.answered[2], "\nand")) << file;
  }
}

TEST_F(GenerateProgram, NoPromptAtAllIsAnError) {
  for (const Strings& more : {Strings{}, Strings{"--file", "-"}})
    for (const char* input : {"", "\n \n"}) {
      Ended ended = start(more, input);
      EXPECT_EQ(ended.code, 74);
      EXPECT_TRUE(has(ended.err, "standard input holds no prompt")) << ended.err;
    }
}

TEST_F(GenerateProgram, EqualPromptsAreDrawnAfresh) {
  Strings drawn = {"--json", "--temperature", "1"};
  for (int i = 0; i < 3; ++i) drawn.insert(drawn.end(), {"--prompt", "the"});
  std::set<std::string> once = texts_in(text(drawn));
  EXPECT_EQ(once.size(), 3u);
  EXPECT_EQ(texts_in(text(drawn)), once);
  drawn.insert(drawn.end(), {"--batch-size", "2"});
  EXPECT_EQ(texts_in(text(drawn)), once);
}

TEST_F(GenerateProgram, TemperatureZeroAsksForTheLikeliestToken) {
  std::string greedy = text({"--prompt", "the"});
  Strings set = {"--prompt", "the", "--set", "top_k=40", "--set", "temperature=3"};
  EXPECT_NE(text(set), greedy);
  set.insert(set.end(), {"--temperature", "0"});
  EXPECT_EQ(text(set), greedy);
}

TEST_F(GenerateProgram, KeysWithoutEffectAreNamed) {
  Ended ended = generate({"--prompt", "the", "--set", "num_samples=3"});
  EXPECT_TRUE(has(ended.err, "--set num_samples has no effect: neox-generate --num-samples"))
      << ended.err;
}

TEST_F(GenerateProgram, AnotherTokenizerIsSaid) {
  nlohmann::json other = nlohmann::json::parse(read_file(Material::get() / "tokenizer.json"));
  EXPECT_FALSE(has(generate({"--prompt", "the"}).err, "warning"));
  nlohmann::json &vocab = other["model"]["vocab"], a = vocab["a"], b = vocab["b"];
  vocab["a"] = b, vocab["b"] = a;
  std::string file = run().dir().put("other.json", other.dump());
  Ended ended = generate({"--prompt", "the", "--vocab-file", file});
  EXPECT_TRUE(has(ended.err, "is not the one that the model of")) << ended.err;
}

// By neox-train too.
TEST_F(GenerateProgram, ATokenizerThatIsTooLargeIsRefusedWithAdvice) {
  nlohmann::json large = nlohmann::json::parse(read_file(Material::get() / "tokenizer.json"));
  nlohmann::json& vocab = large["model"]["vocab"];
  for (size_t id = vocab.size(); id < 400; ++id) vocab[concat("more", id)] = id;
  std::string file = run().dir().put("large.json", large.dump());
  for (const Ended& ended : {start({"--prompt", "the", "--vocab-file", file}),
                             run().train({"vocab_file=" + file, "train_iters=21"})}) {
    EXPECT_EQ(ended.code, 64);
    EXPECT_TRUE(has(ended.err, "neox-convert --padded-vocab 400")) << ended.err;
  }
}

TEST_F(GenerateProgram, IsNoJobOfSeveralProcesses) {
  Child two({program("neox-generate"), run().save(), "--prompt", "the"},
            {.environment = {"NEOX_RANK=0", "NEOX_WORLD_SIZE=2", "NEOX_LOCAL_RANK=0",
                             "NEOX_LOCAL_SIZE=2", "NEOX_MASTER=127.0.0.1:1"}});
  Ended ended = two.end();
  EXPECT_EQ(ended.code, 64);
  EXPECT_TRUE(has(ended.err, "neox-generate is one process, and this is one of 2")) << ended.err;
}

// fp16 weights are exact in fp32, where a batch changes nothing.
TEST_F(GenerateProgram, HalvesAreComputedInFloatOnACpu) {
  Strings arguments = {"--prompt", "the",           "--prompt", "of the and to", "--temperature",
                       "1",        "--num-samples", "4",        "--set",         "precision=fp16"};
  std::string alone = text(arguments);
  arguments.insert(arguments.end(), {"--batch-size", "8"});
  EXPECT_EQ(text(arguments), alone);
}

}  // namespace
}  // namespace neox::testing
