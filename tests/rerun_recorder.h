// Stands in for CUDA graphs on a CPU: what was recorded runs again, with the inputs and on the
// memory that it was recorded with.
#pragma once
#include <atomic>
#include <stdexcept>

#include "model/graphs.h"

namespace neox {

class RerunRecorder : public GraphRecorder {
 public:
  struct Calls {
    std::atomic<int> recorded = 0, replayed = 0;  // of all ranks
  };
  explicit RerunRecorder(Calls& calls) : calls_(calls) {}
  Work record(int, const Work& work) override {
    ++calls_.recorded;
    return [this, work] {
      ++calls_.replayed;
      work();
    };
  }

 private:
  Calls& calls_;
};

// Refuses from the n-th recording on, counted from 0.
class RefusingRecorder : public GraphRecorder {
 public:
  explicit RefusingRecorder(int from) : left_(from) {}
  Work record(int, const Work& work) override {
    if (left_-- > 0) return work;
    throw std::runtime_error("operation not permitted when stream is capturing\nby a test");
  }

 private:
  int left_;
};

}  // namespace neox
