// How much a reader reads that wants a part of what was saved.
#include <ATen/ops/full.h>

#include "base/text.h"
#include "checkpoint/layout.h"
#include "checkpoint_support.h"

namespace neox {
namespace {

// That this process has asked files for.
int64_t bytes_read() {
  for (const std::string& line : split(read_file("/proc/self/io"), '\n'))
    if (line.starts_with("rchar: ")) return number_of<int64_t>(line.substr(7)).value();
  return 0;
}

// The parts of n ranks that share tensors of a shape, each in a chunk of its own, as ZeRO does.
Layout parts_of(const Dims& shape, int ranks) {
  StateChunk all{"b", "param", at::full({num_elements(shape)}, 0, at::kFloat), {}};
  all.placements = {{"w", shape, whole(shape), 0}};
  Layout layout;
  int64_t each = (all.data.numel() + ranks - 1) / ranks;
  for (int64_t r = 0; r < ranks; ++r)
    layout.push_back({elements_of(all, {r * each, std::min((r + 1) * each, all.data.numel())})});
  return layout;
}

class CheckpointParts : public CheckpointTest, public testing::WithParamInterface<Dims> {
 protected:
  // Bytes that all of the readers together ask for, of a checkpoint of so many writers.
  int64_t read(int writers, int readers) {
    Layout from = parts_of(GetParam(), writers), to = parts_of(GetParam(), readers);
    fill(from, 5);
    EXPECT_EQ(save_all({.dir = dir_}, from, 5), std::vector<std::string>(size_t(writers)));
    int64_t before = bytes_read();
    for (auto& chunks : to) Checkpoint(dir_ / step_name(5)).read(chunks);
    int64_t bytes = bytes_read() - before;
    EXPECT_EQ(difference(to, 5), "");
    return bytes;
  }
};

TEST_P(CheckpointParts, AreReadWithLittleElse) {
  double once = static_cast<double>(num_elements(GetParam())) * sizeof(float);
  double tables = 2e5;  // of a file
  EXPECT_LE(static_cast<double>(read(1, 1)), once + tables);
  EXPECT_LE(static_cast<double>(read(1, 8)), 2.5 * once + 8 * tables);
  EXPECT_LE(static_cast<double>(read(8, 8)), once + 8 * tables);
  EXPECT_LE(static_cast<double>(read(8, 1)), once + 8 * tables);
}

// Rows of a matrix, matrices of a stack that are larger than a box, and rows that are.
INSTANTIATE_TEST_SUITE_P(Shapes, CheckpointParts,
                         testing::Values(Dims{2003, 3001}, Dims{7, 601, 1301}, Dims{5, 1200007}));

}  // namespace
}  // namespace neox
