// Work on a stream of items by many threads, with the results in the order of the items: one reader
// thread -> workers -> the calling thread, which writes. Items in flight are bounded by their size.
// A result comes back to a worker after it was written, with the memory that it holds; the threads
// meet once for each item and step.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace neox {

template <class Item, class Result>
struct PipelineSteps {
  std::function<std::optional<Item>()> read;  // none after the last item
  std::function<int64_t(const Item&)> size;
  // By several threads at once; the result is new, or one that was written.
  std::function<void(const Item&, Result&)> work;
  std::function<bool(const Item&, const Result&)> write;  // in order; false: enough
};

template <class Item, class Result>
class OrderedPipeline {
 public:
  // At most max_size in flight, and always one item.
  OrderedPipeline(PipelineSteps<Item, Result> steps, int workers, int64_t max_size)
      : steps_(std::move(steps)), workers_(workers), max_size_(max_size) {}

  // Rethrows what a step threw, once all items before it are written.
  void run() {
    std::vector<std::jthread> threads;
    struct Stop {  // before threads are joined, also where write throws or one does not start
      OrderedPipeline* pipeline;
      ~Stop() { pipeline->stop(); }
    } stop{this};
    threads.emplace_back([this] { read_all(); });
    for (int i = 0; i < workers_; ++i) threads.emplace_back([this] { work_all(); });
    write_all();
  }

 private:
  struct Slot {
    std::optional<Item> item;  // none: the end, or what the reader threw
    Result result = {};
    std::exception_ptr error = {};
    bool done = false;
  };

  void stop() {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    room_.notify_all();
    filled_.notify_all();
  }

  void read_all() {
    for (bool more = true; more;) {
      Slot slot;
      try {
        slot.item = steps_.read();
        more = slot.item.has_value();
      } catch (...) {
        slot.error = std::current_exception();
        more = false;
      }
      slot.done = !more;
      int64_t size = slot.item ? steps_.size(*slot.item) : 0;
      std::unique_lock lock(mutex_);
      room_.wait(lock, [&] { return stopped_ || size_ == 0 || size_ + size <= max_size_; });
      if (stopped_) return;
      size_ += size;
      slots_.push_back(std::move(slot));
      lock.unlock();
      more ? filled_.notify_one() : first_done_.notify_one();
    }
  }

  void work_all() {
    std::unique_lock lock(mutex_);
    for (;;) {
      filled_.wait(lock, [&] { return stopped_ || next_ < slots_.size(); });
      if (stopped_) return;
      Slot& slot = slots_[next_];  // a deque keeps it in place while its ends change
      ++next_;
      if (slot.done) continue;  // the end, for the writer
      if (!written_.empty()) {
        slot.result = std::move(written_.back());
        written_.pop_back();
      }
      lock.unlock();
      try {
        steps_.work(*slot.item, slot.result);
      } catch (...) { slot.error = std::current_exception(); }
      lock.lock();
      slot.done = true;
      if (&slot == &slots_.front()) first_done_.notify_one();
    }
  }

  void write_all() {
    std::unique_lock lock(mutex_);
    for (;;) {
      first_done_.wait(lock, [&] { return !slots_.empty() && slots_.front().done; });
      Slot& slot = slots_.front();  // the others leave it alone
      lock.unlock();
      if (slot.error) std::rethrow_exception(slot.error);
      if (!slot.item || !steps_.write(*slot.item, slot.result)) return;
      int64_t size = steps_.size(*slot.item);
      slot.item.reset();
      lock.lock();
      written_.push_back(std::move(slot.result));
      slots_.pop_front();
      --next_;
      size_ -= size;
      room_.notify_one();
    }
  }

  const PipelineSteps<Item, Result> steps_;
  const int workers_;
  const int64_t max_size_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable room_, filled_, first_done_;
  std::deque<Slot> slots_;       // in the order of the items
  std::vector<Result> written_;  // to be used again
  size_t next_ = 0;              // the first that no worker has taken
  int64_t size_ = 0;             // of the items in slots_
  bool stopped_ = false;
};

}  // namespace neox
