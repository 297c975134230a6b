#include "corpus/download.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/tasks.h"
#include "base/text.h"
#include "corpus/sha256.h"
#include "corpus/transfer.h"
#include "data/output_file.h"

namespace neox {
namespace {

using Seconds = std::chrono::duration<double>;

double now() { return Seconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// How far all files together are, and whether they go on; the threads of the files tell and ask.
class Together {
 public:
  Together(std::span<const DownloadFile> files, const std::string& label,
           const DownloadOptions& options)
      : options_(options),
        sizes_(files.size()),
        came_(files.size()),
        progress_({.label = "download " + label, .unit = "B", .start = begin(files, came_)}) {
    for (size_t i = 0; i < files.size(); ++i) sizes_[i] = files[i].remote.bytes;
    progress_.set_total(total());
  }

  // poll: of the thread that fetches the file, as of run_tasks().
  TransferWatch watch(size_t file, const Poll& poll) {
    return {.came = [this, file](int64_t bytes) { came(file, bytes); },
            .whole = [this, file](int64_t bytes) { whole(file, bytes); },
            .stopped = [this, &poll] { return stopped(poll); }};
  }
  void came(size_t file, int64_t bytes) {
    std::lock_guard lock(mutex_);
    came_[file] = bytes;
    progress_.update(std::accumulate(came_.begin(), came_.end(), int64_t{0}), done_text());
  }
  void whole(size_t file, int64_t bytes) {
    std::lock_guard lock(mutex_);
    sizes_[file] = bytes;
    progress_.set_total(total());
  }
  void done() {
    std::lock_guard lock(mutex_);
    ++done_;
  }
  void finish() { progress_.finish(); }

 private:
  static int64_t begin(std::span<const DownloadFile> files, std::vector<int64_t>& came) {
    for (size_t i = 0; i < files.size(); ++i) came[i] = size_of_part(files[i].to);
    return std::accumulate(came.begin(), came.end(), int64_t{0});
  }

  std::string done_text() const {
    return sizes_.size() < 2 ? "" : concat(done_, " of ", sizes_.size(), " files");
  }

  // Files of unknown size count as the others do on average.
  int64_t total() const {
    int64_t known = 0, sum = 0;
    for (int64_t size : sizes_)
      if (size >= 0) ++known, sum += size;
    if (known == 0) return Progress::kUnknown;
    return sum + sum / known * (static_cast<int64_t>(sizes_.size()) - known);
  }

  // Whether another file failed, or all is to end.
  bool stopped(const Poll& poll) const {
    if (options_.stop && *options_.stop) return true;
    try {
      poll();
      return false;
    } catch (...) { return true; }
  }

  const DownloadOptions& options_;
  std::mutex mutex_;                   // guards what follows
  std::vector<int64_t> sizes_, came_;  // of each file; -1: not known
  size_t done_ = 0;
  Progress progress_;
};

// One of the files: its addresses in turn, each as often as it is worth it.
class Download {
 public:
  Download(const DownloadFile& file, const DownloadOptions& options, Together& together,
           size_t index, const Poll& poll)
      : remote_(file.remote),
        to_(file.to),
        options_(options),
        together_(together),
        watch_(together.watch(index, poll)),
        begun_(is_found(to_.string() + ".part")),
        part_(to_) {}

  void run() {
    // Only who holds the lock of .part writes there; where there was none, nothing can be left.
    if (begun_) remove_numbered(to_.string() + ".part.from.tmp-", 0);
    watch_.came(part_.bytes());
    if (part_.bytes() > 0 && part_.bytes() == remote_.bytes && finish(part_.path())) return;
    double begin = now();
    for (size_t i = 0; i < remote_.urls.size(); ++i) {
      double left = options_.connect_seconds - (connected_ ? 0 : now() - begin);
      if (try_address(remote_.urls[i], left / static_cast<double>(remote_.urls.size() - i))) return;
    }
    fail(Exit::kIo, "cannot download ", to_.string(), ":\n  ", join(messages_, "\n  "),
         options_.advice.empty() ? "" : "\n", options_.advice);
  }

 private:
  // Unless all is stopped.
  void sleep(double seconds) const {
    for (double end = now() + seconds, left; (left = end - now()) > 0 && !watch_.stopped();)
      std::this_thread::sleep_for(Seconds(std::min(left, 0.1)));
    check_io(!watch_.stopped(), "the download was stopped");
  }
  bool try_address(const std::string& url, double connect_seconds) {
    TransferLimits limits{.connect_seconds = std::max(0.5, connect_seconds),
                          .stall_seconds = options_.stall_seconds,
                          .file_bytes = remote_.bytes};
    double pause = options_.first_pause_seconds;
    bool answered = false;  // a server that was there may be there again soon
    for (int retries = options_.retries;;) {
      int64_t before = part_.bytes();
      Outcome outcome = transfer(url, part_, limits, watch_);
      connected_ = connected_ || outcome.connected;
      if (answered && !outcome.connected) outcome.next = Outcome::Next::kResume;
      answered = answered || outcome.connected;
      if (outcome.next == Outcome::Next::kDone) return finish(url);
      if (part_.bytes() > before) retries = options_.retries, pause = options_.first_pause_seconds;
      if (outcome.next == Outcome::Next::kOtherAddress || retries-- == 0) {
        messages_.push_back(outcome.message);
        return false;
      }
      double wait = std::min(std::max(pause, outcome.pause_seconds), 60.0);
      log_warning(outcome.message, "; trying again in ", human_duration(wait));
      sleep(wait);
      pause = 2 * pause;
    }
  }

  // A file of another content is a fault of the server: it must not be resumed.
  bool finish(const std::string& url) {
    try {
      check_content(remote_, part_.path());
    } catch (const Error& e) {
      messages_.push_back(concat(url, ": ", e.what()));
      part_.restart("");
      watch_.came(0);
      return false;
    }
    part_.publish(to_);
    together_.done();
    watch_.came(part_.bytes());
    return true;
  }

  const RemoteFile& remote_;
  const fs::path& to_;
  const DownloadOptions& options_;
  Together& together_;
  TransferWatch watch_;
  bool begun_;  // by an earlier process
  PartFile part_;
  bool connected_ = false;
  std::vector<std::string> messages_;
};

// What a process that was killed between naming a whole file and this left beside it.
void tidy_beside(const fs::path& to) {
  std::error_code ignored;  // of a directory that others own
  fs::remove(to.string() + ".part.from", ignored);
}

std::vector<DownloadFile> missing_of(std::span<const DownloadFile> files,
                                     const DownloadOptions& options) {
  std::vector<DownloadFile> missing;
  for (const DownloadFile& file : files)
    if (options.existing == DownloadOptions::Existing::kReplace ||
        !is_downloaded(file.remote, file.to))
      missing.push_back(file);
    else
      tidy_beside(file.to);
  return missing;
}

}  // namespace

int64_t size_of_part(const fs::path& to) {
  std::error_code error;
  auto bytes = fs::file_size(to.string() + ".part", error);
  return error ? 0 : static_cast<int64_t>(bytes);
}

bool is_downloaded(const RemoteFile& file, const fs::path& to) {
  return fs::is_regular_file(to) &&
         (file.bytes < 0 || static_cast<int64_t>(fs::file_size(to)) == file.bytes);
}

void check_content(const RemoteFile& file, const fs::path& path) {
  auto bytes = static_cast<int64_t>(fs::file_size(path));
  check_io(file.bytes < 0 || bytes == file.bytes, path.string(), " has ", with_commas(bytes),
           " bytes and should have ", with_commas(file.bytes));
  if (file.sha256.empty()) return;
  std::string found = sha256_of_file(path);
  check_io(found == file.sha256, path.string(), " has the SHA-256 ", found, " and should have ",
           file.sha256, "; it is damaged, or not the file that is meant");
}

void download(std::span<const DownloadFile> files, const std::string& label,
              const DownloadOptions& options) {
  std::vector<DownloadFile> missing = missing_of(files, options);
  if (missing.empty()) return;
  const fs::path& first = missing[0].to;
  std::string more = missing.size() > 1 ? concat(" and ", missing.size() - 1, " more") : "";
  check_io(options.network == DownloadOptions::Network::kUse, first.string(),
           fs::exists(first) ? " is not whole" : " is not there", more.empty() ? "" : ",", more,
           ", and --offline forbids to fetch it", options.advice.empty() ? "" : "\n",
           options.advice);
  for (const DownloadFile& file : missing) make_directories(directory_of(file.to));
  Together together(missing, label, options);
  run_tasks(missing.size(), options.files_at_once, {}, [&](size_t i, const Poll& poll) {
    Download(missing[i], options, together, i, poll).run();
  });
  together.finish();
}

}  // namespace neox
