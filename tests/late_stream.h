// A second stream that comes to its work as late as it may, on a CPU: where it is joined. What
// reads too early reads what was there before.
#pragma once
#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "comm/side_stream.h"

namespace neox {

class LateStream : public SideStream {
 public:
  LateStream() : SideStream(at::kCPU) {}
  Work run(const Work& work) override {
    waiting_.push_back(work);
    int64_t last = ++given_;
    most_ = std::max(most_, waiting());
    return [this, last] {
      if (done_ >= last) return;
      while (done_ < last) run_next();
      left_.push_back(given_ - done_);
    };
  }
  // How much had not been run yet, after each join that ran something.
  std::vector<int64_t>& left() { return left_; }
  int64_t waiting() const { return given_ - done_; }
  // The most that waited at a time since it was asked for last.
  int64_t most() { return std::exchange(most_, 0); }

 private:
  void run_next() {
    Work work = std::move(waiting_.front());
    waiting_.pop_front();
    ++done_;
    work();
  }

  std::deque<Work> waiting_;
  int64_t given_ = 0, done_ = 0, most_ = 0;
  std::vector<int64_t> left_;
};

}  // namespace neox
