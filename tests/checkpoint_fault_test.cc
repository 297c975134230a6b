// Full disks, quotas, failing calls and kill -9 at any point of a save: the error is exact, and
// what was saved before stays whole.
#include <ATen/ops/full.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "checkpoint/layout.h"
#include "checkpoint_support.h"
#include "fault_preload.h"
#include "launch/process_info.h"

// HDF5 1.10 keeps the memory of a file that it could not finish.
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5"; }

namespace neox {
namespace {

using Texts = std::vector<std::string>;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class FaultTest : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    layouts_ = {cutter_.layout(model_, 2), cutter_.layout(model_, 2)};
    fill(layouts_[0], 1), fill(layouts_[1], 2);
    ASSERT_EQ(save(1), Texts(2));
  }
  void TearDown() override {
    stop();
    CheckpointTest::TearDown();
  }
  Texts save(int64_t step) {
    return save_all({.dir = dir_, .keep_last = 2}, layouts_[size_t(step - 1)], step);
  }
  Texts save_failing(int error, int64_t bytes, int64_t calls) {
    neox_fault(dir_.c_str(), error, bytes, calls);
    Texts errors = save(2);
    calls_ = neox_fault_calls();
    stop();
    return errors;
  }
  void stop() { neox_fault("", 0, -1, -1); }
  // The newest checkpoint is whole and holds what its step should; returns the step.
  int64_t check_newest() {
    fs::path newest = find_checkpoint(dir_).value();
    int64_t step = *step_of(newest.filename().string());
    EXPECT_EQ(read_back(newest, step, 1), "");
    return step;
  }
  // All ranks failed, or all saved; and the rest of the process is fine. True where they saved.
  bool check_outcome(const Texts& errors, const std::string& reason) {
    EXPECT_EQ(errors[0], errors[1]);
    if (errors[0].empty()) {
      EXPECT_EQ(check_newest(), 2);
    } else {
      EXPECT_TRUE(has(errors[0], reason)) << errors[0];
      EXPECT_TRUE(has(errors[0], "rank 0 on ") || has(errors[0], "rank 1 on ")) << errors[0];
      check_newest();
    }
    fs::remove_all(dir_ / "global_step2");
    return errors[0].empty();
  }
  // Runs in a child that ends by SIGKILL; false where it came to its end.
  bool killed(const std::function<void()>& child, int64_t microseconds = -1) {
    pid_t pid = ::fork();
    if (pid == 0) {
      child();
      ::_exit(0);
    }
    if (microseconds >= 0) {
      ::usleep(static_cast<unsigned>(microseconds));
      ::kill(pid, SIGKILL);
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFSIGNALED(status);
  }

  std::vector<Layout> layouts_;
  int64_t calls_ = 0;
};

size_t open_files() { return size_t(std::distance(fs::directory_iterator("/proc/self/fd"), {})); }

TEST_F(FaultTest, AnyCallMayFail) {
  int saved = 0;
  size_t files = open_files();
  for (int64_t n = 0; n == 0 || calls_ >= n; ++n)
    saved += check_outcome(save_failing(EIO, -1, n), "cannot ");
  EXPECT_EQ(open_files(), files);
  EXPECT_LT(saved, 20);  // at the end: `latest`, removing of old ones
  EXPECT_EQ(save(2), Texts(2));
}

TEST_F(FaultTest, ADiskMayBecomeFullAtAnyByte) {
  bool saved = false;
  for (int64_t bytes = 0; !saved; bytes += 1 + cutter_.below(4000)) {
    saved = check_outcome(save_failing(ENOSPC, bytes, -1), "No space left on device (ENOSPC)");
    ASSERT_LT(bytes, 10'000'000);
  }
}

TEST_F(FaultTest, AFullDiskAndAQuotaAreToldApart) {
  for (int64_t bytes : {100, 5000}) {  // in HDF5's writes, and in ours
    std::string full = save_failing(ENOSPC, bytes, -1)[0];
    EXPECT_TRUE(has(full, "ENOSPC") && !has(full, "EDQUOT")) << full;
    EXPECT_TRUE(has(full, " were asked for, ") && has(full, " are free there")) << full;
  }
  std::string quota = save_failing(EDQUOT, 5000, -1)[0];
  EXPECT_TRUE(has(quota, "EDQUOT") && !has(quota, "ENOSPC")) << quota;
  EXPECT_TRUE(has(quota, "your quota there is used up")) << quota;
}

TEST_F(FaultTest, TheFullDiskIsFoundBeforeThePayloadIsWritten) {
  Layout layout(1);
  layout[0].push_back(
      {"b", "param", at::full({1 << 24}, 1, at::kFloat), {{"w", {1 << 24}, whole({1 << 24}), 0}}});
  neox_fault(dir_.c_str(), ENOSPC, 40 << 20, -1);
  std::string error = error_of([&] { save_alone({.dir = dir_}, layout, 3); });
  EXPECT_LT(neox_fault_calls(), 20);
  EXPECT_TRUE(has(error, "67.1 MB were asked for")) << error;
}

TEST_F(FaultTest, AKillAtAnyCallOfASaveHurtsNothing) {
  Layout one = cutter_.layout(model_, 1);
  fill(one, 2);
  int64_t n = 0;
  auto child = [&] {
    neox_fault(dir_.c_str(), kFaultKill, -1, n);
    save_alone({.dir = dir_, .keep_last = 1}, one, 2);
  };
  for (; killed(child); ++n) check_newest();
  EXPECT_GT(n, 30);
  EXPECT_EQ(check_newest(), 2);
}

TEST_F(FaultTest, AKillAtAnyCallOfAReplacementLeavesOneOrTheOther) {
  Layout one = cutter_.layout(model_, 1);
  fill(one, 77);
  for (int exchange_error : {0, EINVAL}) {
    int64_t n = 0, replaced = 0, aside = 0;
    auto child = [&] {
      neox_fault_exchange(exchange_error);
      neox_fault(dir_.c_str(), kFaultKill, -1, n);
      save_alone({.dir = dir_}, one, 1);
    };
    for (; killed(child); ++n) {
      Layout back = cutter_.layout(model_, 1);
      fs::path found = find_checkpoint(dir_).value();
      Checkpoint(found).read(back[0]);
      bool is_new = difference(back, 77).empty();
      ASSERT_TRUE(is_new || difference(back, 1).empty()) << n;
      replaced += is_new;
      aside += found.filename() != "global_step1";
      if (is_new || found.filename() != "global_step1") save(1);
    }
    EXPECT_GT(n, 30);
    EXPECT_GT(replaced, 0);
    EXPECT_EQ(aside > 0, exchange_error != 0);
    save(1);
  }
}

TEST_F(FaultTest, ReplacesWhereNamesCannotBeExchanged) {
  Layout other = cutter_.layout(model_, 3);
  fill(other, 1);
  neox_fault_exchange(EINVAL);
  Texts errors = save_all({.dir = dir_}, other, 1);
  neox_fault_exchange(0);
  EXPECT_EQ(errors, Texts(3));
  EXPECT_TRUE(fs::exists(dir_ / "global_step1/rank_00002.h5"));
  EXPECT_EQ(check_newest(), 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), {}), 2);
}

