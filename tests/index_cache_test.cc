#include "data/index_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>
#include <utility>

#include "data_files.h"

namespace neox {
namespace {

using testing::Directory;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

StoredArrays arrays_of(const std::string& a, const std::string& b) {
  auto memory = std::make_shared<std::pair<std::string, std::string>>(a, b);
  return {{std::as_bytes(std::span(memory->first)), std::as_bytes(std::span(memory->second))},
          memory};
}

std::string text(const StoredArrays& stored, size_t i) {
  auto bytes = stored.arrays.at(i);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class CacheIn : public ::testing::Test {
 protected:
  // The first array of what the cache gives; counts what is built.
  std::string get(IndexCache& cache, const std::string& name = "k.samples") {
    StoredArrays found = cache.get(name, [&] {
      ++builds_;
      return arrays_of("first", std::string(1000, 'b'));
    });
    EXPECT_EQ(text(found, 1), std::string(1000, 'b'));
    return text(found, 0);
  }
  Directory dir_;
  std::atomic<int> builds_ = 0;
};

TEST_F(CacheIn, BuildsOnce) {
  for (int i = 0; i < 3; ++i) {
    IndexCache cache({dir_.path() / "index-cache"});
    EXPECT_EQ(get(cache), "first");
    EXPECT_THAT(cache.warnings(), IsEmpty());
  }
  EXPECT_EQ(builds_, 1);
  IndexCache cache({dir_.path() / "index-cache"});
  get(cache, "other.samples");
  EXPECT_EQ(builds_, 2);
  EXPECT_EQ(fs::exists(dir_.path() / "index-cache" / "k.samples.lock"), false);
}

TEST_F(CacheIn, FindsDamage) {
  fs::path file = dir_.path() / "k.samples";
  auto damage = [&](const std::function<void(std::string&)>& change) {
    std::string content = read_file(file);
    change(content);
    write_file_atomically(file, content);
    IndexCache cache({dir_.path()});
    EXPECT_EQ(get(cache), "first");
    EXPECT_THAT(cache.warnings(), ElementsAre(HasSubstr("k.samples")));
  };
  IndexCache cache({dir_.path()});
  get(cache);
  damage([](std::string& c) { c[300] ^= 1; });
  damage([](std::string& c) { c[20] ^= 1; });
  damage([](std::string& c) { c.resize(c.size() - 64); });
  damage([](std::string& c) { c.resize(5); });
  damage([](std::string& c) { c.clear(); });
  damage([](std::string& c) { c += std::string(64, 0); });
  EXPECT_EQ(builds_, 7);
  IndexCache whole({dir_.path()});
  get(whole);
  EXPECT_EQ(builds_, 7);  // the damage was mended
  fs::copy_file(file, dir_.path() / "z.samples");
  get(whole, "z.samples");
  EXPECT_EQ(builds_, 8);  // another's content
}

TEST_F(CacheIn, OneOfManyBuilds) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      IndexCache cache({dir_.path()});
      cache.get("k.samples", [&] {
        ++builds_;
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        return arrays_of("a", "b");
      });
    });
  threads.clear();
  EXPECT_EQ(builds_, 1);
}

