// Preference optimization as a run: it begins from a model, is compared with that at every start,
// and goes on bit for bit.
#include <gtest/gtest.h>

#include <cmath>

#include "run_fixture.h"

namespace neox::testing {
namespace {

// A trained model, and pairs of answers of 40 documents.
class Preferences : public ::testing::Test {
 protected:
  Preferences() {
    EXPECT_EQ(base_.train({"train_iters=10", "hidden_dropout=0", "attention_dropout=0"}).code, 0);
    Tokenizer tokenizer = Tokenizer::from_json(Material::get() / "tokenizer.json");
    for (auto [name, seed] : {std::pair{"chosen", 1}, {"rejected", 2}}) {
      Documents documents;
      for (const std::string& text : TextGenerator(static_cast<uint64_t>(seed)).documents(40, 12))
        documents.push_back(tokenizer.encode(text));
      base_.dir().put(name, documents, tokenizer.vocab_size());
    }
  }
  std::string path(const std::string& name) const { return base_.dir() / name; }
  Strings settings(const std::string& save, const Strings& more = {}) const {
    Strings all = {"data_path=null",
                   "train_impl=dpo",
                   "dataset_impl=pairwise",
                   "pack_impl=unpacked",
                   concat("pos_train_data_paths=[", path("chosen"), "]"),
                   concat("neg_train_data_paths=[", path("rejected"), "]"),
                   concat("pos_valid_data_paths=[", path("chosen"), "]"),
                   concat("neg_valid_data_paths=[", path("rejected"), "]"),
                   "load=" + base_.save(),
                   "finetune=true",
                   "save=" + path(save),
                   "log_dir=" + path(save),
                   "train_iters=8",
                   "checkpoint_factor=4",
                   "eval_iters=2",
                   "hidden_dropout=0",
                   "attention_dropout=0",
                   "warmup=0"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::map<int64_t, double> metric(const std::string& save, const std::string& tag) const {
    std::map<int64_t, double> values;
    RunLog log = read_metrics(read_file(path(save) + "/metrics.jsonl"));
    for (const Point& point : log.series[tag]) values[point.step] = point.value;
    return values;
  }
  Training base_;
};

TEST_F(Preferences, AreLearntAndGoOnBitForBit) {
  Ended whole = base_.train(settings("whole"));
  ASSERT_EQ(whole.code, 0) << whole.err;
  auto losses = metric("whole", "train/lm_loss"), right = metric("whole", "train/reward_acc"),
       chosen = metric("whole", "train/chosen_rewards"), margins = metric("whole", "train/margins");
  EXPECT_NEAR(losses.at(1), std::log(2.0), 1e-6);  // the model that it began as
  EXPECT_LT(losses.at(8), 0.65);
  EXPECT_GE(right.at(8), 0.8);
  EXPECT_NEAR(chosen.at(1), 0, 1e-4);
  EXPECT_GT(margins.at(8), 0.1);
  EXPECT_TRUE(has(whole.err, "| validation loss 0.")) << whole.err;
  EXPECT_TRUE(has(whole.err, " % | margin ")) << whole.err;
  ASSERT_EQ(base_.train(settings("parts", {"exit_interval=4"})).code, 0);
  Ended rest = base_.train(settings("parts"));
  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_TRUE(has(rest.err, "resuming from " + path("parts") + "/global_step4")) << rest.err;
  EXPECT_EQ(difference(tensors_of(path("parts") + "/global_step8"),
                       tensors_of(path("whole") + "/global_step8")),
            "");
}

TEST_F(Preferences, AreTheSameOnRanksOfAPipelineAndOfTensors) {
  ASSERT_EQ(base_.train(settings("one")).code, 0);
  auto want = metric("one", "train/lm_loss"), reward = metric("one", "train/rejected_rewards");
  for (const char* key : {"pipe_parallel_size", "model_parallel_size", "zero_optimization.stage"}) {
    std::string value = has(key, "stage") ? "3" : "2";
    Ended ended = base_.train(settings(key, {concat(key, "=", value)}), {"--spawn", "2"});
    ASSERT_EQ(ended.code, 0) << ended.err;
    for (const auto& [step, loss] : metric(key, "train/lm_loss"))
      EXPECT_NEAR(loss, want.at(step), 1e-4) << key << " " << step;
    EXPECT_NEAR(metric(key, "train/rejected_rewards").at(8), reward.at(8), 1e-3) << key;
  }
}

TEST_F(Preferences, WithoutAReferenceBeginWhereTheModelStands) {
  ASSERT_EQ(base_.train(settings("free", {"dpo_reference_free=true"})).code, 0);
  EXPECT_NE(metric("free", "train/chosen_rewards").at(1), 0);
}

TEST_F(Preferences, NeedTheModelThatTheyBeganAs) {
  Ended none = base_.train(settings("x", {"load=null", "finetune=false"}));
  EXPECT_EQ(none.code, 64);
  EXPECT_TRUE(has(none.err, "train_impl: dpo begins from a trained model")) << none.err;
  Ended own = base_.train(settings("x", {"load=" + path("x")}));
  EXPECT_EQ(own.code, 64);
  EXPECT_TRUE(has(own.err, "give save another directory")) << own.err;
  ASSERT_EQ(base_.train(settings("x", {"exit_interval=4"})).code, 0);
  fs::rename(base_.save(), path("elsewhere"));
  Ended gone = base_.train(settings("x"));
  EXPECT_EQ(gone.code, 64);
  EXPECT_TRUE(has(gone.err, "needs the model that it began as")) << gone.err;
  Ended wider = base_.train(settings("x", {"load=" + path("elsewhere"), "hidden_size=64"}));
  EXPECT_EQ(wider.code, 64);
  EXPECT_TRUE(has(wider.err, "holds another model")) << wider.err;
}

}  // namespace
}  // namespace neox::testing
