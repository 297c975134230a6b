// Micro-batches as tensors: read ahead by a thread, they are those that are read when asked for.
#include "train/batches.h"

#include <ATen/Context.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data_files.h"

namespace neox {
namespace {

using testing::counting;
using testing::Directory;
using ::testing::HasSubstr;
using Read = BatchForm::Read;

constexpr int64_t kSeq = 8;

class BatchesOf : public ::testing::Test {
 protected:
  BatchesOf() {
    config_.data_path = dir_.put("d", counting({5, 3, 8, 2, 7, 4, 6, 1, 9, 5, 30, 30, 30}), 200);
    config_.split = "1";
    config_.seed = 3;
  }
  Sampler sampler(int64_t vocab) const { return {config_, kSeq, vocab, 7, {.train = 15}}; }
  Batches batches(const Sampler& sampler, Read read, at::Device device = at::kCPU,
                  int64_t end_of_document = 7) {
    using At = BoundaryRules::At;
    BatchForm form{.plan = {.global = 5, .micro = 2, .accumulation = 3},
                   .seq = kSeq,
                   .boundaries = {end_of_document, At::kRespected, At::kRespected},
                   .read = read};
    return {sampler, Split::kTrain, form, mesh_, device};
  }

  Directory dir_;
  DataConfig config_;
  std::unique_ptr<Communicator> world_ = self_communicator();
  Mesh mesh_{{}, *world_};
};

// b is on the CPU.
void expect_equal(const Batch& a, const Batch& b) {
  EXPECT_TRUE(a.tokens.cpu().equal(b.tokens));
  EXPECT_TRUE(a.targets.cpu().equal(b.targets));
  EXPECT_TRUE(a.weights.cpu().equal(b.weights));
  EXPECT_TRUE(a.documents.cpu().equal(b.documents));
  EXPECT_TRUE(a.positions.cpu().equal(b.positions));
  EXPECT_TRUE(a.first_sample.cpu().equal(b.first_sample));
}

TEST_F(BatchesOf, ReadAheadAreTheSame) {
  Sampler samples = sampler(200);
  Batches asked = batches(samples, Read::kWhenAsked), ahead = batches(samples, Read::kAhead);
  for (int64_t first : {0, 5, 10, 0, 40})  // also where a run goes on elsewhere
    for (int64_t m = 0; m < 3; ++m) {
      Batch batch = ahead.get(first, m);
      expect_equal(batch, asked.get(first, m));
      EXPECT_EQ(batch.first_sample.item<int64_t>(), first + 2 * m);
      EXPECT_EQ(batch.weights[1].sum().item<float>() == 0, m == 2);  // the fifth sample is alone
    }
}

// From 1 sample by 2 to 5 within the first 6.
TEST_F(BatchesOf, GrowReadAheadAsWhenAsked) {
  Sampler samples = sampler(200);
  const BatchForm form{.plan = {.global = 5, .micro = 2, .accumulation = 3},
                       .seq = kSeq,
                       .batches = BatchSchedule(5, BatchRampUp{1, 2, 6})};
  BatchForm early = form;
  early.read = Read::kAhead;
  Batches asked(samples, Split::kTrain, form, mesh_, at::kCPU),
      ahead(samples, Split::kTrain, early, mesh_, at::kCPU);
  std::vector<int64_t> counted;
  for (int64_t first : {0, 1, 2, 3, 6, 11})
    for (int64_t m = 0; m < ahead.plan_at(first).accumulation; ++m) {
      Batch batch = ahead.get(first, m);
      EXPECT_TRUE(batch.tokens.equal(asked.get(first, m).tokens));
      EXPECT_EQ(batch.first_sample.item<int64_t>(), first + 2 * m);
      counted.push_back((batch.weights.sum(1) > 0).sum().item<int64_t>());
    }
  EXPECT_EQ(counted, (std::vector<int64_t>{1, 1, 1, 2, 1, 2, 2, 1, 2, 2, 1}));
}

TEST_F(BatchesOf, ReadAheadForAGpuAreThoseOfTheCpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  Sampler samples = sampler(200);
  Batches cpu = batches(samples, Read::kWhenAsked),
          gpu = batches(samples, Read::kAhead, at::Device(at::kCUDA, 0));
  for (int64_t i = 0; i < 30; ++i)
    expect_equal(gpu.get(i / 3 * 5, i % 3), cpu.get(i / 3 * 5, i % 3));
}

// Padding is token 0, which ends documents with the tokenizer of Pythia.
TEST_F(BatchesOf, PaddingEndsNoDocument) {
  config_.data_path = dir_.put("short", testing::Documents(20, {5, 6, 0}), 200);
  config_.packing = Packing::kUnpacked;
  Sampler samples = sampler(200);
  Batch batch = batches(samples, Read::kWhenAsked, at::kCPU, 0).get(0, 2);
  auto expected = [](std::vector<int64_t> numbers) { return at::tensor(numbers).view({2, kSeq}); };
  // 5 6 0, the first token of the next one, and padding; then a row of padding.
  EXPECT_TRUE(batch.documents.equal(expected({0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0})));
  EXPECT_TRUE(batch.positions.equal(expected({0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6, 7})));
}

// The micro-batch that holds a token beyond the vocabulary, counted from the start, and the error.
std::pair<int64_t, std::string> first_error(Batches&& batches) {
  for (int64_t i = 0;; ++i) {
    try {
      batches.get(i / 3 * 5, i % 3);
    } catch (const std::exception& e) { return {i, e.what()}; }
  }
}

TEST_F(BatchesOf, ReadAheadTellOfErrorsInTheirTurn) {
  Sampler samples = sampler(139);
  auto [asked, why] = first_error(batches(samples, Read::kWhenAsked));
  auto [ahead, why_ahead] = first_error(batches(samples, Read::kAhead));
  EXPECT_GT(asked, 0);
  EXPECT_EQ(ahead, asked);
  EXPECT_EQ(why_ahead, why);
  EXPECT_THAT(why, HasSubstr("139"));
}

}  // namespace
}  // namespace neox
