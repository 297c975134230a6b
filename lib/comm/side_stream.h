// A second stream of a device, for collectives beside the computation. On a CPU there is none: work
// runs where it is called.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <functional>
#include <optional>

namespace neox {

class SideStream {
 public:
  explicit SideStream(at::Device device);
  // What `work` starts runs behind all that this thread's stream has been given so far, beside what
  // it is given next. The tensors it uses must live, and stay as they are, until join().
  void run(const std::function<void()>& work);
  // What this thread's stream is given from now on runs behind all of it.
  void join();

 private:
  std::optional<c10::Stream> stream_;
  bool busy_ = false;
};

}  // namespace neox
