// Work on a GPU that is recorded once and started as a whole ever after (CUDA graphs): the host no
// longer starts its kernels one by one. What was recorded runs on the same memory each time.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace neox {

class GraphRecorder {
 public:
  using Work = std::function<void()>;
  virtual ~GraphRecorder() = default;
  // Records what `work` starts on this thread's device without starting it, backward passes
  // included; calling the result starts it. Throws where something cannot be recorded, such as
  // waiting for the device. What is recorded with one pool shares memory: it may overwrite all that
  // no tensor holds any more when it is recorded, so it must run in the order in which it was
  // recorded.
  virtual Work record(int pool, const Work& work) = 0;

  bool waits = false;    // for other shapes: nothing is recorded meanwhile
  bool insists = false;  // what cannot be recorded is an error, rather than run as it is
  // What the allocator holds unused stays with it while something is recorded, if the device has as
  // much besides; else it goes back to the device first, for what is recorded to take.
  bool keeps_memory = false;
};

// Of a GPU: from now on this thread works on a stream that can be recorded, behind all that it has
// started before. Null for a CPU.
std::unique_ptr<GraphRecorder> graph_recorder(at::Device device);

}  // namespace neox
