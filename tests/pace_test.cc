#include "train/pace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "train/own_time.h"

namespace neox {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Not;

// A job of which this process is rank 0, and the others are what `texts` say.
class FakeJob : public Job {
 public:
  explicit FakeJob(const std::vector<std::string>& hosts) : hosts_(hosts), texts(hosts.size()) {}
  const ProcessInfo& process() const override { return process_; }
  Control& control() override { return control_; }
  const std::vector<std::string>& hosts() const override { return hosts_; }
  void watch(std::function<void(const std::string&)>, const std::atomic<int>&,
             std::chrono::seconds) override {}
  void failed(const std::string&, Exit) noexcept override {}
  void tell(const std::string& text) override { texts[0] = text; }
  std::vector<std::string> told() const override { return texts; }
  void check_all_alive() const override {}

 private:
  ProcessInfo process_;
  AloneControl control_;
  std::vector<std::string> hosts_;

 public:
  std::vector<std::string> texts;
};

class Paces {
 public:
  Paces(const std::vector<std::string>& hosts, const Layout& layout)
      : job_(hosts), pace_(job_, layout, milliseconds(0)), seconds_(hosts.size()) {}

  // Rank 0's look after so many steps, of which each rank's own part took that long.
  std::optional<Pace::Look> look_after(int64_t steps, const std::vector<double>& own) {
    steps_ += steps;
    for (int64_t i = 0; i < steps; ++i) pace_.step(own[0]);
    for (size_t rank = 1; rank < own.size(); ++rank) {
      seconds_[rank] += own[rank] * static_cast<double>(steps);
      job_.texts[rank] = concat(steps_, ' ', seconds_[rank]);
    }
    return pace_.look();
  }
  std::string warning_after(int64_t steps, const std::vector<double>& own) {
    auto look = look_after(steps, own);
    EXPECT_TRUE(look);
    return look ? look->warning : "no look";
  }

  FakeJob& job() { return job_; }
  Pace& pace() { return pace_; }

