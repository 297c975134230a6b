// Pairs of answers, in the order of GPT-NeoX's pairwise_dataset.py, and rewards of answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "data/numpy_random.h"
#include "data/sampler.h"
#include "data_files.h"

namespace neox {
namespace {

using ::testing::AllOf;
using testing::counting;
using testing::Directory;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kTokens = 8;

class SamplerOfPairs : public ::testing::Test {
 protected:
  SamplerOfPairs() {
    config_.split = "1";
    config_.packing = Packing::kUnpacked;
    config_.pairs = true;
    config_.train.paths = {dir_.put("chosen", counting(kChosen))};
    config_.train.rejected = {dir_.put("rejected", counting(kRejected))};
  }
  Sampler open(const SampleCounts& counts) const {
    return Sampler(config_, kTokens, /*vocab=*/100, /*end_of_document=*/7, counts);
  }
  // GPT-NeoX's rule (pairwise_dataset.py, unpacked): the document of sample `id` of so many.
  static int64_t document(int64_t id, uint32_t samples, const std::vector<int32_t>& usable) {
    std::vector<uint32_t> order(samples);
    for (uint32_t i = 0; i < samples; ++i) order[i] = i % static_cast<uint32_t>(kChosen.size());
    NumpyRandom random(1234);
    random.shuffle(std::span(order), {});
    return usable[order[static_cast<size_t>(id)] % usable.size()];
  }
  inline static const std::vector<int32_t> kChosen = {3, 20, 4, 5, 2}, kRejected = {6, 2, 4, 20, 7};
  Directory dir_;
  DataConfig config_;
};

TEST_F(SamplerOfPairs, ComeInTheOrderOfGptNeox) {
  constexpr uint32_t kSamples = 23;
  for (bool chopped : {true, false}) {
    config_.allow_chopped = chopped;
    Sampler sampler = open({.train = kSamples});
    std::vector<int32_t> usable = chopped ? std::vector{0, 1, 2, 3, 4} : std::vector{0, 2, 4};
    for (int64_t id = 0; id + 1 < kSamples; ++id)
      for (auto [answer, name] :
           {std::pair{Answer::kChosen, "chosen"}, {Answer::kRejected, "rejected"}}) {
        auto pieces = sampler.pieces(Split::kTrain, id, answer);
        EXPECT_EQ(pieces.at(0).sequence, document(id, kSamples * 1005 / 1000 + 1, usable)) << id;
        EXPECT_EQ(pieces.at(0).prefix, dir_ / name);
        EXPECT_EQ(pieces.at(0).offset, 0);
      }
  }
}

TEST_F(SamplerOfPairs, HaveTheirOwnLengths) {
  Sampler sampler = open({.train = 5});
  std::vector<int64_t> tokens(kTokens + 1);
  std::vector<float> weights(kTokens);
  for (int64_t id = 0; id < 4; ++id)
    for (Answer answer : {Answer::kChosen, Answer::kRejected}) {
      sampler.get(Split::kTrain, id, tokens, weights, answer);
      auto piece = sampler.pieces(Split::kTrain, id, answer).at(0);
      const auto& lengths = answer == Answer::kChosen ? kChosen : kRejected;
      int32_t length = lengths[static_cast<size_t>(piece.sequence)];
      EXPECT_EQ(piece.tokens, std::min<int64_t>(length, kTokens + 1));
      // And the first token of the next document.
      EXPECT_EQ(std::count(weights.begin(), weights.end(), 1.0F),
                std::min<int64_t>(length, kTokens));
    }
}

TEST_F(SamplerOfPairs, AreAsManyOnBothSides) {
  config_.train.rejected = {dir_.put("few", counting({6, 2, 4}))};
  EXPECT_THAT(error_of([&] { open({.train = 5}); }),
              AllOf(StartsWith("74: " + (dir_ / "few.idx")), HasSubstr("has 3 sequences"),
                    HasSubstr("has 5")));
}

TEST_F(SamplerOfPairs, FingerprintCoversTheRejected) {
  std::string before = open({.train = 5}).fingerprint();
  config_.train.rejected = {dir_.put("other", counting({6, 2, 4, 19, 7}))};
  EXPECT_NE(open({.train = 5}).fingerprint(), before);
}

// A dataset of one number for each document.
class SamplerOfRewards : public SamplerOfPairs {
 protected:
  SamplerOfRewards() {
    config_.pairs = false;
    config_.train.rejected = {};
    config_.train.rewards = {dir_.put("rewards", {{1}, {2, 8}, {3}, {4}, {5}})};
    config_.train.paths.push_back(dir_.put("more", counting({5, 5})));
    config_.train.rewards.push_back(dir_.put("more_rewards", {{6}, {7}}));
  }
};

TEST_F(SamplerOfRewards, HaveThatOfTheirDocument) {
  Sampler sampler = open({.train = 12});
  EXPECT_TRUE(sampler.has_rewards(Split::kTrain));
  EXPECT_FALSE(sampler.has_rewards(Split::kValid));
  for (int64_t id = 0; id < 12; ++id) {
    auto piece = sampler.pieces(Split::kTrain, id).at(0);
    EXPECT_EQ(sampler.reward(Split::kTrain, id),
              static_cast<double>(piece.sequence + (piece.prefix == dir_ / "more" ? 6 : 1)));
  }
}

TEST_F(SamplerOfRewards, HaveOneEach) {
  config_.train.rewards[1] = dir_.put("few", {{6}});
  EXPECT_THAT(error_of([&] { open({.train = 5}); }),
              AllOf(StartsWith("74: " + (dir_ / "few.idx")), HasSubstr("has 1 rewards"),
                    HasSubstr("has 2")));
  config_.train.rewards[1] = config_.train.paths[1];  // tokens, or what was written of labels
  EXPECT_THAT(error_of([&] { open({.train = 5}); }),
              AllOf(StartsWith("74: " + (dir_ / "more.idx")), HasSubstr("not rewards")));
}

}  // namespace
}  // namespace neox
