// Copies of checkpoints in S3, and back: against objects in memory.
#include <gmock/gmock.h>

#include <condition_variable>
#include <map>
#include <mutex>

#include "checkpoint/layout.h"
#include "checkpoint_support.h"
#include "s3/checkpoint_copies.h"

namespace neox {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Objects : public S3Directory {
 public:
  const std::string& url() const override { return url_; }
  std::vector<Object> list(const std::string& below) override {
    std::lock_guard lock(mutex_);
    std::vector<Object> found;
    for (const auto& [name, text] : objects)
      if (below.empty() || name.starts_with(below + "/")) found.push_back({name, std::ssize(text)});
    return found;
  }
  void read(const Object& object, int64_t offset, std::span<std::byte> bytes) override {
    std::lock_guard lock(mutex_);
    std::string_view text = std::string_view(objects.at(object.name)).substr(size_t(offset));
    check_io(text.size() >= bytes.size(), object.name, " is shorter");
    std::ranges::copy(std::as_bytes(std::span(text)).first(bytes.size()), bytes.begin());
  }
  std::unique_ptr<S3Writer> write(const std::string& name) override;
  void give_up() override {
    std::lock_guard lock(mutex_);
    given_up_ = true;
    changed_.notify_all();
  }
  void put(const std::string& name, const std::string& text) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_ || given_up_ || name == "writer.txt"; });
    check_io(!given_up_, "given up");
    check_io(failures == 0 || name.ends_with(".txt") || failures-- == 0, "no answer");
    objects[name] = text;
    written.push_back(name);
  }
  void open(bool open) {
    std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }

  std::map<std::string, std::string> objects;
  std::vector<std::string> written;
  int failures = 0;  // of objects to come

 private:
  std::string url_ = "s3://bucket/run";
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true, given_up_ = false;
};