TEST_F(FaultTest, WhatIsPublishedOutlivesAPowerCut) {
  neox_fault_watch(dir_.c_str());
  EXPECT_EQ(save(2), Texts(2));
  EXPECT_EQ(neox_fault_unflushed(), 0);
  fs::create_directories(dir_ / "global_step3.tmp-1");
  publish(dir_ / "global_step3.tmp-1", dir_ / "global_step3", "1");
  EXPECT_EQ(neox_fault_unflushed(), 0);
  neox_fault_watch("");
}

TEST_F(FaultTest, FiftyKillsAtRandomMomentsHurtNothing) {
  int64_t last = 1, moved = 0;
  auto child = [&](int life, int64_t saves) {
    Layout layout = cutter_.layout(model_, 2);
    for (int64_t step = last; step < last + saves; ++step) {  // replaces the last, then goes on
      fill(layout, step);
      save_all({.dir = dir_, .life = std::to_string(life), .keep_last = 2}, layout, step);
    }
  };
  auto start = std::chrono::steady_clock::now();
  ASSERT_FALSE(killed([&] { child(0, 2); }));
  std::chrono::duration<double, std::micro> longest =
      2 * (std::chrono::steady_clock::now() - start);
  for (int i = 1; i <= 50; ++i) {
    auto moment = cutter_.below(static_cast<int64_t>(longest.count()));
    ASSERT_TRUE(killed([&] { child(i, INT64_MAX - last); }, moment));
    int64_t step = check_newest();
    ASSERT_GE(step, last) << "kill " << i;
    longest *= step > last ? 1 / 1.2 : 1.2;  // half the lives save a step, however busy the machine
    moved += step > last;
    last = step;
  }
  EXPECT_GT(moved, 2);
}

