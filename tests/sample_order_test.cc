#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <set>

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
  DataOrder order = DataOrder::kNeox;
  Packing packing = Packing::kPacked;
  std::vector<bool> left_out = {};
};

struct Built {
  std::vector<int32_t> documents;
  std::vector<Position> positions;
  std::vector<uint32_t> shuffle;
};

Built build(const Case& c, const Poll& poll = {}) {
  SampleIndex index = build_sample_index(std::span(c.lengths),
                                         {.range = {0, static_cast<int64_t>(c.lengths.size())},
                                          .seq = c.seq,
                                          .samples = c.samples,
                                          .seed = c.seed,
                                          .order = c.order,
                                          .packing = c.packing,
                                          .left_out = c.left_out},
                                         "data", poll);
  return {{index.documents.begin(), index.documents.end()},
          {index.positions.begin(), index.positions.end()},
          {index.shuffle.begin(), index.shuffle.end()}};
}

const std::vector<int32_t> kLengths = {5, 3, 8, 2, 7, 4, 6, 1, 9, 5};

std::vector<int64_t> bounds(const std::string& split, int64_t size,
                            DataOrder order = DataOrder::kNeox) {
  auto ranges = split_sequences(split, size, order);
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
  Built index = build({.lengths = kLengths, .samples = 5});
  EXPECT_THAT(index.documents, ElementsAre(7, 2, 9, 1, 0, 8, 4, 5, 6, 3));
  EXPECT_EQ(index.positions,
            (std::vector<Position>{{0, 0}, {1, 7}, {3, 2}, {5, 2}, {6, 1}, {7, 2}, {9, 0}}));
  EXPECT_THAT(index.shuffle, ElementsAre(5, 0, 3, 4, 2, 1));
}

