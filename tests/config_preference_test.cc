// Answers that are learnt as a whole: train_impl other than normal.
#include "config/architecture.h"
#include "config_fixture.h"

namespace neox {
namespace {

// A configuration of pairs, and what is changed in it.
std::string pairs(const std::string& more) {
  return more +
         "\ntrain_impl: dpo\ndataset_impl: pairwise\npack_impl: unpacked\n"
         "pos_train_data_paths: [a, b]\nneg_train_data_paths: [c, d]\n";
}

TEST_F(ConfigTest, PairsOfAnswersHaveTheirOwnKeys) {
  auto c =
      load(pairs("dpo_beta: 0.01\ntrain_data_weights: [1, 3]\npos_train_label_data_paths: [e, f]\n"
                 "neg_train_label_data_paths: [g, h]"));
  ASSERT_TRUE(c.train.preference);
  EXPECT_EQ(c.train.preference->beta, 0.01);
  EXPECT_FALSE(c.train.preference->reference_free);
  EXPECT_TRUE(c.data.pairs);
  EXPECT_EQ(c.data.train.paths, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(c.data.train.rejected, (std::vector<std::string>{"c", "d"}));
  EXPECT_EQ(c.data.train.rejected_labels, (std::vector<std::string>{"g", "h"}));
  std::string named;
  for (const NamedDataset& d : datasets_of(c.data)) named += concat(d.key, ":", d.prefix, " ");
  EXPECT_EQ(named,
            "pos_train_data_paths:a pos_train_data_paths:b pos_train_label_data_paths:e "
            "pos_train_label_data_paths:f neg_train_data_paths:c neg_train_data_paths:d "
            "neg_train_label_data_paths:g neg_train_label_data_paths:h ");
  EXPECT_FALSE(load("dpo_beta: 0.01").train.preference);
}

TEST_F(ConfigTest, PairsThatDoNotFitAreRefused) {
  const std::pair<std::string, const char*> cases[] = {
      {"train_impl: dpo", "needs pairs of answers: dataset_impl: pairwise"},
      {"dataset_impl: pairwise\npack_impl: unpacked", "train_impl is normal (default)"},
      {"pos_train_data_paths: [x]", "but dataset_impl is gpt2 (default); set dataset_impl"},
      {pairs("dpo_beta: 0"), "dpo_beta is 0; it must be positive"},
      {pairs("moe_router_type: sinkhorn\nmoe_num_experts: 4"), "give moe_router_type: topk"},
      {pairs("train_data_paths: [x]"), "set pos_train_data_paths and neg_train_data_paths"},
      {pairs("data_path: x"), "data_path has no pairs"},
      {pairs("neg_valid_data_paths: [x]"), "names 1 data set for the 0 of pos_valid_data_paths"},
      {pairs("neg_train_label_data_paths: [x]"), "names 1 data set for the 2 of neg_train_data"}};
  for (const auto& [text, message] : cases) {
    std::string error = fails(text);
    EXPECT_TRUE(starts(error, "a.yml:1: ")) << error;
    EXPECT_TRUE(has(error, message)) << error;
  }
  EXPECT_TRUE(has(fails(pairs("pos_train_label_data_paths: [e, f]")),
                  "labels are given for the chosen answers of train alone"));
  EXPECT_TRUE(has(fails("train_impl: dpo\ndataset_impl: pairwise\npos_train_data_paths: [a]\n"
                        "neg_train_data_paths: [c]"),
                  "set pack_impl: unpacked"));
}

TEST_F(ConfigTest, ARewardModelHasAHeadOfItsOwn) {
  std::string text = pairs("z_loss: 0.25\nno_weight_tying: false");
  text.replace(text.find("dpo"), 3, "rm");
  Config c = load(text);
  ASSERT_TRUE(c.train.preference);
  EXPECT_EQ(c.train.preference->z_loss, 0.25);
  EXPECT_FALSE(c.train.preference->has_reference());
  EXPECT_TRUE(c.model.scores);
  EXPECT_FALSE(c.model.tied_embedding);
  ModelConfig writes = c.model;
  writes.scores = false;
  writes.vocab = c.model.vocab = 64;
  EXPECT_EQ(num_parameters(writes) - num_parameters(c.model), 63 * c.model.hidden);
  writes.tied_embedding = true;
  EXPECT_FALSE(has_architecture(c.model, architecture(writes)));
  EXPECT_TRUE(has_architecture(c.model, architecture(writes), &writes));
  EXPECT_FALSE(has_architecture(writes, architecture(c.model), &c.model));
  EXPECT_TRUE(has(fails(text + "sample_prompts: [a]"), "rates texts and writes none"));
  EXPECT_TRUE(has(fails(text + "z_loss: -1"), "z_loss"));
  EXPECT_TRUE(has(fails("train_impl: rm"), "train_impl: rm needs pairs of answers"));
}

// A configuration of answers with rewards, and what is changed in it.
std::string answers(const std::string& more) {
  return more +
         "\ntrain_impl: kto\npack_impl: unpacked\ntrain_data_paths: [a, b]\n"
         "train_micro_batch_size_per_gpu: 4\n"
         "train_label_data_paths: [c, d]\ntrain_reward_data_paths: [e, f]\n";
}

TEST_F(ConfigTest, AnswersHaveRewards) {
  Config c = load(answers("kto_undesirable_weight: 1.5\nkto_beta: 0.2"));
  ASSERT_TRUE(c.train.preference);
  EXPECT_EQ(c.train.preference->kind, PreferenceConfig::Kind::kKto);
  EXPECT_EQ(c.train.preference->beta, 0.2);
  EXPECT_EQ(c.train.preference->desirable_weight, 1);
  EXPECT_EQ(c.train.preference->undesirable_weight, 1.5);
  EXPECT_EQ(c.data.train.rewards, (std::vector<std::string>{"e", "f"}));
  EXPECT_EQ(datasets_of(c.data).back().key, "train_reward_data_paths");
  EXPECT_EQ(rows_of_sample(c), 1);
}

TEST_F(ConfigTest, AnswersWithRewardsThatDoNotFitAreRefused) {
  const std::pair<std::string, const char*> cases[] = {
      {answers("kto_beta: 0"), "kto_beta is 0; it must be positive"},
      {answers("kto_desirable_weight: -1"), "must not be negative"},
      {answers("kto_desirable_weight: 0\nkto_undesirable_weight: 0"), "nothing is learnt"},
      {answers("valid_reward_data_paths: [x]"), "1 data set for the 0 of valid_data_paths"},
      {"train_reward_data_paths: [x]\ntrain_data_paths: [x]", "train_impl is normal (default)"},
      {"train_impl: kto\ntrain_data_paths: [a]", "train_reward_data_paths beside train_data_paths"},
      {"train_impl: kto\ndata_path: a", "needs answers and their rewards"},
      {"train_impl: kto\ndataset_impl: pairwise\npack_impl: unpacked", "train_impl is kto"},
      {"train_impl: kto\ndataset_impl: pairwise\ntrain_data_paths: [a]\n"
       "train_reward_data_paths: [b]",
       "dataset_impl is pairwise, from which"},
      {answers("train_epochs: 1\ntrain_batch_size: 4"), "give train_iters instead"}};
  for (const auto& [text, message] : cases) EXPECT_TRUE(has(fails(text), message)) << fails(text);
  EXPECT_TRUE(has(fails(answers("valid_data_paths: [x]\nvalid_label_data_paths: [y]")),
                  "valid_reward_data_paths beside valid"));
  const std::string some = "train_impl: kto\ntrain_data_paths: [a]\ntrain_reward_data_paths: [b]\n";
  EXPECT_TRUE(has(fails(some), "set pack_impl: unpacked"));
  EXPECT_TRUE(has(fails(some + "pack_impl: unpacked"),
                  "give their number, train_micro_batch_size_per_gpu"));
  EXPECT_TRUE(has(fails(some + "pack_impl: unpacked\ntrain_micro_batch_size_per_gpu: 1"),
                  "from others of its micro-batch; give 2 or more"));
}

}  // namespace
}  // namespace neox
