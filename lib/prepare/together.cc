#include "prepare/together.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "base/error.h"

namespace neox {
namespace {

constexpr auto kRhythm = std::chrono::seconds(1);
// For a message of each rank, which its own thread sends whatever the work does.
constexpr auto kDeadline = std::chrono::seconds(120);

// What a rank tells the others begins with one of these; kFailed goes on with the exit code and a
// space before the message.
constexpr char kWorking = 'w', kDone = 'd', kFailed = 'f';

class Together {
 public:
  Together(Control& control, const TogetherWork& work) : control_(control), work_(work) {}

  std::vector<std::string> run() {
    std::jthread talk([this] { talk_all(); });
    std::string end;
    std::exception_ptr error;
    try {
      end = kDone + work_.work(stop_);
    } catch (const Error& e) {
      error = std::current_exception();
      end = concat(kFailed, static_cast<int>(e.exit()), " ", e.what());
    } catch (const std::exception& e) {
      error = std::current_exception();
      end = concat(kFailed, static_cast<int>(Exit::kInternal), " ", e.what());
    }
    {
      std::lock_guard lock(mutex_);
      mine_ = std::move(end);
    }
    ended_.notify_all();
    talk.join();
    if (broken_) std::rethrow_exception(broken_);
    if (failed_ < 0) return results();
    if (failed_ == control_.rank()) std::rethrow_exception(error);
    throw_failure();
  }

 private:
  // Until all ranks are done, or one has failed: all ranks hear the same and leave together.
  void talk_all() try {
    for (bool more = true; more;) {
      all_ = control_.gather(next_message(), kDeadline);
      std::vector<std::string> texts;
      more = false;
      for (size_t rank = 0; rank < all_.size(); ++rank) {
        if (all_[rank][0] == kFailed && failed_ < 0) failed_ = static_cast<int>(rank);
        more = more || all_[rank][0] == kWorking;
        texts.push_back(all_[rank].substr(1));
      }
      if (failed_ >= 0) break;
      work_.heard(texts);
    }
    if (failed_ >= 0) stop_ = true;
  } catch (...) {
    broken_ = std::current_exception();
    stop_ = true;
  }

  // The end of the work as soon as it is there, else how far it is.
  std::string next_message() {
    std::unique_lock lock(mutex_);
    ended_.wait_for(lock, kRhythm, [&] { return !mine_.empty(); });
    if (!mine_.empty()) return mine_;
    lock.unlock();
    return kWorking + work_.progress();
  }

  std::vector<std::string> results() const {
    std::vector<std::string> results;
    for (const std::string& text : all_) results.push_back(text.substr(1));
    return results;
  }

  [[noreturn]] void throw_failure() const {
    const std::string& text = all_[static_cast<size_t>(failed_)];
    size_t space = text.find(' ');
    throw Error(static_cast<Exit>(std::stoi(text.substr(1, space - 1))),
                concat("rank ", failed_, ": ", text.substr(space + 1)));
  }

  Control& control_;
  const TogetherWork& work_;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;  // guards mine_
  std::condition_variable ended_;
  std::string mine_;  // the end of this rank's work
  // Of the thread that talks, until it has ended.
  std::vector<std::string> all_;
  int failed_ = -1;
  std::exception_ptr broken_;
};

}  // namespace

std::vector<std::string> work_together(Control& control, const TogetherWork& work) {
  return Together(control, work).run();
}

}  // namespace neox
