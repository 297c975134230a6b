// Saving in the background: the same files, whatever training does meanwhile; the same errors; and
// what was saved before stays whole.
#include "checkpoint/background.h"

#include <ATen/ops/full.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "checkpoint/blocks.h"
#include "checkpoint/layout.h"
#include "checkpoint_support.h"
#include "fault_preload.h"

// HDF5 1.10 keeps the memory of a file that it could not finish.
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5"; }

namespace neox {
namespace {

using Texts = std::vector<std::string>;

// What lies where, with its checksums.
Texts boxes_of(const fs::path& dir) {
  Catalog c = open_complete(dir).catalog;
  Texts texts;
  for (const StoredBox& box : c.boxes)
    texts.push_back(concat(c.label(box.tensor), to_string(box.box), box.dataset, "/", box.offset,
                           "/", c.range(box).begin, "/", to_string(box.sum)));
  return texts;
}

class AsyncTest : public CheckpointTest {
 protected:
  void TearDown() override {
    neox_fault("", 0, -1, -1);
    neox_fault_direct(0);
    CheckpointTest::TearDown();
  }
  // Each rank saves steps `first` to `last` in the background, and goes on at once.
  Texts save_async(const Layout& layout, int64_t first, int64_t last, int ranks_here = 1) {
    for (const auto& rank : layout) EXPECT_FALSE(rank.empty());
    return run_ranks(static_cast<int>(layout.size()), [&](Control& control) {
      auto& mine = layout[static_cast<size_t>(control.rank())];
      BackgroundSave saver({.dir = dir_, .keep_last = keep_},
                           control.channel("save", control.size()), ranks_here);
      saver.prepare(mine);
      for (int64_t step = first; step <= last; ++step) {
        fill({mine}, step);
        saver.start(mine, state_of(step));
        saver.release();
        fill({mine}, 1000 + step);
      }
      saver.wait();
    });
  }
  Layout big(int ranks, int64_t elements) {
    Layout layout(static_cast<size_t>(ranks));
    for (int64_t rank = 0; rank < ranks; ++rank)
      for (const char* state : {"param", "adam_m"})
        layout[size_t(rank)].push_back({"b",
                                        state,
                                        at::full({elements}, 0, at::kFloat),
                                        {{"w", {ranks, elements}, {{rank, 0}, {1, elements}}, 0}}});
    return layout;
  }
  int64_t keep_ = 0;
};

TEST_F(AsyncTest, FilesAreThoseOfASynchronousSave) {
  for (int ranks : {1, 2, 5}) {
    Layout layout = filled(ranks, 1);
    ASSERT_EQ(save_all({.dir = dir_ / "sync"}, layout, 1), Texts(size_t(ranks)));
    ASSERT_EQ(save_async(layout, 1, 1), Texts(size_t(ranks)));
    EXPECT_EQ(boxes_of(dir_ / "global_step1"), boxes_of(dir_ / "sync/global_step1"));
    EXPECT_EQ(read_back(dir_ / "global_step1", 1, 3), "");
    fs::remove_all(dir_ / "sync");
  }
}

TEST_F(AsyncTest, LargeStateMayChangeAfterTheRelease) {
  model_ = model_of(at::kFloat, {1, 1'300'001});
  ASSERT_EQ(save_async(big(1, 1'300'001), 1, 2), Texts(1));
  for (int64_t step : {1, 2}) EXPECT_EQ(read_back(dir_ / step_name(step), step), "");
}

TEST_F(AsyncTest, EachSaveWaitsForTheOneBefore) {
  keep_ = 2;
  ASSERT_EQ(save_async(filled(3, 1), 1, 9), Texts(3));
  EXPECT_EQ(find_checkpoint(dir_), dir_ / "global_step9");
  EXPECT_EQ(read_back(dir_ / "global_step8", 8), "");
  EXPECT_FALSE(fs::exists(dir_ / "global_step7"));
  EXPECT_EQ(read_file(dir_ / "latest"), "global_step9");
}

TEST_F(AsyncTest, WithoutMemoryForACopyTheStateIsWrittenFromItsPlace) {
  ASSERT_EQ(save_async(filled(2, 1), 1, 2, 1 << 30), Texts(2));
  EXPECT_EQ(read_back(dir_ / "global_step2", 2), "");
}

TEST_F(AsyncTest, WhereARankHasNoMemoryForACopyAllWait) {
  Layout layout = filled(2, 1);
  Texts errors = run_ranks(2, [&](Control& control) {
    int rank = control.rank();
    BackgroundSave saver({.dir = dir_}, control.channel("save", 2),
                         rank == 1 ? std::numeric_limits<int>::max() : 1);
    saver.prepare(layout[static_cast<size_t>(rank)]);
    saver.start(layout[static_cast<size_t>(rank)], state_of(1));
    EXPECT_FALSE(saver.under_way());
    EXPECT_TRUE(fs::exists(dir_ / "global_step1"));
    EXPECT_TRUE(saver.poll().has_value());
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST_F(AsyncTest, TimeIsToldOnceAndErrorsAreThrownOnce) {
  Layout layout = filled(1, 1);
  BackgroundSave saver({.dir = dir_}, std::make_unique<AloneControl>(), 1);
  saver.prepare(layout[0]);
  EXPECT_FALSE(saver.poll().has_value());
  saver.start(layout[0], state_of(1));
  EXPECT_GT(saver.wait().value_or(0), 0);
  EXPECT_FALSE(saver.wait().has_value());
  neox_fault(dir_.c_str(), EIO, -1, 0);
  saver.start(layout[0], state_of(2));
  EXPECT_NE(error_of([&] { saver.wait(); }), "");
  EXPECT_FALSE(saver.wait().has_value());
}

TEST_F(AsyncTest, ErrorsAreThoseOfASynchronousSaveOnEveryRank) {
  Layout layout = filled(3, 1);
  ASSERT_EQ(save_all({.dir = dir_}, layout, 1), Texts(3));
  write_file_atomically(dir_ / "global_step2", "in the way");
  Texts sync = save_all({.dir = dir_}, layout, 2), async = save_async(layout, 2, 2);
  EXPECT_EQ(async, sync);
  EXPECT_NE(async[0].find("cannot rename "), std::string::npos) << async[0];
  EXPECT_EQ(async, Texts(3, async[0]));
  EXPECT_EQ(find_checkpoint(dir_), dir_ / "global_step1");
}

TEST_F(AsyncTest, AFullDiskLeavesTheOlderCheckpoint) {
  Layout layout = filled(2, 1);
  ASSERT_EQ(save_async(layout, 1, 1), Texts(2));
  neox_fault(dir_.c_str(), ENOSPC, 5000, -1);
  Texts errors = save_async(layout, 2, 3);  // the save of step 3 throws what that of step 2 threw
  neox_fault("", 0, -1, -1);
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("global_step2: rank "), std::string::npos) << error;
    EXPECT_NE(error.find("No space left on device (ENOSPC)"), std::string::npos) << error;
  }
  EXPECT_EQ(read_file(dir_ / "latest"), "global_step1");
  EXPECT_EQ(read_back(find_checkpoint(dir_).value(), 1), "");
}

TEST_F(AsyncTest, AKillAtAnyCallHurtsNothing) {
  model_ = model_of(at::kFloat, {13, 7});
  Layout layout = filled(1, 1);
  ASSERT_EQ(save_async(layout, 1, 1), Texts(1));
  auto killed = [&](int64_t call) {
    pid_t pid = ::fork();
    if (pid == 0) {
      neox_fault(dir_.c_str(), kFaultKill, -1, call);
      keep_ = 1;
      save_async(layout, 2, 2);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFSIGNALED(status);
  };
  int64_t call = 0;
  for (; killed(call); ++call) {
    fs::path newest = find_checkpoint(dir_).value();
    ASSERT_EQ(read_back(newest, *step_of(newest.filename().string())), "") << call;
  }
  EXPECT_GT(call, 20);
  EXPECT_EQ(find_checkpoint(dir_), dir_ / "global_step2");
}

TEST_F(AsyncTest, WithAndWithoutThePageCacheTheBytesAreTheSame) {
  Layout layout = big(1, 1'300'001);
  model_ = model_of(at::kFloat, {1, 1'300'001});
  fill(layout, 1);
  Texts boxes;
  for (int refuse : {0, kFaultDirectOpen, kFaultDirectWrite}) {
    neox_fault_direct(refuse);
    save_alone({.dir = dir_}, layout, 1);
    if (refuse == 0) boxes = boxes_of(dir_ / "global_step1");
    EXPECT_EQ(boxes_of(dir_ / "global_step1"), boxes);
    EXPECT_EQ(read_back(dir_ / "global_step1", 1), "") << refuse;
    EXPECT_EQ(neox_fault_direct_writes() > 0, refuse == 0);
    neox_fault_direct(0);
    EXPECT_EQ(read_back(dir_ / "global_step1", 1), "") << refuse;
  }
}

TEST(Blocks, TakeTheirTurnsInOrderAndEndWithTheFirstError) {
  std::vector<size_t> order;
  std::atomic<size_t> before = 0, after = 0;
  run_blocks(100, {.before = [&](size_t, auto) { ++before; },
                   .in_turn = [&](size_t i, auto) { order.push_back(i); },
                   .after = [&](size_t, auto) { ++after; }});
  std::vector<size_t> all(100);
  std::iota(all.begin(), all.end(), size_t{0});
  EXPECT_EQ(order, all);
  EXPECT_EQ(before + after, 200u);
  auto nothing = [](size_t, auto) {};
  auto fails = [](size_t i, auto) { check(i != 7, "block 7"); };
  for (const BlockSteps& steps :
       {BlockSteps{fails, nothing, nothing}, BlockSteps{nothing, fails, nothing},
        BlockSteps{nothing, nothing, fails}})
    EXPECT_EQ(error_of([&] { run_blocks(100, steps); }), "block 7");
}

TEST(RangeSums, AreThoseOfTheRangesHoweverTheBytesAreCut) {
  std::string text(1000, 'a');
  std::iota(text.begin(), text.end(), '\1');
  auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  std::vector<ByteRange> ranges = {{3, 10}, {10, 11}, {50, 700}, {900, 1000}};
  for (size_t cut : {1, 7, 64, 1000}) {
    size_t found = 0;
    RangeSums sums(ranges, [&](size_t i, const Checksum& sum) {
      EXPECT_EQ(i, found++);
      auto [begin, end] = ranges[i];
      EXPECT_EQ(sum, checksum(bytes.subspan(size_t(begin), size_t(end - begin))));
    });
    for (size_t at = 0; at < bytes.size(); at += cut)
      sums.add(bytes.subspan(at, std::min(cut, bytes.size() - at)), static_cast<int64_t>(at));
    EXPECT_EQ(found, ranges.size());
  }
}

}  // namespace
}  // namespace neox