class ObjectWriter : public S3Writer {
 public:
  ObjectWriter(Objects& objects, std::string name) : objects_(objects), name_(std::move(name)) {}
  void append(std::span<const std::byte> bytes) override {
    text_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  void finish() override { objects_.put(name_, text_); }

 private:
  Objects& objects_;
  std::string name_, text_;
};

std::unique_ptr<S3Writer> Objects::write(const std::string& name) {
  return std::make_unique<ObjectWriter>(*this, name);
}

class S3 : public CheckpointTest {
 protected:
  // The checkpoint of two ranks at that step.
  fs::path saved(int64_t step) {
    save_all({.dir = dir_}, filled(2, step), step);
    return dir_ / step_name(step);
  }
  void copy(const fs::path& checkpoint) {
    CheckpointCopies copies(objects_, "me");
    copies.add(checkpoint);
    copies.finish({});
  }
  void lose_all() {
    for (const fs::path& entry : entries_of(dir_)) fs::remove_all(entry);
  }
  std::string fetch_error(int64_t step) {
    return error_of([&] { fetch_copy(objects_, step, dir_, "0", {}); });
  }
  Objects objects_;
};

TEST_F(S3, PlaceIsNamedByTheSaveDirectory) {
  EXPECT_EQ(s3_place("s3://b/p", "runs/first"), "s3://b/p/first");
  EXPECT_EQ(s3_place("s3://b/p/", "runs/first/"), "s3://b/p/first");
  EXPECT_EQ(s3_place("s3://b", "/fsx/a/../c/."), "s3://b/c");
  EXPECT_EQ(s3_place("s3://b/p?region=eu-west-1", "x"), "s3://b/p/x?region=eu-west-1");
  EXPECT_EQ(s3_place("s3://b", "."), "s3://b/" + fs::current_path().filename().string());
}

TEST_F(S3, CopyIsTheSameFilesWithCompleteLast) {
  fs::path checkpoint = saved(5);
  copy(checkpoint);
  EXPECT_EQ(objects_.written.front(), "writer.txt");
  EXPECT_EQ(objects_.written.back(), "global_step5/COMPLETE");
  std::vector<fs::path> files = entries_of(checkpoint);
  EXPECT_EQ(objects_.objects.size(), files.size() + 1);
  for (const fs::path& file : files)
    EXPECT_EQ(objects_.objects["global_step5/" + file.filename().string()], read_file(file));
  EXPECT_THAT(list_copies(objects_), ElementsAre(5));
}

TEST_F(S3, WhatOthersPutBesideTheFilesIsNotCopied) {
  fs::path checkpoint = saved(5);
  fs::create_directories(checkpoint / "hf");
  fs::create_symlink("nowhere", checkpoint / "link");
  copy(checkpoint);
  EXPECT_THAT(list_copies(objects_), ElementsAre(5));
}

TEST_F(S3, WhatOthersPutBesideACopyIsNotFetched) {
  copy(saved(5));
  lose_all();
  objects_.objects["global_step5/hf/train_state.json"] = "{}";
  fetch_copy(objects_, 5, dir_, "0", {});
  EXPECT_EQ(read_back(dir_ / step_name(5), 5), "");
}

TEST_F(S3, CopyThatIsThereIsLeft) {
  fs::path checkpoint = saved(5);
  copy(checkpoint);
  objects_.written.clear();
  copy(checkpoint);
  EXPECT_THAT(objects_.written, ElementsAre("writer.txt"));
}

TEST_F(S3, CopyOfAnotherCheckpointOfTheStepIsReplaced) {
  fs::path checkpoint = saved(5);
  copy(checkpoint);
  objects_.objects["global_step5/COMPLETE"] = "of another run";
  objects_.written.clear();
  copy(checkpoint);
  EXPECT_EQ(objects_.written[1], "global_step5/COMPLETE") << "it counts while files are replaced";
  EXPECT_EQ(objects_.objects["global_step5/COMPLETE"], read_file(checkpoint / kCompleteFile));
}

TEST_F(S3, CheckpointIsNeededUntilItIsCopied) {
  fs::path checkpoint = saved(5);
  objects_.open(false);
  CheckpointCopies copies(objects_, "me");
  EXPECT_FALSE(copies.needs(5));
  copies.add(checkpoint);
  EXPECT_TRUE(copies.needs(5));
  objects_.open(true);
  copies.finish({});
  EXPECT_FALSE(copies.needs(5));
}

TEST_F(S3, NeededCheckpointIsNotDropped) {
  SaveOptions options{
      .dir = dir_, .keep_last = 1, .needed = [](int64_t step) { return step == 1; }};
  for (int64_t step : {1, 2, 3}) save_all(options, filled(1, step), step);
  EXPECT_TRUE(is_dir(dir_ / step_name(1)));
  EXPECT_FALSE(is_dir(dir_ / step_name(2)));
  EXPECT_TRUE(is_dir(dir_ / step_name(3)));
}

TEST_F(S3, FailureIsTriedAgainAtTheEnd) {
  objects_.failures = 1;
  copy(saved(5));
  EXPECT_THAT(list_copies(objects_), ElementsAre(5));
}

TEST_F(S3, SecondFailureIsAnError) {
  fs::path checkpoint = saved(5);
  objects_.failures = 1000;
  EXPECT_THAT(error_of([&] { copy(checkpoint); }),
              testing::AllOf(HasSubstr("1 checkpoint could not be copied to s3://bucket/run"),
                             HasSubstr("no answer"), HasSubstr(dir_.string())));
}

TEST_F(S3, EndOfTheRunGivesUpWhatIsLeft) {
  fs::path checkpoint = saved(5);
  objects_.open(false);
  {
    CheckpointCopies copies(objects_, "me");
    copies.add(checkpoint);
    EXPECT_EQ(error_of([&] { copies.finish([] { fail(Exit::kRequeue, "stopped"); }); }), "stopped");
  }
  EXPECT_THAT(list_copies(objects_), ElementsAre());
}

TEST_F(S3, FetchedCheckpointIsTheOneThatWasSaved) {
  copy(saved(5));
  copy(saved(10));
  lose_all();
  fetch_copy(objects_, 10, dir_, "0", {});
  EXPECT_EQ(read_back(dir_ / step_name(10), 10), "");
  EXPECT_EQ(latest_in(dir_), "global_step10");
  EXPECT_FALSE(is_there(dir_ / "global_step5"));
}

TEST_F(S3, CopyWithoutAFileIsRefused) {
  copy(saved(5));
  lose_all();
  objects_.objects.erase("global_step5/rank_00001.h5");
  EXPECT_THAT(fetch_error(5),
              testing::AllOf(HasSubstr("cannot fetch global_step5 from s3://bucket"),
                             HasSubstr("rank_00001.h5")));
  EXPECT_TRUE(fs::is_empty(dir_));
}

TEST_F(S3, CopyOfOtherBytesIsRefused) {
  copy(saved(5));
  lose_all();
  objects_.objects["global_step5/train_state.json"][7] ^= 1;
  EXPECT_THAT(fetch_error(5), HasSubstr("train_state.json"));
  EXPECT_TRUE(fs::is_empty(dir_));
}

TEST_F(S3, ObjectsWithNamesOfOtherPlacesAreRefused) {
  copy(saved(5));
  lose_all();
  objects_.objects["global_step5/.."] = "x";
  EXPECT_THAT(fetch_error(5), HasSubstr("which is no file of a checkpoint"));
}

TEST_F(S3, StopEndsAFetch) {
  copy(saved(5));
  lose_all();
  EXPECT_EQ(error_of([&] {
              fetch_copy(objects_, 5, dir_, "0", [] { throw std::runtime_error("stopped"); });
            }),
            "stopped");
  EXPECT_TRUE(fs::is_empty(dir_));
}

}  // namespace
}  // namespace neox
