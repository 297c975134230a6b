#include "data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "data/sample_index.h"
#include "data_files.h"

namespace neox {
namespace {

using ::testing::AllOf;
using testing::counting;
using testing::Directory;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr int64_t kSeq = 8;
const std::vector<int32_t> kLengths = {5, 3, 8, 2, 7, 4, 6, 1, 9, 5};

struct Sample {
  std::vector<int64_t> tokens = std::vector<int64_t>(kSeq + 1);
  std::vector<float> weights = std::vector<float>(kSeq);
};

Sample get(const Sampler& sampler, int64_t id, Split split = Split::kTrain) {
  Sample sample;
  sampler.get(split, id, sample.tokens, sample.weights);
  return sample;
}

class SamplerOf : public ::testing::Test {
 protected:
  SamplerOf() {
    config_.data_path = dir_.put("d", counting(kLengths));
    config_.split = "1";
  }
  Sampler open(const SampleCounts& counts, int64_t vocab = 100) const {
    return Sampler(config_, kSeq, vocab, /*end_of_document=*/7, counts);
  }
  std::string refusal(const SampleCounts& counts) const {
    return error_of([&] { open(counts); });
  }
  Directory dir_;
  DataConfig config_;
};

// The golden order of one epoch: documents 7 2 9 1 0 8 4 5 6 3, samples 5 0 3 4 2 1.
TEST_F(SamplerOf, JoinsDocumentsIntoSamples) {
  Sampler sampler = open({.train = 5});
  // Sample 5 is positions (7, 2) to (9, 0): documents 5, 6 and 3.
  EXPECT_THAT(get(sampler, 0).tokens, ElementsAre(27, 28, 29, 30, 31, 32, 33, 34, 16));
  // Sample 0 is documents 7 and 2.
  EXPECT_THAT(get(sampler, 1).tokens, ElementsAre(35, 8, 9, 10, 11, 12, 13, 14, 15));
}

TEST_F(SamplerOf, RepeatsAfterAllSamplesButTheLast) {
  Sampler sampler = open({.train = 5});
  EXPECT_EQ(sampler.size(Split::kTrain), 5);
  EXPECT_EQ(get(sampler, 5).tokens, get(sampler, 0).tokens);
  EXPECT_EQ(get(sampler, 5'000'000'003).tokens, get(sampler, 3).tokens);
}

TEST_F(SamplerOf, HoldsOneSampleWhereTheIndexDoes) {
  config_.data_path = dir_.put("tiny", counting({9}));
  EXPECT_EQ(open({.train = 1}).size(Split::kTrain), 1);
}

TEST_F(SamplerOf, CutsTheDatasetByTheSplit) {
  config_.split = "6,2,2";
  Sampler sampler = open({.train = 20, .valid = 20, .test = 20});
  auto in = [&](Split split) {
    std::set<int64_t> tokens;
    for (int64_t i = 0; i < 20; ++i)
      for (int64_t token : get(sampler, i, split).tokens) tokens.insert(token);
    return std::pair(*tokens.begin(), *tokens.rbegin());
  };
  EXPECT_EQ(in(Split::kTrain), std::pair(0l, 28l));
  EXPECT_EQ(in(Split::kValid), std::pair(29l, 35l));
  EXPECT_EQ(in(Split::kTest), std::pair(36l, 49l));
}

TEST_F(SamplerOf, TakesADatasetForEachSplit) {
  config_.train_paths = {std::exchange(config_.data_path, "")};
  config_.valid_paths = {dir_.put("v", {{50, 51, 52}})};
  Sampler sampler = open({.train = 3, .valid = 2, .test = 1});
  EXPECT_LT(get(sampler, 0).tokens[0], 50);
  EXPECT_THAT(get(sampler, 0, Split::kValid).tokens, Each(::testing::Ge(50)));
  EXPECT_FALSE(sampler.has(Split::kTest));
  EXPECT_THAT(sampler.warnings(), ElementsAre(HasSubstr("test: no dataset is named for it")));
}

// 6 samples are one epoch; 6 * 1.005 are 7, which need a second.
TEST_F(SamplerOf, AsksForHalfAPercentMoreOfAPath) {
  EXPECT_EQ(open({.train = 6}).size(Split::kTrain), 5);
  config_.train_paths = {std::exchange(config_.data_path, "")};
  EXPECT_EQ(open({.train = 6}).size(Split::kTrain), 11);
}

TEST_F(SamplerOf, MasksTheLossAfterEndsOfDocuments) {
  Sampler plain = open({.train = 5});
  EXPECT_THAT(get(plain, 0).weights, Each(1.0f));
  config_.eod_mask_loss = true;
  Sampler masked = open({.train = 5});
  int zeros = 0;
  for (int64_t id = 0; id < 5; ++id) {
    Sample sample = get(masked, id);
    for (size_t t = 0; t < kSeq; ++t) {
      EXPECT_EQ(sample.weights[t], sample.tokens[t] == 7 ? 0.0f : 1.0f);
      zeros += sample.weights[t] == 0;
    }
  }
  EXPECT_EQ(zeros, 1);
}

TEST_F(SamplerOf, NamesATokenOutsideTheVocabulary) {
  Sampler sampler = open({.train = 5}, 34);
  EXPECT_THAT(error_of([&] { get(sampler, 0); }),
              AllOf(StartsWith("74: " + (dir_ / "d.bin")), HasSubstr("token id 34")));
}

TEST_F(SamplerOf, SaysWhatASplitLacks) {
  config_.split = "0,1,1";
  EXPECT_THAT(refusal({.train = 1}), AllOf(StartsWith("64: train"), HasSubstr("split '0,1,1'"),
                                           HasSubstr("no documents")));
  config_.split = "1,0,0";
  Sampler sampler = open({.train = 1, .valid = 1});
  EXPECT_FALSE(sampler.has(Split::kValid));
  EXPECT_THAT(sampler.warnings(), ElementsAre(HasSubstr("valid")));
  EXPECT_THAT(error_of([&] { get(sampler, 0, Split::kValid); }), HasSubstr("valid has no samples"));
}

TEST_F(SamplerOf, RefusesWhatItCannotDo) {
  config_.train_paths = {dir_ / "d", dir_ / "e"};
  EXPECT_THAT(refusal({.train = 1}), HasSubstr("exclude each other"));
  config_.data_path.clear();
  EXPECT_THAT(refusal({.train = 1}), AllOf(StartsWith("64: "), HasSubstr("blending")));
  config_.train_paths.clear();
  EXPECT_THAT(refusal({.train = 1}), HasSubstr("no data"));
  config_.data_path = dir_ / "nothing";
  EXPECT_THAT(refusal({.train = 1}), StartsWith("74: no dataset"));
}

TEST_F(SamplerOf, FingerprintTellsOrdersApartButNotPlaces) {
  auto print = [&](const SampleCounts& counts) { return open(counts).fingerprint(); };
  std::string one = print({.train = 5});
  EXPECT_EQ(one.size(), 32u);
  config_.data_path = dir_.put("elsewhere/e", counting(kLengths));
  EXPECT_EQ(print({.train = 5}), one);
  std::set<std::string> prints = {one, print({.train = 6}), print({.train = 5, .valid = 1})};
  config_.seed = 1;
  prints.insert(print({.train = 5}));
  config_.seed = 1234;
  config_.split = "9,1";
  prints.insert(print({.train = 5}));
  config_.split = "1";
  config_.data_path = dir_.put("e", counting({5, 3, 8, 2, 7, 4, 6, 1, 5, 9}));
  prints.insert(print({.train = 5}));
  EXPECT_EQ(prints.size(), 5u);
}

}  // namespace
}  // namespace neox