TEST_F(CacheIn, BuildsWhereTheBuilderDied) {
  pid_t child = ::fork();
  if (child == 0) {
    int fd = ::open((dir_ / "k.samples.lock").c_str(), O_RDWR | O_CREAT, 0666);
    ::flock(fd, LOCK_EX);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  IndexCache cache({dir_.path()});
  EXPECT_EQ(get(cache), "first");
}

TEST_F(CacheIn, BuildsAndKeepsWhereTheBuilderDiesMeanwhile) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  pid_t child = ::fork();
  if (child == 0) {
    int fd = ::open((dir_ / "k.samples.lock").c_str(), O_RDWR | O_CREAT, 0666);
    ::flock(fd, LOCK_EX);
    if (::write(ready[1], "", 1) == 1) ::pause();
    ::_exit(1);
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  IndexCache cache({dir_.path()});
  cache.get(
      "k.samples", [] { return arrays_of("a", "b"); }, [&] { ::kill(child, SIGKILL); });
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(fs::exists(dir_ / "k.samples"));
  for (int end : ready) ::close(end);
}

// A directory has the name of the file, so that nobody can store it.
TEST_F(CacheIn, AllWhoWaitedBuildAtOnceWhereTheFirstCouldNotStore) {
  constexpr int kWaiting = 6;
  fs::create_directories(dir_.path() / "k.samples" / "full");
  std::atomic<int> waiting = 0, together = 0;
  auto comes_to = [](const std::atomic<int>& count, int wanted) {
    for (int i = 0; i < 500 && count < wanted; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return count == wanted;
  };
  auto build = [&] {
    const bool first = ++builds_ == 1;
    together += !first;
    EXPECT_TRUE(comes_to(first ? waiting : together, kWaiting));
    return arrays_of("a", "b");
  };
  std::vector<std::jthread> threads;
  for (int i = 0; i <= kWaiting; ++i)
    threads.emplace_back([&] {
      bool polled = false;
      IndexCache cache({dir_.path()});
      cache.get("k.samples", build, [&] { waiting += !std::exchange(polled, true); });
      EXPECT_THAT(cache.warnings(), ElementsAre(HasSubstr(polled ? "disk full" : "not kept")));
    });
  threads.clear();
  EXPECT_EQ(builds_, kWaiting + 1);
  EXPECT_THAT(dir_.list(), ElementsAre("k.samples"));
}

TEST_F(CacheIn, RemovesWhatABuilderThatDiedHasLeft) {
  dir_.put("k.samples.tmp-7-1-2", "x");
  dir_.put("z.samples.tmp-7-1-2", "another's");
  int fd = ::open((dir_ / "k.samples.tmp-8-1-2").c_str(), O_RDWR | O_CREAT, 0666);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);  // of one that lives
  IndexCache cache({dir_.path()});
  get(cache);
  EXPECT_THAT(dir_.list(),
              UnorderedElementsAre("k.samples", "k.samples.tmp-8-1-2", "z.samples.tmp-7-1-2"));
  ::close(fd);
}

TEST_F(CacheIn, WaitsNoLongerThanItMay) {
  int fd = ::open((dir_ / "k.samples.lock").c_str(), O_RDWR | O_CREAT, 0666);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  IndexCache cache({dir_.path()}, std::chrono::seconds(0));
  EXPECT_EQ(get(cache), "first");
  EXPECT_THAT(cache.warnings(), ElementsAre(HasSubstr("another process")));
  EXPECT_THAT(error_of([&] {
                IndexCache(std::vector<fs::path>{dir_.path()})
                    .get(
                        "k.samples", [] { return arrays_of("", ""); },
                        [] { fail(Exit::kRequeue, "stop"); });
              }),
              HasSubstr("stop"));
  ::close(fd);
}

// A file where the directory should be: not even root can write there.
TEST_F(CacheIn, TakesTheFirstDirectoryThatItCanWriteTo) {
  dir_.put("file", "");
  IndexCache cache({dir_.path() / "file" / "index-cache", dir_.path() / "second"});
  get(cache);
  EXPECT_TRUE(fs::exists(dir_.path() / "second" / "k.samples"));
  IndexCache none({dir_.path() / "file" / "index-cache"});
  EXPECT_EQ(get(none), "first");
  EXPECT_THAT(none.warnings(), ElementsAre(HasSubstr("data_cache_path")));
  IndexCache nowhere({});
  EXPECT_EQ(get(nowhere), "first");
  EXPECT_THAT(nowhere.warnings(), IsEmpty());
}

TEST_F(CacheIn, KeepsNothingOfABuildThatFails) {
  IndexCache cache({dir_.path()});
  EXPECT_THAT(error_of([&] {
                cache.get("k.samples", []() -> StoredArrays { fail(Exit::kUsage, "no data"); });
              }),
              HasSubstr("no data"));
  EXPECT_THAT(dir_.list(), IsEmpty());
}

}  // namespace
}  // namespace neox
