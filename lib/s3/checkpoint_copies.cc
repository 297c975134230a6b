#include "s3/checkpoint_copies.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "checkpoint/layout.h"
#include "s3/file_transfer.h"

namespace neox {
namespace {

constexpr const char* kWriterObject = "writer.txt";
constexpr std::chrono::milliseconds kLook(100);

using Clock = std::chrono::steady_clock;

std::string object_of(const fs::path& checkpoint, const std::string& file) {
  return concat(checkpoint.filename().string(), "/", file);
}

// Whether the copy is there. One that was made of another checkpoint of this step no longer counts
// from here on.
bool is_copied(S3Directory& place, const fs::path& checkpoint, const std::string& complete) {
  std::string name = object_of(checkpoint, kCompleteFile);
  for (const S3Directory::Object& object : place.list(checkpoint.filename().string())) {
    if (object.name != name) continue;
    if (place.read_text(object) == complete) return true;
    place.write_text(name, "another checkpoint of this step is being copied\n");
  }
  return false;
}

std::vector<fs::path> files_of(const fs::path& checkpoint) {
  std::vector<fs::path> files = entries_of(checkpoint);
  std::erase_if(files, [](const fs::path& file) {
    return file.filename() == kCompleteFile || type_of(file) != fs::file_type::regular;
  });
  return files;
}

}  // namespace

std::string s3_place(const std::string& s3_path, const std::filesystem::path& save) {
  std::string name = (fs::absolute(save) / "").lexically_normal().parent_path().filename();
  size_t options = std::min(s3_path.find('?'), s3_path.size());
  std::string path = s3_path.substr(0, options);
  while (path.ends_with('/')) path.pop_back();
  return concat(path, "/", name, s3_path.substr(options));
}

std::vector<int64_t> list_copies(S3Directory& place) {
  std::vector<int64_t> steps;
  for (const S3Directory::Object& object : place.list("")) {
    size_t slash = object.name.find('/');
    if (slash == std::string::npos || object.name.substr(slash + 1) != kCompleteFile) continue;
    if (auto step = step_of(object.name.substr(0, slash))) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  return steps;
}

CheckpointCopies::CheckpointCopies(S3Directory& place, const std::string& writer) : place_(place) {
  place_.write_text(kWriterObject, writer);
  thread_ = std::thread([this] { work(); });
}

CheckpointCopies::~CheckpointCopies() {
  std::vector<std::string> left;
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
    for (const auto& [step, dir] : waiting_) left.push_back(dir.filename().string());
  }
  changed_.notify_all();
  if (!left.empty()) {
    place_.give_up();
    log_warning(join(left, ", "), left.size() == 1 ? " is" : " are", " not in ", place_.url(),
                " yet; the next start of the run goes on copying");
  }
  thread_.join();
}

void CheckpointCopies::add(const fs::path& checkpoint) {
  std::optional<int64_t> step = step_of(checkpoint.filename().string());
  check(step.has_value(), checkpoint.string(), " is no checkpoint");
  given_bytes_ += bytes_below(checkpoint);
  size_t waiting = 0;
  {
    std::lock_guard lock(mutex_);
    waiting_[*step] = checkpoint;
    waiting = waiting_.size();
  }
  changed_.notify_all();
  if (waiting > 2 && !std::exchange(warned_, true))
    log_warning(waiting, " checkpoints wait to be copied to ", place_.url(),
                "; they stay on disk until they are, also beyond keep_last_n_checkpoints");
}

bool CheckpointCopies::needs(int64_t step) const {
  std::lock_guard lock(mutex_);
  return waiting_.contains(step);
}

std::optional<fs::path> CheckpointCopies::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ends_ || !waiting_.empty(); });
  if (ends_) return std::nullopt;
  return waiting_.begin()->second;
}

void CheckpointCopies::work() {
  while (auto checkpoint = next()) {
    std::string why = copy_logged(*checkpoint);
    std::lock_guard lock(mutex_);
    if (ends_) return;
    auto done = std::ranges::find(waiting_, *checkpoint, &decltype(waiting_)::value_type::second);
    if (!why.empty()) {
      failed_.insert(*done);
      why_failed_ = why;
    }
    waiting_.erase(done);
    changed_.notify_all();
  }
}

std::string CheckpointCopies::copy_logged(const fs::path& checkpoint) try {
  auto start = Clock::now();
  std::string complete = read_file(checkpoint / kCompleteFile);
  auto bytes = static_cast<double>(bytes_below(checkpoint));
  if (is_copied(place_, checkpoint, complete)) {
    copied_bytes_ += static_cast<int64_t>(bytes);
    return "";
  }
  copy_files(checkpoint);
  place_.write_text(object_of(checkpoint, kCompleteFile), complete);
  double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  log_info("copied ", checkpoint.string(), " to ", place_.url(), ": ", human_bytes(bytes), " in ",
           human_duration(seconds), ", ", human_bytes(bytes / seconds), "/s");
  return "";
} catch (const std::exception& e) {
  std::unique_lock lock(mutex_);
  if (ends_) return e.what();
  lock.unlock();
  log_warning(checkpoint.string(), " is not copied to S3: ", e.what(),
              "; training goes on, and at its end or next start this is tried again");
  return e.what();
}

void CheckpointCopies::copy_files(const fs::path& checkpoint) {
  std::vector<fs::path> files = files_of(checkpoint);
  run_tasks(files.size(), kFilesAtOnce, {}, [&](size_t i, const Poll& poll) {
    std::string name = object_of(checkpoint, files[i].filename().string());
    copy_file(files[i], *place_.write(name), [&](int64_t bytes) {
      copied_bytes_ += bytes;
      poll();
    });
  });
}

void CheckpointCopies::wait_for_all(const Poll& poll) {
  Progress progress(
      {.label = "copy to S3", .unit = "B", .total = given_bytes_, .start = copied_bytes_});
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLook, [&] { return waiting_.empty(); })) {
    lock.unlock();
    progress.update(copied_bytes_);
    poll();
    lock.lock();
  }
}

void CheckpointCopies::finish(const Poll& poll) {
  wait_for_all(poll);
  {
    std::lock_guard lock(mutex_);
    for (const auto& [step, dir] : failed_)
      if (is_there(dir / kCompleteFile)) waiting_[step] = dir;
    failed_.clear();
  }
  changed_.notify_all();
  wait_for_all(poll);
  std::lock_guard lock(mutex_);
  check_io(failed_.empty(), "the checkpoints are in ",
           failed_.empty() ? "" : failed_.begin()->second.parent_path().string(), ", but ",
           counted(static_cast<int64_t>(failed_.size()), "checkpoint"), " could not be copied to ",
           place_.url(), ": ", why_failed_, "; start the run again to copy what is missing");
}

}  // namespace neox