 private:
  FakeJob job_;
  Pace pace_;
  int64_t steps_ = 0;
  std::vector<double> seconds_;
};

TEST(Pace, ARankIsSlowThatIsSoTwiceAndIsNamedOnce) {
  Paces paces({"node1", "node1", "node2", "node2"}, {.replicate = 4});
  const std::vector<double> even(4, 0.1), late = {0.1, 0.1, 0.1, 0.15};
  EXPECT_FALSE(paces.look_after(10, {9, 1, 1, 1}));  // first steps do not count
  EXPECT_EQ(paces.warning_after(10, late), "");
  auto look = paces.look_after(10, late);
  ASSERT_TRUE(look);
  EXPECT_EQ(
      look->warning,
      "rank 3 on node2 is slow, and the others wait: its own part of a step took 150 ms, 1.50 "
      "times the median of the ranks with the same work; neox-doctor compares nodes");
  EXPECT_THAT(look->slowest, DoubleNear(1.5, 1e-6));
  EXPECT_EQ(paces.warning_after(10, late), "");  // known
  EXPECT_EQ(paces.warning_after(10, even), "");
  EXPECT_EQ(paces.warning_after(10, late), "");  // once
  EXPECT_EQ(paces.warning_after(10, even), "");
  EXPECT_EQ(paces.warning_after(10, {0.1, 0.15, 0.1, 0.1}), "");
  EXPECT_EQ(paces.warning_after(10, late), "");  // another one, once each
  EXPECT_THAT(paces.warning_after(10, late), HasSubstr("rank 3 on node2 is slow"));  // again
}

TEST(Pace, RanksThatAreSlowTogetherAreNamedTogether) {
  Paces paces({"a", "a", "a", "b", "b", "c", "c"}, {.replicate = 7});
  const std::vector<double> late = {1, 1, 1, 1.25, 2, 1, 1.1};
  paces.look_after(5, late);
  paces.look_after(5, late);
  EXPECT_THAT(paces.warning_after(5, late),
              HasSubstr("ranks 3-4 on b are slow, and the others wait: their own part of a step "
                        "took up to 2 s, 2.00 times"));
}

TEST(Pace, StagesOfAPipelineDoDifferentWork) {
  Paces paces({"a", "a", "b", "b"}, {.pp = 2, .replicate = 2});
  const std::vector<double> fine = {0.3, 0.3, 0.1, 0.1}, late = {0.3, 0.3, 0.1, 0.15};
  for (int i = 0; i < 3; ++i) paces.look_after(5, fine);
  EXPECT_EQ(paces.look_after(5, fine)->slowest, 1);
  paces.look_after(5, late);
  EXPECT_THAT(paces.warning_after(5, late), HasSubstr("rank 3 on b is slow"));
}

// It waits for nobody, and counts nothing; the others idle.
TEST(Pace, ARankAloneIsNotSlow) {
  Paces paces({"a", "b"}, {});
  for (int i = 0; i < 2; ++i) paces.look_after(5, {0});
  auto look = paces.look_after(5, {0});
  ASSERT_TRUE(look);
  EXPECT_EQ(look->slowest, 1);
  EXPECT_EQ(look->warning, "");
}

TEST(Pace, NothingIsSaidBeforeAllHaveStepsEnough) {
  Paces paces({"a", "b"}, {.replicate = 2});
  EXPECT_FALSE(paces.pace().look());
  EXPECT_FALSE(paces.look_after(4, {1, 1}));
  EXPECT_FALSE(paces.look_after(1, {1, 1}));  // the first
  EXPECT_FALSE(paces.look_after(4, {1, 1}));
  EXPECT_TRUE(paces.look_after(1, {1, 1}));
  paces.job().texts[1] = "";
  EXPECT_FALSE(paces.pace().look());
}

// Two ranks alike, weeks after they began.
TEST(Pace, ALongLifeIsToldAsExactlyAsAShortOne) {
  FakeJob first({"a", "b"}), second({"a", "b"});
  Pace pace(first, {.replicate = 2}, milliseconds(0)), other(second, {.replicate = 2});
  pace.step(2'000'000), other.step(2'000'004);
  for (int window = 0; window < 3; ++window) {
    for (int i = 0; i < 10; ++i) pace.step(0.3), other.step(0.3);
    first.texts[1] = second.texts[0];
    auto look = pace.look();
    EXPECT_EQ(look.has_value(), window > 0);  // the first
    EXPECT_THAT(look ? look->slowest : 1, DoubleNear(1, 0.01));
  }
}

TEST(Pace, AWindowPasses) {
  FakeJob job({"a", "b"});
  Pace pace(job, {.replicate = 2}, milliseconds(200));
  job.texts[1] = "100 1";
  for (int i = 0; i < 100; ++i) pace.step(0.01);
  EXPECT_FALSE(pace.look());
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_FALSE(pace.look());  // the first
  for (int i = 0; i < 100; ++i) pace.step(0.01);
  job.texts[1] = "200 2";
  EXPECT_FALSE(pace.look());
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_TRUE(pace.look());
}

// What its operations take is waiting for others.
class Waiting : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void all_reduce(Tensor&, Op) override {
    std::this_thread::sleep_for(milliseconds(100));
    spent_ += 0.1;
  }
  void reduce_scatter(const Tensor&, Tensor&) override {}
  void all_gather(const Tensor&, Tensor&) override {}
  void broadcast(Tensor&, int) override {}
  void exchange(std::span<Transfer>) override {}
  std::unique_ptr<Communicator> split(int, const std::string&) override { return nullptr; }
  double seconds_spent() const override { return spent_; }
  void abort(const std::string&) override {}

 private:
  double spent_ = 0;
};

TEST(OwnTime, IsWithoutTheWaitForOthers) {
  Waiting world;
  OwnTime own(at::kCPU, world);
  Tensor none;
  own.of_host([] { std::this_thread::sleep_for(milliseconds(20)); });
  own.of_device([&] {
    std::this_thread::sleep_for(milliseconds(30));
    world.all_reduce(none, Communicator::Op::kSum);
  });
  world.all_reduce(none, Communicator::Op::kSum);
  double seconds = own.take().seconds();
  EXPECT_GE(seconds, 0.05);
  EXPECT_LT(seconds, 0.12);
  EXPECT_EQ(own.take().seconds(), 0);
}

TEST(OwnTime, OfARankAloneIsNotCounted) {
  auto world = self_communicator();
  OwnTime own(at::kCPU, *world);
  own.of_device([] { std::this_thread::sleep_for(milliseconds(2)); });
  EXPECT_EQ(own.take().seconds(), 0);
}

}  // namespace
}  // namespace neox
