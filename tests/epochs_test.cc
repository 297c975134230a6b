// train_epochs: the length of a run in passes over its data, from the key to the run.
#include <gmock/gmock.h>

#include <set>

#include "data/step_samples.h"
#include "run_fixture.h"

namespace neox::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Epochs : public ::testing::Test {
 protected:
  Config load(const Strings& settings) const {
    return load_config({.files = {run_.dir() / "tiny.yml"},
                        .overrides = settings,
                        .samples_of_epoch = Sampler::samples_of_epoch});
  }
  std::string refusal(const Strings& settings) const {
    return error_of([&] { load(settings); });
  }
  Sampler sampler(const Config& config) const {
    return Sampler(config.data, config.model.seq, IndexedDataset::kAnyToken, -1,
                   sample_counts(config.train, BatchSchedule(*config.batch.global), 0));
  }
  // A data set of tokens that are all different.
  std::string data(const std::string& name, const std::vector<int32_t>& lengths) const {
    return run_.dir().put(name, counting(lengths));
  }
  Training run_;
};

TEST_F(Epochs, AreStepsOfAllSamples) {
  std::string text = data("d", {5, 3, 8, 2, 7, 4, 6, 1, 9, 5});
  Strings settings = {"train_iters=null",  "train_epochs=3", "seq_length=8",
                      "data_path=" + text, "split=\"1\"",    "train_batch_size=2"};
  Config config = load(settings);
  // 50 tokens are 6 samples, of which GPT-NeoX never uses the last.
  EXPECT_EQ(config.train.iters, 3 * 5 / 2);
  EXPECT_EQ(config.where("train_iters"), "derived from train_epochs");
  EXPECT_EQ(config.schedule.decay_iters, 7);
  Sampler order = sampler(config);
  EXPECT_EQ(order.size(Split::kTrain), 5);
  std::set<std::vector<int64_t>> seen;
  for (int64_t id = 0; id < 5; ++id) {
    std::vector<int64_t> tokens(9), again(9);
    std::vector<float> weights(8);
    order.get(Split::kTrain, id, tokens, weights);
    order.get(Split::kTrain, id + 5, again, weights);
    EXPECT_EQ(tokens, again);
    seen.insert(tokens);
  }
  EXPECT_EQ(seen.size(), 5u);
}

TEST_F(Epochs, OfSeveralDataSetsAreTheSumOfTheirs) {
  std::string a = data("a", {9, 30}), b = data("b", {50, 11, 4});
  Strings settings = {"train_iters=null",
                      "train_epochs=1",
                      "seq_length=8",
                      "data_path=null",
                      "train_data_paths=[" + a + ", " + b + "]",
                      "train_data_weights=[1.0, 1.0]",
                      "train_batch_size=1"};
  Config config = load(settings);
  EXPECT_EQ(config.train.iters, (38 / 8 - 1) + (64 / 8 - 1));
  EXPECT_EQ(sampler(config).size(Split::kTrain), config.train.iters);
  for (const char* weighed : {"train_data_weights=[1, 2]", "weight_by_num_documents=true"}) {
    settings[5] = weighed;
    EXPECT_THAT(refusal(settings), HasSubstr("without weights"));
  }
}

TEST_F(Epochs, AreCountedOnlyWhereTheDataAreAtHand) {
  Strings settings = {"train_iters=null", "train_epochs=2"};
  auto uncounted = [&](const Strings& more) {
    return load_config({.files = {run_.dir() / "tiny.yml"}, .overrides = settings + more});
  };
  EXPECT_EQ(uncounted({}).train.iters, 0);
  Strings wsd = {"lr_decay_style=WSD", "lr_wsd_decay_iters=3"};
  EXPECT_EQ(uncounted(wsd).train.iters, 0);
  Config counted = load(settings);
  EXPECT_EQ(load_config({.texts = {{"stored", counted.text()}}}).train.iters, counted.train.iters);
}

TEST_F(Epochs, ThatCannotBeAreRefused) {
  Strings epochs = {"train_iters=null", "train_epochs=2"};
  int64_t iters = load(epochs).train.iters;
  EXPECT_EQ(load({"train_epochs=2", concat("train_iters=", iters)}).train.iters, iters);
  EXPECT_THAT(refusal({"train_epochs=2", "train_iters=7"}),
              AllOf(HasSubstr("train_iters is 7, but train_epochs 2 (--set) are "),
                    HasSubstr(concat(iters, " steps")), HasSubstr("--set train_iters=null")));
  EXPECT_THAT(refusal(epochs + Strings{"data_order=megatron"}), HasSubstr("remove data_order"));
  EXPECT_THAT(refusal(epochs + Strings{"pack_impl=unpacked"}), HasSubstr("packed samples"));
  EXPECT_THAT(refusal(epochs + Strings{"train_batch_size=1000000"}),
              HasSubstr("are fewer than a batch, train_batch_size 1000000"));
  EXPECT_THAT(
      refusal(epochs + Strings{"train_batch_size=null", "train_micro_batch_size_per_gpu=5"}),
      HasSubstr("needs train_batch_size"));
  EXPECT_THAT(refusal({"train_iters=null", "train_epochs=0"}), HasSubstr("at least 1"));
  EXPECT_THAT(refusal(epochs + Strings{"data_path=" + (run_.dir() / "absent")}),
              HasSubstr("absent"));
}

// Its end is counted in steps of the batch that it began with.
TEST_F(Epochs, OfARunThatGoesOnKeepTheirBatch) {
  Strings settings = {"train_iters=null", "train_epochs=2", "lr_decay_iters=9"};
  ASSERT_EQ(run_.train(settings + Strings{"train_batch_size=40", "exit_interval=2"}).code, 0);
  Ended ended = run_.train(settings + Strings{"train_batch_size=80"});
  EXPECT_EQ(ended.code, 64);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("train_batch_size is 80, but the run of"),
                               HasSubstr("is counted in steps of it")));
}

TEST_F(Epochs, OfARunThatWasInterruptedAreThoseOfOneThatWasNot) {
  Strings settings = {"train_iters=null", "train_epochs=2", "train_batch_size=40", "eval_iters=1",
                      "eval_interval=5"};
  int64_t iters = load(settings).train.iters;
  ASSERT_GT(iters, 10);
  Ended first = run_.train(settings + Strings{"exit_interval=10"});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr(concat("train_epochs 2: ", iters, " steps, ")));
  Ended second = run_.train(settings);
  ASSERT_EQ(second.code, 0) << second.err;
  Training straight;
  ASSERT_EQ(straight.train(settings).code, 0);
  EXPECT_EQ(difference(run_.tensors(iters), straight.tensors(iters)), "");
  Ended other = run_.train(
      {concat("train_iters=", iters + 1), "train_batch_size=40", "override_lr_scheduler=true"});
  EXPECT_EQ(other.code, 64);
  EXPECT_THAT(other.err, HasSubstr("is not that with which"));  // another order of samples
}

}  // namespace
}  // namespace neox::testing