TEST_F(FaultTest, AnUnreadableCheckpointIsNoDamagedOne) {
  for (int64_t step : {10, 20}) ASSERT_EQ(save_all({.dir = dir_}, filled(1, step), step)[0], "");
  auto found = [&](const char* file, int error) {
    neox_fault_open((dir_ / "global_step20" / file).c_str(), error);
    std::string chosen;
    std::string message =
        error_of([&] { chosen = find_checkpoint(dir_).value_or("none").filename().string(); });
    neox_fault_open("", 0);
    return chosen + message;
  };
  for (const char* file : {"COMPLETE", "index.h5", "train_state.json"}) {
    for (int error : {EIO, ESTALE, EACCES})
      for (const std::string& part :
           Texts{std::strerror(error), "step20 may be whole, so nothing older is"})
        EXPECT_TRUE(has(found(file, error), part)) << found(file, error);
    EXPECT_EQ(found(file, ENOENT), "global_step10");
  }
  EXPECT_EQ(found("COMPLETE", 0), "global_step20");
}

// Who is told to go on from an older one would lose steps.
TEST_F(FaultTest, StorageThatANodeHasLostIsNoDamageOfWhatItReads) {
  fs::path newest = dir_ / "global_step20", file = newest / "rank_00000.h5";
  for (int64_t step : {10, 20}) ASSERT_EQ(save_all({.dir = dir_}, filled(1, step), step)[0], "");
  Layout layout = cutter_.layout(model_, 1);
  auto met = [&](auto* refuse, int error) {
    Checkpoint checkpoint(newest);
    refuse(file.c_str(), error);
    Error end(Exit::kDone, "");
    try {
      checkpoint.read(layout[0]);
    } catch (const Error& e) { end = e; }
    refuse("", 0);
    return end;
  };
  for (auto* refuse : {neox_fault_open, neox_fault_read})
    for (int error : {EIO, ESHUTDOWN, ENOTCONN, ESTALE, EACCES}) {
      Error e = met(refuse, error);
      EXPECT_EQ(e.exit(), error == EACCES ? Exit::kIo : Exit::kPeerLost) << e.what();
      EXPECT_TRUE(has(e.what(), host_name() + ", and " + newest.string() + " may be whole"));
      EXPECT_FALSE(has(e.what(), "newest other complete checkpoint")) << e.what();
    }
  Error missing = met(neox_fault_open, ENOENT);
  EXPECT_EQ(missing.exit(), Exit::kIo);
  EXPECT_TRUE(has(missing.what(), (dir_ / "global_step10").string())) << missing.what();
}

TEST_F(FaultTest, StorageThatANodeHasLostIsNoDamageOfWhatItOpens) {
  fs::path one = dir_ / "global_step1";
  neox_fault_open((one / "index.h5").c_str(), EIO);
  for (auto open : {+[](const fs::path& dir) { Checkpoint checkpoint(dir); },
                    +[](const fs::path& dir) { find_checkpoint(dir.parent_path()); }}) {
    Exit exit = Exit::kDone;
    try {
      open(one);
    } catch (const Error& e) { exit = e.exit(); }
    EXPECT_EQ(exit, Exit::kPeerLost);
  }
  neox_fault_open("", 0);
}

