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
using ::testing::DoubleEq;
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

TEST_F(SamplerOf, KnowsHowOftenTokensAreRead) {
  EXPECT_THAT(open({.train = 5}).passes(Split::kTrain), ElementsAre(DoubleEq(5 * 8 / 50.0)));
  config_.split = "6,2,2";
  EXPECT_THAT(open({.train = 20}).passes(Split::kTrain), ElementsAre(DoubleEq(20 * 8 / 29.0)));
}

TEST_F(SamplerOf, TakesADatasetForEachSplit) {
  config_.train.paths = {std::exchange(config_.data_path, "")};
  config_.valid.paths = {dir_.put("v", {{50, 51, 52}})};
  Sampler sampler = open({.train = 3, .valid = 2, .test = 1});
  EXPECT_LT(get(sampler, 0).tokens[0], 50);
  EXPECT_THAT(get(sampler, 0, Split::kValid).tokens, Each(::testing::Ge(50)));
  EXPECT_FALSE(sampler.has(Split::kTest));
  EXPECT_THAT(sampler.warnings(), ElementsAre(HasSubstr("test: no dataset is named for it")));
}

// 6 samples are one epoch; 6 * 1.005 are 7, which need a second.
TEST_F(SamplerOf, AsksForHalfAPercentMoreOfAPath) {
  EXPECT_EQ(open({.train = 6}).size(Split::kTrain), 5);
  config_.train.paths = {std::exchange(config_.data_path, "")};
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
  config_.train.paths = {dir_ / "d", dir_ / "e"};
  EXPECT_THAT(refusal({.train = 1}), HasSubstr("exclude each other"));
  config_.data_path.clear();
  config_.train.paths.clear();
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
  EXPECT_EQ(print({.train = 5, .valid = 1, .test = 7}), one);  // evaluation is another matter
  std::set<std::string> prints = {one, print({.train = 6})};
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

TEST_F(SamplerOf, EachSplitHasAFingerprint) {
  config_.train.paths = {std::exchange(config_.data_path, "")};
  config_.valid.paths = {dir_.put("v", counting({9, 9}))};
  auto print = [&](Split split) {
    return open({.train = 5, .valid = 1, .test = 1}).fingerprint(split);
  };
  std::string train = print(Split::kTrain), valid = print(Split::kValid);
  EXPECT_EQ(print(Split::kTest), "");
  config_.valid.paths = {dir_.put("w", counting({9, 8}))};
  EXPECT_EQ(print(Split::kTrain), train);
  EXPECT_NE(print(Split::kValid), valid);
  config_.valid.paths = {dir_.put("none", testing::Documents{})};  // left out
  EXPECT_EQ(print(Split::kValid), "");
}

class SamplerOfLists : public SamplerOf {
 protected:
  SamplerOfLists() {
    config_.data_path.clear();
    config_.train.paths = {dir_.put("a", counting(kLengths)), dir_.put("b", {{60, 61}, {62}}),
                           dir_.put("c", {{70, 71, 72, 73, 74, 75, 76, 77, 78, 79}})};
    config_.train.weights = {5, 3, 2};
  }
  // Which dataset each of the first samples is of, by its prefix's last letter.
  std::string datasets(const Sampler& sampler, int64_t count) const {
    std::string letters;
    for (int64_t id = 0; id < count; ++id)
      letters += sampler.pieces(Split::kTrain, id).front().prefix.back();
    return letters;
  }
};

TEST_F(SamplerOfLists, BlendsByWeight) {
  for (DataOrder order : {DataOrder::kNeox, DataOrder::kMegatron, DataOrder::kMegatronCore}) {
    config_.order = order;
    EXPECT_EQ(datasets(open({.train = 20}), 20), "abcabacabaabcabacaba");
  }
}

TEST_F(SamplerOfLists, KnowsHowOftenEachIsRead) {
  EXPECT_THAT(open({.train = 20}).passes(Split::kTrain),
              ElementsAre(DoubleEq(80 / 50.0), DoubleEq(48 / 3.0), DoubleEq(32 / 10.0)));
}

TEST_F(SamplerOfLists, KnowsTheSizeOfEachRulesBlend) {
  auto size = [&](DataOrder order, int64_t samples) {
    config_.order = order;
    return open({.train = samples}).size(Split::kTrain);
  };
  EXPECT_EQ(size(DataOrder::kMegatron, 100), 51 + 31 + 21);
  EXPECT_EQ(size(DataOrder::kMegatronCore, 100), 100);
  // Whole epochs of 50, 3 and 10 tokens that give 51, 31 and 21 samples, less one of each.
  EXPECT_EQ(size(DataOrder::kNeox, 100), 55 + 30 + 20);
  config_.train.weights.clear();  // by what each has in an epoch: 6, 0 and 1 samples
  EXPECT_THAT(error_of([&] { size(DataOrder::kMegatronCore, 100); }), HasSubstr("too short"));
  config_.train.paths.erase(config_.train.paths.begin() + 1);
  EXPECT_EQ(size(DataOrder::kMegatronCore, 100), 7);
}

TEST_F(SamplerOfLists, PiecesAreTheTokens) {
  for (Packing packing : {Packing::kPacked, Packing::kUnpacked, Packing::kUntilOverflow}) {
    config_.packing = packing;
    Sampler sampler = open({.train = 30});
    for (int64_t id = 0; id < 30; ++id) {
      std::vector<int64_t> tokens;
      for (const Sampler::Piece& piece : sampler.pieces(Split::kTrain, id)) {
        std::vector<int64_t> part(static_cast<size_t>(piece.tokens));
        IndexedDataset(piece.prefix).get(piece.sequence, piece.offset, part);
        tokens.insert(tokens.end(), part.begin(), part.end());
      }
      Sample sample = get(sampler, id);
      for (size_t t = 0; t < kSeq; ++t)
        EXPECT_EQ(sample.weights[t], t + 1 < tokens.size() ? 1.0f : 0.0f);
      tokens.resize(kSeq + 1);
      EXPECT_EQ(sample.tokens, tokens);
    }
  }
}

TEST_F(SamplerOfLists, RefusesAnEmptyDataset) {
  config_.train.paths[1] = dir_.put("e", testing::Documents{});
  EXPECT_THAT(refusal({.train = 1}),
              AllOf(StartsWith("64: train (" + (dir_ / "e")), HasSubstr("no documents")));
}

TEST_F(SamplerOfLists, FingerprintCoversTheBlend) {
  auto print = [&] { return open({.train = 9}).fingerprint(); };
  std::set<std::string> prints = {print()};
  config_.train.weights = {5, 2, 3};
  prints.insert(print());
  config_.order = DataOrder::kMegatron;
  prints.insert(print());
  config_.order = DataOrder::kMegatronCore;
  prints.insert(print());
  std::swap(config_.train.paths[0], config_.train.paths[1]);
  prints.insert(print());
  EXPECT_EQ(prints.size(), 5u);
}

TEST_F(SamplerOfLists, MegatronBlendsAnotherWayThanGptNeox) {
  config_.train.paths.resize(1);
  config_.train.weights.clear();
  config_.order = DataOrder::kMegatron;  // one dataset is not blended: exactly what is asked
  EXPECT_EQ(open({.train = 6}).size(Split::kTrain), 6);
}

TEST_F(SamplerOf, BlendsTheSplitsOfSeveralDatasets) {
  config_.order = DataOrder::kMegatron;
  config_.blend.paths = {dir_ / "d", dir_.put("e", counting(std::vector<int32_t>(10, 9)))};
  config_.blend.weights = {1, 1};
  config_.split = "1,1";
  Sampler sampler = open({.train = 8, .valid = 8});
  std::set<std::string> seen;
  for (int64_t id = 0; id < 8; ++id)
    for (const auto& piece : sampler.pieces(Split::kValid, id)) {
      seen.insert(piece.prefix);
      EXPECT_GE(piece.sequence, 5);
    }
  EXPECT_EQ(seen.size(), 2u);
}

class SamplerOfLabels : public SamplerOf {
 protected:
  SamplerOfLabels() {
    config_.data_path.clear();
    config_.train.paths = {dir_.put("t", {{1, 2, 3}, {4, 5, 6, 8}, {9, 10}})};
    label({{-100, 2, 3}, {-100, -100, -100, -100}, {9, -100}});
  }
  // Tokens are not negative, so the labels are written 200 too great.
  void label(testing::Documents labels) {
    for (auto& document : labels)
      for (int32_t& value : document) value += 200;
    config_.train.labels = {dir_.put("l", labels, 100'000)};
    std::string bytes = read_file(dir_ / "l.bin");
    for (size_t i = 0; i < bytes.size(); i += 4) {
      int32_t value;
      std::memcpy(&value, &bytes[i], 4);
      value -= 200;
      std::memcpy(&bytes[i], &value, 4);
    }
    write_file_atomically(dir_ / "l.bin", bytes);
  }
};

TEST_F(SamplerOfLabels, MaskTheLoss) {
  config_.packing = Packing::kUnpacked;
  Sampler sampler = open({.train = 3});
  std::set<std::vector<int64_t>> seen;
  for (int64_t id = 0; id < 2; ++id) {
    Sample sample = get(sampler, id);
    seen.insert(sample.tokens);
    if (sample.tokens[0] == 1)  // and the first token of the next document
      EXPECT_THAT(sample.weights, ElementsAre(1, 1, 1, 0, 0, 0, 0, 0));
    else
      EXPECT_THAT(sample.weights, ElementsAre(0, 0, 0, 0, 0, 0, 0, 0));
  }
  // The document that is masked wholly is left out.
  for (const auto& tokens : seen) EXPECT_NE(tokens[0], 4);
  EXPECT_THAT(sampler.warnings(),
              ElementsAre(AllOf(StartsWith("train ("),
                                HasSubstr("of its 3 documents these are left out: 1 whose labels "
                                          "mask their first 8 tokens"))));
  config_.allow_chopped = false;
  config_.train.labels.clear();
  EXPECT_THAT(Sampler(config_, 2, 100, 7, {.train = 3}).warnings(),
              ElementsAre(HasSubstr(": 1 longer than seq_length 2 (allow_chopped: false)")));
}

TEST_F(SamplerOfLabels, MaskPackedSamples) {
  Sampler sampler = open({.train = 1});
  Sample sample = get(sampler, 0);
  for (size_t t = 0; t < kSeq; ++t) {
    bool masked = sample.tokens[t + 1] == 1 || sample.tokens[t + 1] == 10 ||
                  (sample.tokens[t + 1] >= 4 && sample.tokens[t + 1] <= 8);
    EXPECT_EQ(sample.weights[t], masked ? 0.0f : 1.0f);
  }
}

TEST_F(SamplerOfLabels, AreTheTokens) {
  label({{-100, 2, 3}, {-100, -100, 7, -100}, {9, -100}});
  Sampler sampler = open({.train = 1});
  EXPECT_THAT(error_of([&] { get(sampler, 0); }), AllOf(StartsWith("74: " + (dir_ / "l.bin")),
                                                        HasSubstr("label 7 at position 2 of "
                                                                  "sequence 1"),
                                                        HasSubstr("the token 6")));
}

TEST_F(SamplerOfLabels, AreAsManyAsTheTokens) {
  label({{-100, 2, 3}, {-100, -100, -100}, {9, -100}});
  EXPECT_THAT(refusal({.train = 1}),
              AllOf(StartsWith("74: " + (dir_ / "l.idx")), HasSubstr("sequence 1 has 3 labels")));
  label({{-100, 2, 3}});
  EXPECT_THAT(refusal({.train = 1}), HasSubstr("has 1 sequences"));
}

TEST_F(SamplerOf, LeavesLongDocumentsOutWhereTheyMayNotBeCut) {
  config_.train.paths = {dir_.put("t", counting({20, 3, 20, 4}))};
  config_.data_path.clear();
  config_.allow_chopped = false;
  for (Packing packing : {Packing::kUnpacked, Packing::kUntilOverflow}) {
    config_.packing = packing;
    Sampler sampler = open({.train = 5});
    for (int64_t id = 0; id < 5; ++id)
      for (const auto& piece : sampler.pieces(Split::kTrain, id)) EXPECT_EQ(piece.sequence % 2, 1);
  }
}

TEST_F(SamplerOf, KeepsItsIndexWhereAskedTo) {
  config_.cache_dir = dir_.path() / "cache";
  Sample first = get(open({.train = 5, .valid = 0}), 0);
  ASSERT_EQ(std::distance(fs::directory_iterator(config_.cache_dir), {}), 1);
  EXPECT_EQ(get(open({.train = 5}), 0).tokens, first.tokens);
  // Other data in the same place is another index.
  config_.data_path = dir_.put("d", counting({5, 3, 8, 2, 7, 4, 6, 1, 5, 9}));
  open({.train = 5});
  config_.seed = 2;
  open({.train = 5});
  EXPECT_EQ(std::distance(fs::directory_iterator(config_.cache_dir), {}), 3);
}

}  // namespace
}  // namespace neox
