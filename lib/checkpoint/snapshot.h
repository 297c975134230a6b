// A copy of a rank's state in host memory, which is written while training goes on and changes the
// state. The memory is taken once. One thread calls start() and release(), another finish().
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace neox {

class Snapshot {
 public:
  // Room for these chunks, every page of it there, and pinned where they are on a GPU; that takes
  // time. Throws std::bad_alloc where there is none.
  explicit Snapshot(std::span<const StateChunk> chunks);
  ~Snapshot();

  // The chunks, of the same sizes as then, begin to be copied: from a device, on a stream that
  // follows this thread's; from the CPU, by finish().
  void start(std::span<const StateChunk> chunks);
  // After it this thread may change the chunks, what it starts on their device included.
  void release();
  // Copies what is on the CPU, waits for what is on a device. What it returns is valid until the
  // next start().
  std::span<const StateChunk> finish();

  static int64_t bytes_of(std::span<const StateChunk> chunks);

 private:
  struct Memory;
  struct Device;
  void copy_on_cpu();
  void set_copying(bool copying);

  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Device> device_;  // none where the chunks are on the CPU
  std::vector<StateChunk> copies_;
  std::vector<at::Tensor> sources_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool copying_ = false;  // guarded by mutex_: sources_ are still read
};

}  // namespace neox