TEST(SampleIndex, TwoEpochsAreGolden) {
  Built index = build({.lengths = kLengths, .samples = 8});
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

// Two epochs and 8 of their 12 samples: 2 of the last one's 6, less than 80 %.
TEST(SampleIndex, MegatronKeepsTheLastEpochApart) {
  for (DataOrder order : {DataOrder::kMegatron, DataOrder::kMegatronCore}) {
    Built index = build({.lengths = kLengths, .samples = 8, .order = order});
    EXPECT_THAT(index.documents,
                ElementsAre(7, 2, 9, 1, 0, 8, 4, 5, 6, 3, 7, 3, 5, 1, 4, 8, 0, 2, 6, 9));
    EXPECT_EQ(index.positions, (std::vector<Position>{{0, 0},
                                                      {1, 7},
                                                      {3, 2},
                                                      {5, 2},
                                                      {6, 1},
                                                      {7, 2},
                                                      {9, 0},
                                                      {12, 3},
                                                      {14, 4},
                                                      {15, 5},
                                                      {16, 4},
                                                      {17, 7},
                                                      {19, 1}}));
    EXPECT_THAT(index.shuffle, ElementsAre(5, 1, 4, 3, 0, 2, 10, 7, 6, 9, 11, 8));
  }
}

// An epoch of 9 documents has 10 samples, of which the last one is asked for 7, and for 8.
TEST(SampleIndex, FourFifthsOfALastEpochAreNotKeptApart) {
  for (auto [samples, apart] : {std::pair{17, true}, {18, false}}) {
    Built index = build(
        {.lengths = std::vector<int32_t>(9, 9), .samples = samples, .order = DataOrder::kMegatron});
    std::set<int32_t> first(index.documents.begin(), index.documents.begin() + 9);
    EXPECT_EQ(first.size() == 9, apart);
  }
}

TEST(SampleIndex, MegatronShufflesAFullLastEpochWithTheOthers) {
  Built apart = build({.lengths = kLengths, .samples = 9, .order = DataOrder::kMegatron});
  Built full = build({.lengths = kLengths, .samples = 11, .order = DataOrder::kMegatron});
  Built neox = build({.lengths = kLengths, .samples = 8});
  EXPECT_NE(apart.documents, neox.documents);
  EXPECT_EQ(full.documents, neox.documents);
  EXPECT_EQ(full.shuffle, neox.shuffle);
}

TEST(SampleIndex, OneEpochIsWhatItGives) {
  Built index = build({.lengths = kLengths, .samples = -1, .order = DataOrder::kMegatronCore});
  EXPECT_THAT(index.shuffle, ElementsAre(5, 0, 3, 4, 2, 1));
}

TEST(SampleIndex, PutsADocumentIntoEachSample) {
  Built index = build({.lengths = {3, 3, 3}, .samples = 4, .packing = Packing::kUnpacked});
  EXPECT_THAT(index.documents, ElementsAre(0, 1, 2, 0, 1));
  EXPECT_EQ(index.positions.back(), (Position{4, 0}));
  index = build({.lengths = {3, 3, 3},
                 .samples = 4,
                 .packing = Packing::kUnpacked,
                 .left_out = {false, true, false}});
  EXPECT_THAT(index.documents, ElementsAre(0, 2, 0, 2, 0));
}

// 5 3 8 2 7 4 6 1 9 5 in samples of up to 9 tokens, in the order that follows 4 shuffled numbers.
TEST(SampleIndex, PacksDocumentsUntilTheyOverflow) {
  Built index = build({.lengths = kLengths, .samples = 4, .packing = Packing::kUntilOverflow});
  ASSERT_EQ(index.positions.size(), 5u);
  for (size_t s = 0; s < 4; ++s) {
    int filled = 0;
    for (auto d = index.positions[s].document; d < index.positions[s + 1].document; ++d)
      filled += kLengths[static_cast<size_t>(index.documents[d])];
    EXPECT_LE(filled, 9);
    if (s == 3) continue;
    auto next = index.documents[index.positions[s + 1].document];
    EXPECT_GT(filled + kLengths[static_cast<size_t>(next)], 9);
  }
}

TEST(SampleIndex, PacksEachEpochInAnOrderOfItsOwn) {
  Built index = build({.lengths = kLengths, .samples = 16, .packing = Packing::kUntilOverflow});
  ASSERT_GE(index.documents.size(), 20u);
  std::vector<int32_t> one(index.documents.begin(), index.documents.begin() + 10),
      next(index.documents.begin() + 10, index.documents.begin() + 20);
  EXPECT_NE(one, next);
  EXPECT_TRUE(std::ranges::is_permutation(one, next));
}

TEST(SampleIndex, SaysThatNoDocumentFits) {
  for (Packing packing : {Packing::kUnpacked, Packing::kUntilOverflow})
    for (auto [length, left_out] : {std::pair{9, true}, {0, false}})
      EXPECT_THAT(
          error_of([&] {
            build({.lengths = {length, length},
                   .packing = packing,
                   .left_out = {left_out, left_out}});
          }),
          AllOf(StartsWith("64: data: none of its 2 documents"), HasSubstr("allow_chopped")));
}

// Two threads and several polls; equal to what one thread gives for the parts.
TEST(SampleIndex, IsTheSameOnTwoThreads) {
  std::vector<int32_t> lengths(3 << 20);
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = static_cast<int32_t>(i % 5);
  Built index = build({.lengths = lengths, .seq = 3, .seed = 9});
  ASSERT_GT(index.shuffle.size(), size_t{1} << 20);
  NumpyRandom random(9);
  std::vector<int32_t> documents(lengths.size());
  std::iota(documents.begin(), documents.end(), 0);
  std::vector<uint32_t> shuffle(index.shuffle.size());
  std::iota(shuffle.begin(), shuffle.end(), 0u);
  for (size_t i = documents.size(); i-- > 1;)
    std::swap(documents[i], documents[random.interval(i)]);
  for (size_t i = shuffle.size(); i-- > 1;) std::swap(shuffle[i], shuffle[random.interval(i)]);
  EXPECT_TRUE(index.documents == documents);
  EXPECT_TRUE(index.shuffle == shuffle);
  EXPECT_THAT(error_of([&] {
                build({.lengths = lengths, .seq = 3}, [n = 0]() mutable {
                  if (++n > 5) fail(Exit::kRequeue, "stop");
                });
              }),
              HasSubstr("stop"));
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
  Built index = build({.lengths = {0, 5, 0, 0, 6, 0}, .seq = 2, .samples = 5, .seed = 3});
  EXPECT_EQ(index.shuffle.size(), 5u);
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

TEST(Split, RoundsAsMegatronCoreDoes) {
  constexpr DataOrder kCore = DataOrder::kMegatronCore;
  EXPECT_THAT(bounds("969,30,1", 12345, kCore), ElementsAre(0, 11962, 12333, 12345));
  EXPECT_THAT(bounds("949,50,1", 12345, kCore), ElementsAre(0, 11715, 12333, 12345));
  EXPECT_THAT(bounds("1,1,1", 12345, kCore), ElementsAre(0, 4115, 8230, 12345));
  EXPECT_THAT(bounds("1,1,1", 1000, kCore), ElementsAre(0, 333, 667, 1000));
  EXPECT_THAT(bounds("969,30,1", 12345, DataOrder::kMegatron), ElementsAre(0, 11963, 12333, 12345));
  int different = 0;
  for (int64_t n = 1; n < 3000; ++n)
    different += bounds("969,30,1", n) != bounds("969,30,1", n, kCore);
  EXPECT_EQ(different, 729);
}

TEST(Split, CoversEverySequenceOnce) {
  for (const char* split : {"969,30,1", "0,1,1", "1,1,1", "0,0,1", "1e-3/1/0.5"})
    for (int64_t n = 0; n < 600; ++n) {
      auto ranges = split_sequences(split, n / 2, n % 2 ? DataOrder::kMegatronCore : DataOrder{});
      EXPECT_GE(ranges[0].first, 0);
      EXPECT_EQ(ranges[2].end, n / 2);
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
// order seq samples seed | lengths | documents | positions | shuffle.
TEST(SampleIndex, EqualsNumpyOnRandomCases) {
  std::ifstream in(NEOX_SOURCE_DIR "/tests/golden/sample_order.txt");
  int cases = 0;
  for (std::string line; std::getline(in, line); ++cases) {
    auto parts = split(line, '|');
    ASSERT_EQ(parts.size(), 5u) << line;
    bool neox = parts[0].starts_with("neox");
    auto asked = numbers(parts[0].substr(parts[0].find(' '))), lengths = numbers(parts[1]);
    Built index = build({.lengths = {lengths.begin(), lengths.end()},
                         .seq = asked[0],
                         .samples = asked[1],
                         .seed = asked[2],
                         .order = neox ? DataOrder::kNeox : DataOrder::kMegatronCore});
    std::vector<int64_t> positions;
    for (Position p : index.positions) positions.insert(positions.end(), {p.document, p.offset});
    EXPECT_THAT(numbers(parts[2]), ::testing::ElementsAreArray(index.documents)) << cases;
    EXPECT_EQ(numbers(parts[3]), positions) << cases;
    EXPECT_THAT(numbers(parts[4]), ::testing::ElementsAreArray(index.shuffle)) << cases;
  }
  EXPECT_GE(cases, 40);
}

}  // namespace
}  // namespace neox
