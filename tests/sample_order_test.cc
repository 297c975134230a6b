#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "base/text.h"
#include "data/sample_index.h"
#include "data_files.h"

namespace neox {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Position = SampleIndex::Position;

struct Case {
  std::vector<int32_t> lengths;
  int64_t seq = 8, samples = 5, seed = 1234;
};

SampleIndex build(const Case& c, const Poll& poll = {}) {
  return build_sample_index(std::span(c.lengths),
                            {.range = {0, static_cast<int64_t>(c.lengths.size())},
                             .seq = c.seq,
                             .samples = c.samples,
                             .seed = c.seed},
                            "data", poll);
}

const std::vector<int32_t> kLengths = {5, 3, 8, 2, 7, 4, 6, 1, 9, 5};

std::vector<int64_t> bounds(const std::string& split, int64_t size) {
  auto ranges = split_sequences(split, size);
  return {ranges[0].first, ranges[0].end, ranges[1].end, ranges[2].end};
}

TEST(NumpyRandom, ShufflesLikeNumpy) {
  std::vector<int> values(20);
  std::iota(values.begin(), values.end(), 0);
  NumpyRandom(1234).shuffle(std::span(values));
  EXPECT_THAT(values,
              ElementsAre(3, 13, 2, 16, 14, 5, 4, 0, 8, 18, 17, 11, 10, 9, 7, 1, 19, 12, 6, 15));
}

// numpy: RandomState(1234)._bit_generator, 64 bits drawn high half first.
TEST(NumpyRandom, DrawsTwiceForGreatIntervals) {
  EXPECT_EQ(NumpyRandom(1234).interval(UINT64_MAX), 822569775ull << 32 | 2137449171ull);
  EXPECT_EQ(NumpyRandom(1234).interval(UINT32_MAX), 822569775ull);
}

TEST(SampleIndex, OneEpochIsGolden) {
  SampleIndex index = build({.lengths = kLengths, .samples = 5});
  EXPECT_THAT(index.documents, ElementsAre(7, 2, 9, 1, 0, 8, 4, 5, 6, 3));
  EXPECT_EQ(index.positions,
            (std::vector<Position>{{0, 0}, {1, 7}, {3, 2}, {5, 2}, {6, 1}, {7, 2}, {9, 0}}));
  EXPECT_THAT(index.shuffle, ElementsAre(5, 0, 3, 4, 2, 1));
}

TEST(SampleIndex, TwoEpochsAreGolden) {
  SampleIndex index = build({.lengths = kLengths, .samples = 8});
  EXPECT_THAT(index.documents,
              ElementsAre(3, 3, 2, 6, 4, 5, 4, 0, 8, 8, 7, 1, 0, 9, 7, 1, 9, 2, 6, 5));
  EXPECT_EQ(index.positions, (std::vector<Position>{{0, 0},
                                                    {2, 4},
                                                    {3, 4},
                                                    {4, 6},
                                                    {6, 3},
                                                    {7, 4},
                                                    {8, 7},
                                                    {9, 6},
                                                    {12, 1},
                                                    {13, 4},
                                                    {16, 3},
                                                    {17, 6},
                                                    {19, 0}}));
  EXPECT_THAT(index.shuffle, ElementsAre(4, 7, 1, 10, 9, 3, 8, 6, 11, 5, 0, 2));
}

TEST(SampleIndex, EpochsAreTheFewestThatSuffice) {
  for (int64_t tokens = 1; tokens < 40; ++tokens)
    for (int64_t seq : {1, 3, 8})
      for (int64_t samples = 0; samples < 30; ++samples) {
        int64_t epochs = num_epochs(tokens, seq, samples);
        EXPECT_GE((epochs * tokens - 1) / seq, samples);
        if (epochs > 1) { EXPECT_LT(((epochs - 1) * tokens - 1) / seq, samples); }
      }
}

TEST(SampleIndex, SkipsEmptyDocuments) {
  SampleIndex index = build({.lengths = {0, 5, 0, 0, 6, 0}, .seq = 2, .samples = 5, .seed = 3});
  EXPECT_EQ(index.num_samples(), 5);
  EXPECT_EQ(index.positions.size(), 6u);
}

TEST(SampleIndex, RefusesWhatCannotBeOrdered) {
  EXPECT_THAT(error_of([] {
                build({.lengths = {0, 0}});
              }),
              AllOf(StartsWith("64: data"), HasSubstr("2 documents and no tokens")));
  EXPECT_THAT(error_of([] { build({.lengths = {1}, .seq = 2048, .samples = 4000000000}); }),
              AllOf(StartsWith("64: "), HasSubstr("give more data")));
  EXPECT_THAT(error_of([] { build({.lengths = {5}, .seed = -1}); }), HasSubstr("seed -1"));
  EXPECT_THAT(error_of([] { build({.lengths = {5}, .seed = int64_t{1} << 32}); }),
              HasSubstr("seed 4294967296"));
}

TEST(SampleIndex, PollMayEndTheWork) {
  std::vector<int32_t> lengths(1 << 20, 1);
  int polls = 0;
  build({.lengths = lengths, .seq = 4}, [&] { ++polls; });
  EXPECT_GE(polls, 2);
  EXPECT_THAT(error_of([&] { build({.lengths = lengths}, [] { fail(Exit::kRequeue, "stop"); }); }),
              HasSubstr("stop"));
}

TEST(Split, RoundsAsNeoxDoes) {
  EXPECT_THAT(bounds("969,30,1", 12345), ElementsAre(0, 11963, 12333, 12345));
  EXPECT_THAT(bounds("949, 50, 1", 12345), ElementsAre(0, 11716, 12333, 12345));
  EXPECT_THAT(bounds("1,1,1", 12345), ElementsAre(0, 4115, 8230, 12345));
  EXPECT_THAT(bounds("1,1,1", 1000), ElementsAre(0, 334, 667, 1000));
  EXPECT_THAT(bounds("2,1,1", 7), ElementsAre(0, 3, 5, 7));  // not rounded down
  EXPECT_THAT(bounds("1,1,2", 2), ElementsAre(0, 1, 1, 2));  // halves to the even number
  EXPECT_THAT(bounds("8/1/1", 10), ElementsAre(0, 8, 9, 10));
  EXPECT_THAT(bounds("100", 7), ElementsAre(0, 7, 7, 7));
  EXPECT_THAT(bounds("1,1", 5), ElementsAre(0, 3, 5, 5));
  EXPECT_THAT(bounds("2,1,1,9", 8), ElementsAre(0, 4, 6, 8));
}

TEST(Split, CoversEverySequenceOnce) {
  for (const char* split : {"969,30,1", "0,1,1", "1,1,1", "0,0,1", "1e-3/1/0.5"})
    for (int64_t n = 0; n < 300; ++n) {
      auto ranges = split_sequences(split, n);
      EXPECT_GE(ranges[0].first, 0);
      EXPECT_EQ(ranges[2].end, n);
      for (size_t i = 0; i < 3; ++i) EXPECT_GE(ranges[i].size(), 0) << split << " " << n;
    }
}

TEST(Split, NamesWhatItCannotRead) {
  EXPECT_THAT(error_of([] { split_sequences("969,thirty,1", 9); }),
              AllOf(StartsWith("64: "), HasSubstr("'thirty' is not a share")));
  EXPECT_THAT(error_of([] { split_sequences("1,-1,1", 9); }), HasSubstr("'-1'"));
  EXPECT_THAT(error_of([] { split_sequences("1,,1", 9); }), HasSubstr("''"));
  EXPECT_THAT(error_of([] { split_sequences("0,0,0", 9); }), HasSubstr("all 0"));
}

std::vector<int64_t> numbers(const std::string& text) {
  std::vector<int64_t> values;
  std::istringstream in(text);
  for (int64_t value; in >> value;) values.push_back(value);
  return values;
}

// Lines of tests/golden/sample_order.txt, which tests/oracle/sample_order.py wrote:
// seq samples seed | lengths | documents | positions | shuffle.
TEST(SampleIndex, EqualsNumpyOnRandomCases) {
  std::ifstream in(NEOX_SOURCE_DIR "/tests/golden/sample_order.txt");
  int cases = 0;
  for (std::string line; std::getline(in, line); ++cases) {
    auto parts = split(line, '|');
    ASSERT_EQ(parts.size(), 5u) << line;
    auto asked = numbers(parts[0]), lengths = numbers(parts[1]);
    SampleIndex index = build({.lengths = {lengths.begin(), lengths.end()},
                               .seq = asked[0],
                               .samples = asked[1],
                               .seed = asked[2]});
    std::vector<int64_t> positions;
    for (Position p : index.positions) positions.insert(positions.end(), {p.document, p.offset});
    EXPECT_THAT(numbers(parts[2]), ::testing::ElementsAreArray(index.documents)) << cases;
    EXPECT_EQ(numbers(parts[3]), positions) << cases;
    EXPECT_THAT(numbers(parts[4]), ::testing::ElementsAreArray(index.shuffle)) << cases;
  }
  EXPECT_GE(cases, 10);
}

}  // namespace
}  // namespace neox
