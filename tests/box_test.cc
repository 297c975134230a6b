#include "shard/box.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "base/error.h"

namespace neox {
namespace {

class BoxTest : public testing::Test {
 protected:
  int64_t below(int64_t n) { return static_cast<int64_t>(rng_() % static_cast<uint64_t>(n)); }
  Box random_box(const Dims& shape) {
    Box box = whole(shape);
    for (size_t d = 0; d < shape.size(); ++d) {
      box.start[d] = below(shape[d]);
      box.extent[d] = 1 + below(shape[d] - box.start[d]);
    }
    return box;
  }
  Dims random_shape() {
    Dims shape(1 + below(4));
    for (int64_t& extent : shape) extent = 1 + below(6);
    return shape;
  }
  // Elements of the box of a global tensor that holds 0, 1, 2, ... in row-major order.
  std::vector<int32_t> content(const Dims& shape, const Box& box) {
    std::vector<int32_t> global(static_cast<size_t>(num_elements(shape)));
    std::iota(global.begin(), global.end(), 0);
    std::vector<int32_t> part(static_cast<size_t>(box.numel()));
    for (int64_t i = 0; i < box.numel(); ++i) {
      int64_t rest = i, flat = 0, stride = 1;
      for (size_t d = shape.size(); d-- > 0;) {
        flat += (box.start[d] + rest % box.extent[d]) * stride;
        rest /= box.extent[d];
        stride *= shape[d];
      }
      part[static_cast<size_t>(i)] = global[static_cast<size_t>(flat)];
    }
    return part;
  }
  std::mt19937_64 rng_{7};
};

TEST_F(BoxTest, CoverVisitsEachElementOnceWithFewBoxes) {
  for (int i = 0; i < 20000; ++i) {
    Dims shape = random_shape();
    Box box = random_box(shape);
    int64_t begin = below(box.numel() + 1), end = begin + below(box.numel() - begin + 1);
    std::vector<int32_t> flat = content(shape, box), seen;
    size_t boxes = 0;
    cover(box, begin, end, [&](const Box& part, int64_t offset) {
      ++boxes;
      ASSERT_EQ(offset, begin + static_cast<int64_t>(seen.size()));
      std::vector<int32_t> piece = content(shape, part);
      seen.insert(seen.end(), piece.begin(), piece.end());
    });
    ASSERT_EQ(seen, std::vector<int32_t>(flat.begin() + begin, flat.begin() + end));
    ASSERT_LE(boxes, 2 * shape.size() - 1);
  }
}

TEST_F(BoxTest, CopySharedCopiesTheIntersectionAndNothingElse) {
  for (int i = 0; i < 20000; ++i) {
    Dims shape = random_shape();
    Box from = random_box(shape), to = random_box(shape);
    std::vector<int32_t> source = content(shape, from), want = content(shape, to),
                         got(want.size(), -1);
    copy_shared(from, reinterpret_cast<std::byte*>(source.data()), to,
                reinterpret_cast<std::byte*>(got.data()), sizeof(int32_t));
    std::optional<Box> both = intersect(from, to);
    int64_t copied = 0;
    for (size_t k = 0; k < got.size(); ++k) {
      if (got[k] == -1) continue;
      ASSERT_EQ(got[k], want[k]);
      ++copied;
    }
    ASSERT_EQ(copied, both ? both->numel() : 0);
  }
}

TEST_F(BoxTest, TpBoxSplitsOneDimensionAndRefusesWhatDoesNotDivide) {
  ParamSpec param{"w", {12, 5}, 0};
  EXPECT_EQ(tp_box(param, 2, 3), (Box{{8, 0}, {4, 5}}));
  EXPECT_EQ(tp_box({"b", {5}, std::nullopt}, 2, 3), whole({5}));
  EXPECT_THROW(tp_box(param, 0, 5), Error);
}

}  // namespace
}  // namespace neox
