// How long a rank's own part of a step takes: reading its samples, and what its stage does with
// micro-batches. Time for which a CPU waits for other ranks does not count. On a GPU that of the
// other data ranks and stages does not, but what is summed within the recorded work of a stage does
// (tensor parallelism, ZeRO 3), so that ranks of one tp group show the same.
#pragma once
#include <c10/core/Event.h>

#include <functional>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace neox {

class OwnTime {
 public:
  // What was counted since the last take(). Of a world of one rank nothing is.
  struct Spent {
    double host = 0;
    std::vector<std::pair<c10::Event, c10::Event>> device;  // begins and ends, in its stream
    // A GPU works while the host reads: the longer of both. What the stream holds has ended.
    double seconds() const;
  };
  using Work = std::function<void()>;

  // world: must outlive this.
  OwnTime(at::Device device, const Communicator& world) : device_(device), world_(world) {}

  void of_host(const Work& work);
  void of_device(const Work& work);  // what it starts there; on a CPU what it does
  Spent take() { return std::exchange(spent_, {}); }

 private:
  c10::Event now() const;

  at::Device device_;
  const Communicator& world_;
  Spent spent_;
};

}  // namespace neox
