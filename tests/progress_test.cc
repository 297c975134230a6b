#include "base/progress.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <thread>

#include "base/log.h"

namespace neox {
namespace {

// A screen of a given kind and a clock that the test turns.
struct FakeScreen {
  Terminal terminal;
  double now = 100;
  std::vector<std::string> live = {}, lines = {};

  ProgressScreen screen() {
    return {.terminal = [this] { return terminal; },
            .live = [this](const std::string& text) { live.push_back(text); },
            .line = [this](const std::string& text) { lines.push_back(text); },
            .seconds = [this] { return now; }};
  }
};

Terminal wide(int columns) { return {.live = true, .utf8 = false, .columns = columns}; }

Terminal with(bool is_terminal, std::map<std::string, std::string> variables) {
  return describe_terminal(is_terminal, [&](const std::string& name) { return variables[name]; });
}

TEST(Progress, LiveLineShowsBarRateAndTimeLeft) {
  FakeScreen fake{.terminal = wide(79)};
  Progress progress({.label = "tokenize", .unit = "documents", .total = 4000}, fake.screen());
  fake.now += 10;
  progress.update(1000, "12 MB");
  EXPECT_EQ(fake.live.back(),
            "tokenize [===>           ]  25% 1,000/4,000 documents  100/s  30 s left  12 MB");
}

TEST(Progress, LiveLineFitsEveryWidth) {
  for (int columns = 1; columns < 200; ++columns) {
    FakeScreen fake{.terminal = wide(columns)};
    fake.terminal.utf8 = true;
    Progress progress({.label = "präpare", .unit = "B", .total = 1 << 30}, fake.screen());
    fake.now += 3;
    progress.update(123456789, "einige Wörter");
    EXPECT_LT(display_width(fake.live.back()), columns);
  }
}

TEST(Progress, LiveLineIsRewrittenAtMostTenTimesASecond) {
  FakeScreen fake{.terminal = wide(80)};
  Progress progress({.label = "count", .unit = "files"}, fake.screen());
  for (int i = 0; i < 10000; ++i) fake.now += 0.001, progress.add(1);
  EXPECT_LE(fake.live.size(), 101u);
  EXPECT_GE(fake.live.size(), 90u);
  EXPECT_TRUE(fake.lines.empty());
}

TEST(Progress, PlainLinesComeAtGrowingIntervals) {
  FakeScreen fake;
  Progress progress({.label = "read", .unit = "B", .total = 4'000'000'000}, fake.screen());
  std::vector<double> when;
  for (int i = 0; i < 20000; ++i) {
    fake.now += 0.05;
    progress.add(100'000);
    if (fake.lines.size() > when.size()) when.push_back(fake.now - 100);
  }
  EXPECT_TRUE(fake.live.empty());
  ASSERT_GT(when.size(), 10u);
  EXPECT_NEAR(when[0], 2, 0.11);
  EXPECT_NEAR(when[1], 12, 0.21);
  EXPECT_NEAR(when[2], 22, 0.31);
  EXPECT_NEAR(when.back() - when[when.size() - 2], 47, 5);
  EXPECT_EQ(fake.lines[2], "read: 44.5 MB/4.00 GB (1%), 2.00 MB/s, 32 min 58 s left");
}

TEST(Progress, SlowWorkSaysHowLongAUnitTakes) {
  FakeScreen fake;
  Progress progress({.label = "train", .unit = "steps", .start = 7}, fake.screen());
  fake.now += 4, progress.update(8);
  EXPECT_EQ(fake.lines, std::vector<std::string>{"train: 8 steps, 4.0 s each"});
}

TEST(Progress, FinishSaysHowMuchAndHowFastOnce) {
  FakeScreen fake{.terminal = wide(80)};
  {
    Progress progress({.label = "tokenize", .unit = "documents", .total = 50}, fake.screen());
    fake.now += 20;
    progress.update(50);
    progress.finish();
    progress.finish();
  }
  EXPECT_EQ(fake.lines, std::vector<std::string>{"tokenize: 50 documents in 20 s, 2.50/s"});
  EXPECT_EQ(fake.live.back(), "");
}

TEST(Progress, FailedWorkLeavesNoLiveLine) {
  FakeScreen fake{.terminal = wide(80)};
  { Progress({.label = "x", .unit = "files"}, fake.screen()).add(1); }
  EXPECT_EQ(fake.live.back(), "");
  EXPECT_TRUE(fake.lines.empty());
}

TEST(Progress, CountsOfManyThreadsAddUp) {
  FakeScreen fake;
  Progress progress({.label = "x", .unit = "files"}, fake.screen());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) progress.add(1);
    });
  for (auto& thread : threads) thread.join();
  fake.now += 1;
  progress.finish();
  EXPECT_EQ(fake.lines.back(), "x: 4,000 files in 1.0 s, 4.00 k/s");
}

TEST(Terminal, IsNotLiveInAFileOrWhereDumb) {
  EXPECT_TRUE(with(true, {{"TERM", "xterm"}}).live);
  EXPECT_FALSE(with(false, {{"TERM", "xterm"}}).live);
  EXPECT_FALSE(with(true, {{"TERM", "dumb"}}).live);
  EXPECT_FALSE(with(true, {}).live);
}

TEST(Terminal, HasNoColourWhereNoColorIsSet) {
  EXPECT_TRUE(with(true, {{"TERM", "xterm"}}).colour);
  EXPECT_FALSE(with(true, {{"TERM", "xterm"}, {"NO_COLOR", "1"}}).colour);
}

TEST(Terminal, FirstLocaleVariableThatIsSetDecides) {
  EXPECT_TRUE(with(false, {{"LANG", "de_DE.UTF-8"}}).utf8);
  EXPECT_TRUE(with(false, {{"LC_ALL", "C.utf8"}, {"LANG", "C"}}).utf8);
  EXPECT_FALSE(with(false, {{"LC_ALL", "C"}, {"LANG", "de_DE.UTF-8"}}).utf8);
  EXPECT_FALSE(with(false, {}).utf8);
}

TEST(Terminal, PrintableTextHasNoControlsAndIsUtf8) {
  EXPECT_EQ(printable("a\033[31mb\n\xC2\x9B"), "a [31mb  ");
  EXPECT_EQ(printable("für € 😀"), "für € 😀");
  EXPECT_EQ(printable("\xFFx\xC0\x80\xED\xA0\x80\xE2\x82"), "�x�������");
}

// What a terminal receives from a process that logs and shows a live line.
std::string terminal_output(const std::function<void()>& body) {
  int terminal = -1;
  pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    body();
    ::_exit(0);
  }
  std::string text;
  char part[4096];
  for (ssize_t n; (n = ::read(terminal, part, sizeof part)) > 0;)
    text.append(part, static_cast<size_t>(n));
  ::close(terminal);
  ::waitpid(child, nullptr, 0);
  return text;
}

TEST(Progress, LogLinesAppearAboveTheLiveLine) {
  std::string text = terminal_output([] {
    ::setenv("TERM", "xterm", 1);
    Progress progress({.label = "count", .unit = "files"});
    progress.add(3);
    log_info("between");
    progress.finish();
  });
  const std::string clear = "\r\033[K";
  size_t log = text.find("between\r\n");
  ASSERT_NE(log, std::string::npos);
  EXPECT_EQ(text.find(clear + "count 3 files"), 0u);
  EXPECT_EQ(text.find(clear + "count 3 files", 1), std::string::npos);
  size_t stamp = std::string("2026-01-02 12:34:56 ").size();
  EXPECT_EQ(text.substr(log - stamp - clear.size(), clear.size()), clear);
  EXPECT_EQ(text.substr(log + 9, 13), "count 3 files");
  EXPECT_EQ(text.substr(log + 22, clear.size()), clear);
}

}  // namespace
}  // namespace neox
