// Steps in front of the words of byte-level tokenizers, as DeepSeek's, BLOOM's or Falcon's, with
// the ids that tests/oracle/pipelines.py has captured from Python's library.
#include <gmock/gmock.h>

#include "tokenizer/text_pattern.h"
#include "tokenizer_fixture.h"

namespace neox {
namespace {

using testing::HasSubstr;

class PipelineTest : public TokenizerTest {
 protected:
  json with(const char* part, json value) const {
    json root = described();
    root[part] = std::move(value);
    return root;
  }
  json with_steps(std::vector<json> steps) const {
    return with("pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}});
  }
};

json byte_level() {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}};
}

json split(const char* expression, const char* behavior = "Isolated") {
  return {{"type", "Split"},
          {"pattern", {{"Regex", expression}}},
          {"behavior", behavior},
          {"invert", false}};
}

TEST_F(PipelineTest, GivesTheIdsOfTheReference) {
  json golden = json::parse(read_file(NEOX_SOURCE_DIR "/tests/golden/pipelines.json"));
  ASSERT_GT(golden["pipelines"].size(), 20u);
  for (const json& pipeline : golden["pipelines"]) {
    json root = described();
    root["normalizer"] = nullptr;
    for (const char* part : {"normalizer", "pre_tokenizer", "post_processor"})
      if (pipeline.contains(part)) root[part] = pipeline[part];
    if (pipeline.contains("model")) root["model"].update(pipeline["model"]);
    Tokenizer tokenizer = load(root);
    for (size_t i = 0; i < golden["texts"].size(); ++i)
      EXPECT_EQ(tokenizer.encode(golden["texts"][i].get<std::string>()),
                pipeline["ids"][i].get<std::vector<int32_t>>())
          << pipeline["name"] << ": " << golden["texts"][i];
  }
}

TEST_F(PipelineTest, TextsAreCutWhereStepsSeeNothingOfIt) {
  EXPECT_TRUE(small().parts_at_words());
  EXPECT_TRUE(load(with_steps({{{"type", "Digits"}, {"individual_digits", true}}, byte_level()}))
                  .parts_at_words());
  EXPECT_FALSE(load(with_steps({split("a b"), byte_level()})).parts_at_words());
  EXPECT_FALSE(load(with("normalizer", {{"type", "NFKC"}})).parts_at_words());
}

TEST_F(PipelineTest, RefusesByNameWhatIsNotSupported) {
  EXPECT_THAT(error_of(with_steps({split("(a"), byte_level()})),
              HasSubstr("pretokenizers[0], pattern: not a regular expression of Oniguruma: end "
                        "pattern with unmatched parenthesis: (a"));
  EXPECT_THAT(error_of(with_steps({split("a", "Kept"), byte_level()})),
              HasSubstr("the behavior is Kept; supported are Removed, Isolated"));
  EXPECT_THAT(error_of(with("pre_tokenizer", {{"type", "Blank"}})),
              HasSubstr("the type is Blank; supported are BertPreTokenizer, ByteLevel"));
  EXPECT_THAT(error_of(with("normalizer", {{"type", "Upper"}})),
              HasSubstr("the type is Upper; supported are BertNormalizer, ByteLevel"));
  json empty = split("a");
  empty["pattern"] = {{"String", ""}};
  EXPECT_THAT(error_of(with_steps({empty, byte_level()})), HasSubstr("text to look for is empty"));
}

// Debian's library has functions called regcomp and regexec, too.
TEST_F(PipelineTest, ExpressionsOfTheCLibraryRemainItsOwn) {
  load(with_steps({split("[a-z]+"), byte_level()}));
  EXPECT_THAT("a gradient of Sum", testing::ContainsRegex("of [A-Z][a-z]+$"));
}

TEST_F(PipelineTest, AnExpressionThatTakesTooLongIsAnError) {
  Tokenizer tokenizer = load(with_steps({split("(a|a|b|b)+c"), byte_level()}));
  EXPECT_THAT(error_of([&] { tokenizer.encode(std::string(40, 'a')); }),
              HasSubstr("Oniguruma stopped in a text of 40 bytes: retry-limit-in-match over; it "
                        "looked for (a|a|b|b)+c"));
}

}  // namespace
}  // namespace neox
