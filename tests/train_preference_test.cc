// Answers learnt as a whole, as a run: it begins from a model, is compared with that at every
// start, and goes on bit for bit.
#include <gtest/gtest.h>

#include <cmath>

#include "data/dataset_builder.h"
#include "run_fixture.h"

namespace neox::testing {
namespace {

// A trained model.
class Answers : public ::testing::Test {
 protected:
  Answers() {
    EXPECT_EQ(base_.train({"train_iters=10", "hidden_dropout=0", "attention_dropout=0"}).code, 0);
  }
  // 40 documents.
  Documents documents(uint64_t seed) const {
    Documents documents;
    for (const std::string& text : TextGenerator(seed).documents(40, 12))
      documents.push_back(tokenizer_.encode(text));
    return documents;
  }
  std::string path(const std::string& name) const { return base_.dir() / name; }
  Strings settings(const std::string& save, const Strings& data, const Strings& more) const {
    return data + Strings{"data_path=null",   "pack_impl=unpacked",  "load=" + base_.save(),
                          "finetune=true",    "save=" + path(save),  "log_dir=" + path(save),
                          "train_iters=8",    "checkpoint_factor=4", "eval_iters=2",
                          "hidden_dropout=0", "attention_dropout=0", "warmup=0"} +
           more;
  }
  std::map<int64_t, double> metric(const std::string& save, const std::string& tag) const {
    std::map<int64_t, double> values;
    RunLog log = read_metrics(read_file(path(save) + "/metrics.jsonl"));
    for (const Point& point : log.series[tag]) values[point.step] = point.value;
    return values;
  }
  // Stopped at step 4 and started again; the tensors of both at step 8.
  std::string difference_of_parts(const Strings& whole, const Strings& parts) {
    EXPECT_EQ(base_.train(parts + Strings{"exit_interval=4"}).code, 0);
    Ended rest = base_.train(parts);
    EXPECT_EQ(rest.code, 0) << rest.err;
    EXPECT_TRUE(has(rest.err, "resuming from ")) << rest.err;
    auto tensors = [](const Strings& settings) {
      auto save = std::ranges::find_if(settings, [](auto& s) { return s.starts_with("save="); });
      return tensors_of(save->substr(5) + "/global_step8");
    };
    return difference(tensors(whole), tensors(parts));
  }
  Training base_;
  Tokenizer tokenizer_ = Tokenizer::from_json(Material::get() / "tokenizer.json");
};

// Pairs of answers.
class Preferences : public Answers {
 protected:
  Preferences() {
    for (auto [name, seed] : {std::pair{"chosen", 1}, {"rejected", 2}})
      base_.dir().put(name, documents(static_cast<uint64_t>(seed)), tokenizer_.vocab_size());
  }
  Strings settings(const std::string& save, const Strings& more = {}) const {
    return Answers::settings(save,
                             {"train_impl=dpo", "dataset_impl=pairwise",
                              concat("pos_train_data_paths=[", path("chosen"), "]"),
                              concat("neg_train_data_paths=[", path("rejected"), "]"),
                              concat("pos_valid_data_paths=[", path("chosen"), "]"),
                              concat("neg_valid_data_paths=[", path("rejected"), "]")},
                             more);
  }
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
  EXPECT_EQ(difference_of_parts(settings("whole"), settings("parts")), "");
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

TEST_F(Preferences, StayComparedWithTheModelThatTheyBeganAsWhereAnotherIsSavedBesideIt) {
  ASSERT_EQ(base_.train(settings("whole")).code, 0);
  ASSERT_EQ(base_.train(settings("parts", {"exit_interval=4"})).code, 0);
  Ended base = base_.train({"train_iters=14", "use_checkpoint_lr_scheduler=true"});
  ASSERT_EQ(base.code, 0) << base.err;
  ASSERT_EQ(base_.saved(), (std::vector<int64_t>{10, 14}));
  Ended rest = base_.train(settings("parts"));
  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_TRUE(has(rest.err, "are compared with those of " + base_.step_dir(10))) << rest.err;
  EXPECT_EQ(metric("parts", "train/lm_loss"), metric("whole", "train/lm_loss"));
}

// The order of pairs was made for the steps of the first start.
TEST_F(Preferences, SayWhereTheyComeAgain) {
  ASSERT_EQ(base_.train(settings("short")).code, 0);
  Ended more = base_.train(settings("short", {"train_iters=12", "override_lr_scheduler=true"}));
  EXPECT_EQ(more.code, 0) << more.err;
  EXPECT_TRUE(has(more.err, "when the run began; from step 9 on they come again")) << more.err;
}

TEST_F(Preferences, AreComparedWithNoOtherModelOfThatStep) {
  ASSERT_EQ(base_.train(settings("x", {"exit_interval=4"})).code, 0);
  Training other;
  ASSERT_EQ(other.train({"train_iters=10", "extra_save_iters=[9]", "seed=7"}).code, 0);
  fs::remove_all(base_.step_dir(10));
  fs::rename(other.step_dir(9), base_.step_dir(9));
  Ended gone = base_.train(settings("x"));
  EXPECT_EQ(gone.code, 64);
  EXPECT_TRUE(has(gone.err, "where there is no global_step10")) << gone.err;
  fs::rename(other.step_dir(10), base_.step_dir(10));
  Ended another = base_.train(settings("x"));
  EXPECT_EQ(another.code, 64);
  EXPECT_TRUE(has(another.err, "are not those that the run began with")) << another.err;
}

// A reward model of the pairs.
class Scores : public Preferences {
 protected:
  Strings settings(const std::string& save, const Strings& more = {}) const {
    Strings all = Preferences::settings(save, Strings{"train_iters=12"} + more);
    all[0] = "train_impl=rm";
    return all;
  }
};

TEST_F(Scores, AreLearntFromPairsAndGoOnBitForBit) {
  Ended whole = base_.train(settings("whole"));
  ASSERT_EQ(whole.code, 0) << whole.err;
  auto losses = metric("whole", "train/lm_loss"), right = metric("whole", "train/accuracy"),
       margin = metric("whole", "train/margin"), good = metric("whole", "train/pos_values"),
       bad = metric("whole", "train/neg_values");
  EXPECT_LT(losses.at(12), 0.6);
  EXPECT_GE(right.at(12), 0.8);
  EXPECT_NEAR(good.at(12) - bad.at(12), margin.at(12), 1e-6);
  EXPECT_TRUE(has(whole.err, " | preferred ")) << whole.err;
  EXPECT_EQ(difference_of_parts(settings("whole"), settings("parts")), "");
  EXPECT_FALSE(has(whole.err, "come again")) << whole.err;
  Tensors before = tensors_of(base_.step_dir(10)),
          after = tensors_of(path("whole") + "/global_step8");
  EXPECT_TRUE(before.contains("param/embed_out.weight") &&
              !after.contains("param/embed_out.weight"));
  EXPECT_EQ(after.at("param/score.weight").numel(), 32);
}

TEST_F(Scores, AreTheSameOnAllKindsOfRanksAndGoOnThere) {
  ASSERT_EQ(base_.train(settings("one")).code, 0);
  auto want = metric("one", "train/lm_loss");
  const std::pair<const char*, Strings> layouts[] = {
      {"pipeline", {"pipe_parallel_size=2"}},
      {"tensors", {"model_parallel_size=2"}},
      {"sequences", {"model_parallel_size=2", "sequence_parallel=true"}},
      {"chunks", {"zero_optimization.stage=3"}}};
  for (const auto& [name, layout] : layouts) {
    ASSERT_EQ(base_.train(settings(name, {"exit_interval=4"})).code, 0);
    Ended ended = base_.train(settings(name, layout), {"--spawn", "2"});
    ASSERT_EQ(ended.code, 0) << ended.err;
    for (const auto& [step, loss] : metric(name, "train/lm_loss"))
      EXPECT_NEAR(loss, want.at(step), 1e-4) << name << " " << step;
  }
}

TEST_F(Scores, WriteNoTextsAndGoToTransformers) {
  ASSERT_EQ(base_.train(settings("scores")).code, 0);
  Ended texts = Child({program("neox-generate"), path("scores"), "--prompt", "a"}).end();
  EXPECT_EQ(texts.code, 64);
  EXPECT_TRUE(has(texts.err, "holds a reward model")) << texts.err;
  Ended learnt = base_.train({"load=" + path("scores"), "finetune=true", "save=" + path("x")});
  EXPECT_EQ(learnt.code, 64);
  EXPECT_TRUE(has(learnt.err, "holds another model")) << learnt.err;
  auto convert = [&](const std::string& to, const std::string& from = "scores") {
    return Child({program("neox-convert"), path(from), path(to), "--to", to}).end();
  };
  Ended hf = convert("hf");
  ASSERT_EQ(hf.code, 0) << hf.err;
  auto config = nlohmann::json::parse(read_file(path("hf") + "/config.json"));
  EXPECT_EQ(config.at("architectures").at(0), "GPTNeoXForSequenceClassification");
  EXPECT_EQ(config.at("id2label").size(), 1u);
  EXPECT_TRUE(has(hf.out, "score.weight")) << hf.out;
  Ended back = convert("neox.cpp", "hf");
  EXPECT_TRUE(has(back.err, "reward models are written, and not read")) << back.err;
  Ended other = convert("neox");
  EXPECT_EQ(other.code, 64);
  EXPECT_TRUE(has(other.err, "give --to hf")) << other.err;
}

// Answers with rewards of 1, and the tokens of others from back to front with -1.
class Rewards : public Answers {
 protected:
  Rewards() {
    Documents all = documents(1), bad = documents(2), rewards(40, {1});
    for (auto& answer : bad) std::ranges::reverse(answer);
    all.insert(all.end(), bad.begin(), bad.end());
    rewards.insert(rewards.end(), 40, {-1});
    base_.dir().put("answers", all, tokenizer_.vocab_size());
    DatasetBuilder builder(path("rewards"), {.type = TokenType::kInt32});
    std::vector<int32_t> numbers;
    for (const auto& reward : rewards) numbers.push_back(reward.at(0));
    builder.add_documents(std::as_bytes(std::span(numbers)), std::vector<int64_t>(80, 1));
    builder.finish();
  }
  Strings settings(const std::string& save, const Strings& more = {}) const {
    return Answers::settings(
        save,
        {"train_impl=kto", "kto_beta=0.5", "train_batch_size=6", "train_micro_batch_size_per_gpu=2",
         concat("train_data_paths=[", path("answers"), "]"),
         concat("train_reward_data_paths=[", path("rewards"), "]"),
         concat("valid_data_paths=[", path("answers"), "]"),
         concat("valid_reward_data_paths=[", path("rewards"), "]")},
        more);
  }
};

TEST_F(Rewards, AreLearntAndGoOnBitForBit) {
  Ended whole = base_.train(settings("whole", {"train_iters=40"}));
  ASSERT_EQ(whole.code, 0) << whole.err;
  auto losses = metric("whole", "train/lm_loss"), right = metric("whole", "train/reward_acc"),
       good = metric("whole", "train/pos_policy_logp"),
       good_before = metric("whole", "train/pos_ref_logp"),
       bad = metric("whole", "train/neg_policy_logp"),
       bad_before = metric("whole", "train/neg_ref_logp");
  EXPECT_NEAR(losses.at(1), 0.5, 1e-6);  // the model that it began as
  EXPECT_NEAR(metric("whole", "train/kl").at(1), 0, 1e-4);
  double loss = 0, share = 0;
  for (int64_t step = 36; step <= 40; ++step)
    loss += losses.at(step) / 5, share += right.at(step) / 5;
  EXPECT_LT(loss, 0.45);
  EXPECT_GT(share, 0.6);
  EXPECT_GT(good.at(40) - good_before.at(40), bad.at(40) - bad_before.at(40));
  EXPECT_TRUE(has(whole.err, "| validation loss 0.")) << whole.err;
  EXPECT_TRUE(has(whole.err, " | as rewarded ")) << whole.err;
  EXPECT_EQ(difference_of_parts(settings("whole"), settings("parts", {"train_iters=40"})), "");
}

// A batch of 6 in micro-batches of 2, whatever the ranks.
TEST_F(Rewards, AreTheSameOnAllKindsOfRanks) {
  ASSERT_EQ(base_.train(settings("one")).code, 0);
  auto want = metric("one", "train/lm_loss"), kl = metric("one", "train/kl");
  const std::pair<const char*, Strings> layouts[] = {
      {"pipeline", {"pipe_parallel_size=2"}},
      {"tensors", {"model_parallel_size=2", "sequence_parallel=true"}},
      {"chunks", {"zero_optimization.stage=3"}},
      {"data", {}}};
  for (const auto& [name, layout] : layouts) {
    Ended ended = base_.train(settings(name, layout), {"--spawn", "2"});
    ASSERT_EQ(ended.code, 0) << ended.err;
    for (const auto& [step, loss] : metric(name, "train/lm_loss"))
      EXPECT_NEAR(loss, want.at(step), 1e-4) << name << " " << step;
    EXPECT_NEAR(metric(name, "train/kl").at(8), kl.at(8), 1e-3) << name;
  }
}

TEST_F(Rewards, NeedTheModelThatTheyBeganAs) {
  Ended none = base_.train(settings("x", {"load=null", "finetune=false"}));
  EXPECT_EQ(none.code, 64);
  EXPECT_TRUE(has(none.err, "train_impl: kto begins from a trained model")) << none.err;
  EXPECT_FALSE(has(none.err, "dpo_reference_free")) << none.err;
}

}  // namespace
}  // namespace neox::testing
