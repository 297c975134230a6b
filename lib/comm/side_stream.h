// A second stream of a device, for collectives beside the computation. On a CPU there is none: work
// runs where it is called.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <deque>
#include <functional>
#include <optional>

namespace neox {

class SideStream {
 public:
  using Work = std::function<void()>;
  explicit SideStream(at::Device device);
  virtual ~SideStream() = default;
  SideStream(const SideStream&) = delete;

  // What `work` starts runs behind all that this thread's stream has been given so far, and behind
  // the work before it, beside what that stream is given next. Returns the join: what the stream of
  // the thread that calls it is given from then on runs behind the work. It holds what `work`
  // holds; the tensors that are used must stay as they are until it is called. Empty: all is done.
  virtual Work run(const Work& work);
  // The same of work that holds memory, which is to be used again: of its joins all but the last
  // kHeld are called here. Those that it returns may be called all the same.
  Work run_holding(const Work& work);
  static constexpr size_t kHeld = 2;
  // Where all of these have been joined, or never will be, as of a recording that was given up.
  void forget_held() { held_.clear(); }

 private:
  std::optional<c10::Stream> stream_;
  std::deque<Work> held_;
};

}  // namespace neox
