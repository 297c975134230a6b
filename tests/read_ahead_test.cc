// The tensors of a model are read before they are asked for.
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "convert/read_ahead.h"
#include "data_files.h"

namespace neox::testing {
namespace {

// Tensors 0, 1, 2 ... of 8 bytes; reads are counted.
ModelFiles counting_model(int64_t tensors, std::atomic<int64_t>& reads) {
  ModelFiles model;
  for (int64_t i = 0; i < tensors; ++i)
    model.tensors.push_back({.info = {concat(i), at::kLong, {1}}, .from = {}, .read = [&reads, i] {
                               check_io(i != 7, "tensor 7 is bad");
                               ++reads;
                               return at::full({1}, i, at::kLong);
                             }});
  return model;
}

// The number of reads when it is at least `wanted`, or after a while.
int64_t reads_up_to(int64_t wanted, const std::atomic<int64_t>& reads) {
  for (int i = 0; i < 5000 && reads < wanted; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return reads;
}

TEST(ReadAhead, GivesEachTensorInAnyOrder) {
  std::atomic<int64_t> reads = 0;
  ModelFiles model = counting_model(6, reads);
  ReadAhead ahead(model, 16);
  for (size_t i : {0u, 1u, 1u, 4u, 2u, 3u, 0u, 4u, 5u})
    EXPECT_EQ(model.tensors[i].read().item<int64_t>(), static_cast<int64_t>(i));
  EXPECT_GE(reads, 4 + 5);  // 2 and 3 may have been read when they were skipped
  EXPECT_LE(reads, 6 + 5);
}

TEST(ReadAhead, GoesOnBehindWhatIsSkipped) {
  std::atomic<int64_t> reads = 0;
  ModelFiles model = counting_model(6, reads);
  ReadAhead ahead(model, 16);
  EXPECT_EQ(reads_up_to(2, reads), 2);
  model.tensors[2].read();
  EXPECT_EQ(reads_up_to(5, reads), 5);
  for (size_t i : {3u, 4u, 5u, 0u}) model.tensors[i].read();
  EXPECT_EQ(reads, 6 + 1);
}

TEST(ReadAhead, ReadsNoFurtherThanItMay) {
  std::atomic<int64_t> reads = 0;
  ModelFiles model = counting_model(6, reads);
  ReadAhead ahead(model, 16);
  model.tensors[0].read();
  while (reads < 3) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(reads, 3);
}

TEST(ReadAhead, FailsWhereTheTensorIsAskedFor) {
  std::atomic<int64_t> reads = 0;
  ModelFiles model = counting_model(9, reads);
  ReadAhead ahead(model, 1000);
  for (size_t i = 0; i < 7; ++i) model.tensors[i].read();
  EXPECT_EQ(error_of([&] { model.tensors[7].read(); }), "74: tensor 7 is bad");
  EXPECT_EQ(model.tensors[8].read().item<int64_t>(), 8);
}

}  // namespace
}  // namespace neox::testing
