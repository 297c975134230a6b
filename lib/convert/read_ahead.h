// Reads the tensors of a model on a thread of its own while those before them are written, so that
// a disk reads and writes at the same time.
#pragma once
#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "convert/model_files.h"

namespace neox {

class ReadAhead {
 public:
  // Replaces the read of each tensor of the model, which must outlive this object. Who reads them
  // in their order finds them in memory, at most most_bytes of them, or one; those that it skips
  // are dropped. A tensor before the last one may be asked for too, and is read then.
  ReadAhead(ModelFiles& model, int64_t most_bytes);
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;
  ~ReadAhead();

 private:
  struct Source {
    int64_t bytes;
    std::function<at::Tensor()> read;
  };
  struct Ready {
    at::Tensor tensor;
    std::exception_ptr error;
  };
  void run(const std::stop_token& stop);
  Ready read(size_t number);
  at::Tensor take(size_t number);
  void skip_to(size_t number);

  const int64_t most_bytes_;
  std::vector<Source> sources_;
  std::mutex reading_;  // files are read by one thread at a time
  std::mutex mutex_;    // guards what follows
  std::condition_variable_any changed_;
  std::deque<Ready> ready_;      // from taken_ on
  size_t taken_ = 0, next_ = 0;  // number of the first that was not taken, that is not being read
  int64_t bytes_ = 0;            // of ready_, and of what is being read
  std::jthread thread_;
};

}  // namespace neox
