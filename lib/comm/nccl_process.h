// What all NCCL communicators of a process share: the lock around the library's calls, the reason
// once they are aborted, and the watchdog, a thread that looks for asynchronous errors and for
// operations that do not end.
//
// Nothing here makes the host wait for the device. After an operation an event is recorded, out of
// a ring, and only the watchdog asks for it. While a graph is captured no event is recorded: what
// hangs in a replay is noticed at the next operation outside it.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/nccl_api.h"

namespace neox {

struct NcclTimes {
  std::chrono::milliseconds deadline{600'000};  // of an operation, of init, split and finalize
  std::chrono::milliseconds poll{200};          // of the watchdog
  // Abort waits so long for a call of another thread, then goes on: that call hangs, and may crash
  // as its communicator is freed. Longer than the grace after which the loss of a rank ends this
  // process (rendezvous/job.h).
  std::chrono::milliseconds patience{10'000};
};

struct NcclHandle {
  // Where the library puts it, at a time of its own: a split's when the parent is ready again.
  NcclComm begun = nullptr;
  // null: not begun, or ended. Atomic, since an abort does not wait for a call that hangs.
  std::atomic<NcclComm> comm = nullptr;
  bool ready = false;  // to be asked for errors by the watchdog
};

struct NcclGroup {
  std::string name;
  int rank = 0, size = 1;
  NcclHandle* handle = nullptr;
  int64_t operations = 0;  // begun
};

struct NcclOperation {
  const char* name = "";
  int64_t count = 0;
  at::ScalarType type = at::ScalarType::Undefined;
  const NcclGroup* group = nullptr;
  int64_t number = 0;  // in its group, from 1
  std::array<int, 4> peers{};
  int num_peers = 0;  // may be more than `peers` holds
  std::chrono::steady_clock::time_point since{};
};

// "all_reduce sum of 7 x Float in group tp (rank 1 of 4, operation 12)".
std::string describe(const NcclOperation& operation);

class NcclProcess {
 public:
  NcclProcess(std::shared_ptr<NcclApi> api, int rank, int size, const NcclTimes& times);
  ~NcclProcess();  // after the last communicator's end; aborts those that an error left
  NcclProcess(const NcclProcess&) = delete;
  NcclProcess& operator=(const NcclProcess&) = delete;

  NcclApi& api() { return *api_; }
  NcclHandle& add_handle();
  NcclGroup& add_group(const std::string& name, NcclHandle& handle);

  // Calls the library and waits until the group's communicator is ready for the next call, which
  // does not mean that the device has done the operation. Throws where it fails, having aborted
  // all communicators of the process, and with abort()'s reason after one.
  void run(NcclGroup& group, NcclOperation operation,
           c10::function_ref<NcclResult(CudaStream)> call);
  // The same for init and split, which begin `made`: waits for it too, and records no event.
  void set_up(NcclGroup& group, NcclOperation operation, NcclHandle& made,
              c10::function_ref<NcclResult()> call);
  // Ends a communicator, collectively unless all are aborted. During the unwinding of an exception
  // the other ranks will not come: it is left for abort(), which may take its time, so that the
  // error is told to the other ranks first.
  void end(NcclGroup& group) noexcept;

  // Any thread. The first reason stays. Communicators are ended by threads that nothing but this
  // object's end waits for.
  void abort(const std::string& reason);
  void check_alive();  // throws (76) the reason after an abort

 private:
  using Clock = std::chrono::steady_clock;
  struct Slot {
    NcclOperation operation;
    CudaEvent event = nullptr;
  };

  std::string where_it_stands();
  void begin(NcclGroup& group, NcclOperation& operation);
  void finish();
  NcclResult call_locked(c10::function_ref<NcclResult()> call);
  void wait_ready(const NcclOperation& operation, const NcclHandle& handle, NcclResult result);
  void record(const NcclOperation& operation, CudaStream stream);
  [[noreturn]] void fail_operation(const std::string& reason, NcclResult result);

  void watch();
  void leave_out(Clock::duration stop);  // under state_
  void advance();                        // past the operations that have ended
  std::string asynchronous_error();
  std::string overdue();

  std::shared_ptr<NcclApi> api_;
  const int rank_, size_;
  const NcclTimes times_;

  std::timed_mutex calls_;  // held around calls of the library that take a communicator
  std::mutex state_;        // guards what follows, and is never held while a library is called
  std::condition_variable changed_;
  std::string reason_;  // of the abort
  bool stopping_ = false;
  std::deque<NcclHandle> handles_;  // both keep their places to the end of the process
  std::deque<NcclGroup> groups_;
  std::optional<NcclOperation> current_;  // inside the library
  std::optional<NcclOperation> last_;     // begun
  std::array<Slot, 256> ring_;
  size_t oldest_ = 0, next_ = 0;  // slots in flight, modulo the ring's size
  Clock::time_point progress_ = Clock::now();
  std::thread watchdog_;
  std::vector<std::thread> aborts_;
};

}  // namespace neox
