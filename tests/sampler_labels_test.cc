// How labels are read to find the documents that are masked wholly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "data/sampler.h"
#include "data_files.h"

namespace neox {
namespace {

using ::testing::Contains;
using testing::Directory;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SamplerWithLabels : public ::testing::Test {
 protected:
  SamplerWithLabels() {
    config_.packing = Packing::kUnpacked;
    config_.train.paths = {dir_.put("d", testing::counting({1500, 1501, 700}), kVocab)};
    config_.train.labels = {dir_ / "l"};
    label({0, 0, 0});
  }
  // One token of each document is learnt, at its place there.
  void label(const std::vector<int64_t>& learnt) const {
    DatasetBuilder builder(dir_ / "l", DatasetOptions{.type = TokenType::kInt32});
    std::vector<int32_t> labels(3701, kMaskedLabel);
    for (int64_t at : {learnt[0], 1500 + learnt[1], 3001 + learnt[2]})
      labels[static_cast<size_t>(at)] = static_cast<int32_t>(at);
    builder.add_documents(std::as_bytes(std::span(labels)), std::vector<int64_t>{1500, 1501, 700});
    builder.finish();
  }
  Sampler open(const Poll& poll = {}) const {
    return Sampler(config_, /*seq=*/1500, kVocab, /*end_of_document=*/7, {.train = 3}, poll);
  }
  // What the system was told of how a file is read: "sr", from the first byte to the last, "rr", at
  // random. Nothing where it does not say.
  static std::set<std::string> flags_of(const std::string& file) {
    std::ifstream maps("/proc/self/smaps");
    std::set<std::string> flags;
    bool mine = false;
    for (std::string line, word; std::getline(maps, line);) {
      std::istringstream words(line);
      words >> word;
      if (word.find('-') != word.npos) mine = line.ends_with(file);
      if (mine && word == "VmFlags:")
        while (words >> word) flags.insert(word);
    }
    return flags;
  }
  static constexpr int64_t kVocab = 100'000;
  Directory dir_;
  DataConfig config_;
};

TEST_F(SamplerWithLabels, OneLabelAnywhereKeepsADocument) {
  label({511, 512, 699});
  EXPECT_THAT(open().warnings(), IsEmpty());
  label({1499, 1500, 0});  // the second is behind what a sample reads of it
  EXPECT_THAT(open().warnings(), ElementsAre(HasSubstr("1 whose labels mask their first 1500")));
}

TEST_F(SamplerWithLabels, WhatTheyLeaveOutIsInTheFingerprint) {
  std::string all = open().fingerprint(Split::kTrain);
  label({0, 1500, 0});
  EXPECT_NE(open().fingerprint(Split::kTrain), all);
}

TEST_F(SamplerWithLabels, AreReadFromTheFirstToTheLastAndThenAtRandom) {
  std::set<std::string> meanwhile;
  Sampler sampler = open([&] { meanwhile.merge(flags_of("/l.bin")); });
  std::set<std::string> behind = flags_of("/l.bin");
  if (behind.empty()) GTEST_SKIP() << "/proc/self/smaps has no VmFlags";
  EXPECT_THAT(meanwhile, Contains("sr"));
  EXPECT_THAT(behind, Contains("rr"));
}

// The index is found, so that nothing else takes long.
TEST_F(SamplerWithLabels, AStopIsHeardWhileTheyAreRead) {
  config_.cache_dir = dir_ / "cache";
  open();
  EXPECT_THAT(error_of([&] { open([] { fail(Exit::kRequeue, "stop"); }); }), HasSubstr("stop"));
}

}  // namespace
}  // namespace neox
