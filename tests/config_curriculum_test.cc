// Sequences that are short at first: curriculum_learning.
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "config/estimate.h"
#include "config_fixture.h"

namespace neox {
namespace {

std::string curriculum(const std::string& type, const std::string& schedule,
                       const std::string& more = "") {
  return concat("curriculum_learning: {enabled: true, curriculum_type: seqlen, min_difficulty: 8, ",
                "max_difficulty: 32, schedule_type: ", type, ", schedule_config: {", schedule, "}",
                more, "}");
}

const std::string kRise = "total_curriculum_step: 20, difficulty_step: 8";

TEST_F(ConfigTest, LengthsOfACurriculumAreThoseOfDeepSpeed) {
  auto golden = nlohmann::json::parse(
      read_file(std::filesystem::path(NEOX_SOURCE_DIR) / "tests/golden/curriculum.json"));
  for (nlohmann::json& one : golden) {
    auto lengths = one["lengths"].get<std::vector<int64_t>>();
    one.erase("lengths");
    one["enabled"] = true;
    Config config =
        load("seq_length: 1500\nmax_position_embeddings: 1500\ncurriculum_learning: " + one.dump());
    ASSERT_TRUE(config.train.curriculum) << one;
    int64_t all = 0;
    for (size_t i = 0; i < lengths.size(); ++i) {
      auto step = static_cast<int64_t>(i) + 1;
      EXPECT_EQ(config.train.curriculum->length_at(step), lengths[i]) << one << " step " << step;
      int64_t tokens = std::min<int64_t>(lengths[i], 1500);
      EXPECT_EQ(tokens_of_steps(config, step - 1, step), tokens) << one;
      all += tokens;
      EXPECT_EQ(tokens_of_steps(config, 0, step), all) << one;
    }
  }
  EXPECT_EQ(golden.size(), 15u);
}

TEST_F(ConfigTest, TokensOfARunWithACurriculumAreCounted) {
  Config without = load(""), with = load(curriculum("fixed_linear", kRise));
  EXPECT_EQ(tokens_of_steps(without, 10, 30), 20 * 32);
  EXPECT_EQ(tokens_of_steps(with, 0, 100), 6 * 8 + 7 * 16 + 6 * 24 + 81 * 32);
  std::string text = render(estimate(with, 100, 1), with);
  EXPECT_NE(text.find("23.2 k in 100 steps"), std::string::npos) << text;
}

TEST_F(ConfigTest, ACurriculumThatIsOffIsNone) {
  EXPECT_FALSE(load("").train.curriculum);
  EXPECT_FALSE(load("curriculum_learning: {}").train.curriculum);
  EXPECT_FALSE(load("curriculum_learning: {enabled: false, min_difficulty: 8}").train.curriculum);
}

TEST_F(ConfigTest, ACurriculumThatSaysTooLittleOrCannotBeIsRefused) {
  const std::pair<std::string, const char*> cases[] = {
      {"curriculum_learning: {min_difficulty: 8}", "does not say whether it is on"},
      {"curriculum_learning: {enabled: true}", "min_difficulty is missing; an example"},
      {"curriculum_learning: {enabled: true, min_difficulty: 8, max_difficulty: 32}",
       "schedule_type is missing"},
      {curriculum("fixed_linear", "difficulty_step: 8"), "total_curriculum_step is missing"},
      {curriculum("fixed_root", kRise), "root_degree is missing"},
      {curriculum("fixed_root", kRise + ", root_degree: 0"),
       "root_degree is 0; it must be positive"},
      {curriculum("fixed_linear", "total_curriculum_step: 0, difficulty_step: 8"),
       "total_curriculum_step is 0; it must be at least 1"},
      {curriculum("fixed_discrete", kRise), "difficulty is missing"},
      {curriculum("fixed_discrete", "difficulty: [8, 16], max_step: [3, 5]"),
       "2 steps and curriculum_learning.schedule_config.difficulty 2 lengths"},
      {curriculum("fixed_discrete", "difficulty: [8, 16, 12], max_step: [3, 5]"),
       "holds 12 behind 16; it must grow"},
      {curriculum("fixed_discrete", "difficulty: [0, 16], max_step: [3]"),
       "holds 0; it must be positive"},
      {curriculum("custom", kRise), "custom"},
      {"curriculum_learning: {enabled: true, curriculum_type: vocab}", "curriculum_type is"},
      {curriculum("fixed_linear", "total_curriculum_step: 20, difficulty_step: 7") +
           "\nmodel_parallel_size: 2\nsequence_parallel: true",
       "does not divide sequences of 7 tokens"},
      {"curriculum_learning: {enabled: true, min_difficulty: 40, max_difficulty: 32, "
       "schedule_type: fixed_linear, schedule_config: {" +
           kRise + "}}",
       "max_difficulty is 32, less than min_difficulty, 40"},
      {curriculum("fixed_linear", kRise) +
           "\ntrain_impl: dpo\ndataset_impl: pairwise\npack_impl: unpacked\n"
           "pos_train_data_paths: [a]\nneg_train_data_paths: [b]",
       "compares as a whole"}};
  for (const auto& [text, message] : cases) {
    std::string error = fails(text);
    EXPECT_EQ(error.substr(0, 9), "a.yml:1: ") << error;
    EXPECT_NE(error.find(message), std::string::npos) << text << "\n" << error;
  }
}

}  // namespace
}  // namespace neox
