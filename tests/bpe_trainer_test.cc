#include "tokenizer/bpe_trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "generated_text.h"
#include "tokenizer/tokenizer.h"

namespace neox {
namespace {

// "t h, th e": the merges as text.
std::string merges_of(const TrainedBpe& trained) {
  std::string text;
  for (const BpeMerge& merge : trained.merges)
    text += (text.empty() ? "" : ", ") + trained.tokens[static_cast<size_t>(merge.left)] + " " +
            trained.tokens[static_cast<size_t>(merge.right)];
  return text;
}

std::string merges_of(const BpeTrainerConfig& config, const std::vector<std::string>& documents) {
  return merges_of(train_bpe(config, each(documents)));
}

std::string saved(const TrainedBpe& trained) {
  std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "neox_trained.json";
  write_tokenizer_json(path, trained);
  std::string text = read_file(path);
  std::filesystem::remove(path);
  return text;
}

std::string usage_error(const BpeTrainerConfig& config) {
  try {
    train_bpe(config, each({}));
  } catch (const Error& e) { return e.exit() == Exit::kUsage ? e.what() : "another exit code"; }
  return "no error";
}

TEST(BpeTrainer, WritesTheFileOfTheReference) {
  std::string text =
      saved(train_bpe({.vocab_size = 500}, each(TextGenerator(1).documents(200, 100))));
  auto golden =
      nlohmann::json::parse(read_file(NEOX_SOURCE_DIR "/tests/golden/tokenizer.json"))["trained"];
  char digest[17];
  std::snprintf(digest, sizeof digest, "%016llx",
                static_cast<unsigned long long>(fnv(text.data(), text.size())));
  EXPECT_EQ(golden, digest);
}

TEST(BpeTrainer, MergesTheMostFrequentPairAndOfEqualOnesTheFirst) {
  EXPECT_EQ(merges_of({.vocab_size = 261}, {"cd ab", "ab", "cd"}), "a b, c d, \u0120 ab");
  EXPECT_EQ(merges_of({.vocab_size = 259}, {"ab", "cd", "cd"}), "c d");
}

TEST(BpeTrainer, MergesOverlappingPairsFromTheLeft) {
  TrainedBpe trained = train_bpe({.vocab_size = 300}, each({"aaaaa"}));
  EXPECT_EQ(merges_of(trained), "a a, aa a, aa aaa");
}

TEST(BpeTrainer, NeitherThreadsNorOrderMatter) {
  std::vector<std::string> documents = TextGenerator(7).documents(300, 1000);  // a share for each
  std::string one = merges_of({.vocab_size = 700}, documents);
  std::reverse(documents.begin(), documents.end());
  EXPECT_EQ(merges_of({.vocab_size = 700, .num_threads = 3}, documents), one);
}

TEST(BpeTrainer, StopsWhereNoPairIsLeft) {
  EXPECT_EQ(train_bpe({.vocab_size = 1000}, each({"abc"})).tokens.size(), 258u + 2);
  EXPECT_EQ(train_bpe({.vocab_size = 1000}, each({})).tokens.size(), 258u);
}

TEST(BpeTrainer, LeavesRarePairsApart) {
  EXPECT_EQ(merges_of({.vocab_size = 1000, .min_frequency = 2}, {"ab", "ab", "cd"}), "a b");
}

TEST(BpeTrainer, GivesSpecialTokensTheFirstIdsThenTheBytes) {
  TrainedBpe trained = train_bpe({.vocab_size = 257, .special_tokens = {"<pad>"}}, each({"ab"}));
  EXPECT_EQ(trained.tokens[0], "<pad>");
  EXPECT_EQ(trained.tokens[1], "!");
  EXPECT_EQ(trained.tokens.back(), "\u0143");
}

TEST(BpeTrainer, NormalizesOnlyWhereAskedTo) {
  BpeTrainerConfig config{.vocab_size = 1000};
  EXPECT_EQ(merges_of(config, {"e\u0301"}), "\u00C3 \u00A9");
  config.normalizer = BpeTrainerConfig::Normalizer::kNone;
  EXPECT_EQ(merges_of(config, {"e\u0301"}), "\u00CC \u0123");
}

TEST(BpeTrainer, MakesATokenizerThatShortensItsText) {
  std::filesystem::path dir = testing::TempDir();
  std::string text = TextGenerator(1).text(1000);
  write_tokenizer_json(dir / "neox_learnt.json", train_bpe({.vocab_size = 500}, each({text})));
  Tokenizer tokenizer = Tokenizer::from_json(dir / "neox_learnt.json");
  EXPECT_LT(tokenizer.encode(text).size() * 2, text.size());
  EXPECT_EQ(tokenizer.vocab_size(), 500);
}

TEST(BpeTrainer, ReportsProgressOfBothStages) {
  int64_t read = 0, entries = 0;
  auto note = [&](const BpeProgress& progress) {
    (progress.stage == BpeProgress::Stage::kCount ? read : entries) = progress.done;
  };
  std::vector<std::string> documents = TextGenerator(7).documents(20, 100);
  train_bpe({.vocab_size = 400, .progress = note}, each(documents));
  EXPECT_GT(read, 1000);
  EXPECT_GT(entries, 258);
}

TEST(BpeTrainer, PassesOnErrorsOfItsSource) {
  NextDocument broken = [](std::string&) -> bool { fail(Exit::kIo, "disk gone"); };
  EXPECT_THROW(train_bpe({.num_threads = 2}, broken), Error);
}

TEST(BpeTrainer, SaysWhatIsWrongWithItsConfig) {
  EXPECT_NE(usage_error({.vocab_size = 257}).find("need at least 258"), std::string::npos);
  EXPECT_NE(usage_error({.special_tokens = {"a", ""}}).find("is empty"), std::string::npos);
  EXPECT_NE(usage_error({.special_tokens = {"a", "a"}}).find("\"a\" is given twice"),
            std::string::npos);
  EXPECT_NE(usage_error({.special_tokens = {"\xFF"}}).find("is not UTF-8"), std::string::npos);
}

}  // namespace
}  // namespace neox