TEST_F(FaultTest, ARealSmallDiskBecomesFull) {
  fs::path small = dir_ / "small";
  fs::create_directories(small);
  bool mounted = ::unshare(CLONE_NEWNS) == 0 &&
                 ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                 ::mount("none", small.c_str(), "tmpfs", 0, "size=3m") == 0;
  if (!mounted) GTEST_SKIP() << "may not mount a tmpfs";
  EXPECT_EQ(save_all({.dir = small}, layouts_[0], 1), Texts(2));
  Layout big(2);
  for (int64_t rank : {0, 1})
    big[size_t(rank)].push_back({"b",
                                 "param",
                                 at::full({1 << 19}, 1, at::kFloat),
                                 {{"w", {2, 1 << 19}, {{rank, 0}, {1, 1 << 19}}, 0}}});
  std::string error = save_all({.dir = small}, big, 2)[1];
  EXPECT_TRUE(has(error, "No space left on device (ENOSPC)")) << error;
  EXPECT_EQ(find_checkpoint(small), small / "global_step1");
  EXPECT_EQ(read_back(small / "global_step1", 1), "");
  EXPECT_EQ(std::distance(fs::directory_iterator(small), {}), 2);
  ::umount2(small.c_str(), MNT_DETACH);
}

// Before the next save, whose room it takes. With torchrun each start is "none.0".
TEST_F(FaultTest, WhatAKilledLifeHasLeftGoesWhenTheNextClaimsTheDirectory) {
  for (const char* name : {"global_step1.deleting-killed", "global_step7.tmp-killed",
                           "global_step9.deleting-killed", "global_step9.tmp-none.0"})
    fs::create_directories(dir_ / name);
  RunClaim claim(dir_, "none.0");
  Texts left;
  for (const fs::path& entry : entries_of(dir_)) left.push_back(entry.filename().string());
  std::ranges::sort(left);
  EXPECT_EQ(left, (Texts{"global_step1", "global_step9.deleting-killed", "latest", "owner"}));
}

// In the shell of a Slurm job (salloc) all runs have its number, and none is another's restart.
TEST_F(FaultTest, ARunBesideAnotherInAJobIsNoRestartOfIt) {
  struct Case {
    const char *before, *life;
    bool restart;
  };
  for (const Case& c : {Case{"7.node-1.0", "7.node-2.0", false},
                        {"7.0.0", "7.node-2.0", false},
                        {"7.n.org-1.0", "7.n.org-2.0", false},
                        {"7.a.0.0", "7.b.0.0", false},
                        {"7.node-1.1", "7.node-2.0", false},
                        {"7.node-1.0", "7.node-2.1", true},
                        {"7.none.0.0", "7.none.1.0", true}}) {
    RunClaim claim(dir_, c.before);
    std::string refusal = error_of([&] { RunClaim next(dir_, c.life); });
    EXPECT_EQ(has(refusal, "is in use"), !c.restart) << c.before << ", " << c.life << refusal;
  }
}

TEST_F(FaultTest, ADirectoryThatMayNotBeWrittenIsNamed) {
  fs::path locked = dir_ / "locked";
  fs::create_directories(locked);
  ::chmod(dir_.c_str(), 0755), ::chmod(locked.c_str(), 0555);
  bool root = ::geteuid() == 0;
  if (root && ::seteuid(65534) != 0) GTEST_SKIP() << "root that cannot become another user";
  std::string error = save_all({.dir = locked / "run"}, layouts_[0], 1)[1];
  if (root) { EXPECT_EQ(::seteuid(0), 0); }
  EXPECT_TRUE(has(error, "cannot make the directory " + (locked / "run").string())) << error;
  EXPECT_TRUE(has(error, "EACCES")) << error;
}

TEST_F(FaultTest, AFileInTheWayIsNamed) {
  std::string error = save_all({.dir = dir_ / "latest"}, layouts_[0], 1)[0];
  EXPECT_TRUE(has(error, (dir_ / "latest").string())) << error;
  write_file_atomically(dir_ / "global_step2", "x");
  EXPECT_TRUE(has(save(2)[0], "cannot rename ")) << save(2)[0];
}

}  // namespace
}  // namespace neox
