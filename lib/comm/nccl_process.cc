#include "comm/nccl_process.h"

#include <exception>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace neox {
namespace {

using std::chrono::milliseconds;

// The watchdog looks more often; where it has not, this process was stopped.
constexpr std::chrono::seconds kLook{1};

std::string seconds_text(milliseconds time) { return concat(double(time.count()) / 1000, " s"); }

}  // namespace

std::string describe(const NcclOperation& o) {
  std::string text = o.name;
  if (o.type != at::ScalarType::Undefined) text += concat(" of ", o.count, " x ", o.type);
  for (int i = 0; i < o.num_peers && i < static_cast<int>(o.peers.size()); ++i)
    text += concat(i == 0 ? " with rank " : ", ", o.peers[static_cast<size_t>(i)]);
  if (o.num_peers > static_cast<int>(o.peers.size())) text += " ...";
  return text + concat(" in group ", o.group->name, " (rank ", o.group->rank, " of ", o.group->size,
                       ", operation ", o.number, ")");
}

NcclProcess::NcclProcess(std::shared_ptr<NcclApi> api, int rank, int size, const NcclTimes& times)
    : api_(std::move(api)), rank_(rank), size_(size), times_(times) {
  watchdog_ = std::thread([this] { watch(); });
}

NcclProcess::~NcclProcess() {
  bool left = false;
  {
    std::lock_guard lock(state_);
    stopping_ = true;
    for (const NcclHandle& handle : handles_) left |= handle.comm != nullptr;
  }
  if (left) abort(concat("rank ", rank_, " failed"));
  changed_.notify_all();
  watchdog_.join();
  for (std::thread& thread : aborts_) thread.join();
  api_->enter_thread();  // it may be the one that has found a lost rank
  for (Slot& slot : ring_)
    if (slot.event) api_->free_event(slot.event);
}

NcclHandle& NcclProcess::add_handle() {
  std::lock_guard lock(state_);
  return handles_.emplace_back();
}

NcclGroup& NcclProcess::add_group(const std::string& name, NcclHandle& handle) {
  std::lock_guard lock(state_);
  return groups_.emplace_back(NcclGroup{.name = name, .handle = &handle});
}

void NcclProcess::run(NcclGroup& group, NcclOperation operation,
                      c10::function_ref<NcclResult(CudaStream)> call) {
  begin(group, operation);
  CudaStream stream = api_->current_stream();
  NcclResult result = call_locked([&] { return call(stream); });
  wait_ready(operation, *group.handle, result);
  if (!api_->capturing(stream)) record(operation, stream);
  finish();
}

void NcclProcess::set_up(NcclGroup& group, NcclOperation operation, NcclHandle& made,
                         c10::function_ref<NcclResult()> call) {
  begin(group, operation);
  NcclResult result = call_locked(call);
  // Only when the parent of a split is ready is the child's handle there, and ncclCommSplit() says
  // success before (NCCL 2.28).
  wait_ready(operation, *group.handle, result == kNcclSuccess ? kNcclInProgress : result);
  made.comm = made.begun;
  wait_ready(operation, made, kNcclInProgress);
  std::lock_guard lock(state_);
  made.ready = true;
  current_.reset();
}

void NcclProcess::end(NcclGroup& group) noexcept try {
  {
    std::lock_guard lock(state_);
    if (!reason_.empty() || !group.handle->comm) return;
  }
  if (std::uncaught_exceptions() > 0) return;
  NcclOperation operation{.name = "finalize"};
  begin(group, operation);
  NcclResult result = call_locked([&] { return api_->finalize(group.handle->comm); });
  wait_ready(operation, *group.handle, result);
  call_locked([&] {
    NcclComm comm = group.handle->comm;
    {
      std::lock_guard lock(state_);
      group.handle->comm = nullptr;
    }
    return api_->destroy(comm);
  });
  finish();
} catch (const std::exception& e) { log_warning(e.what()); }

void NcclProcess::abort(const std::string& reason) {
  {
    std::lock_guard lock(state_);
    if (!reason_.empty()) return;
    reason_ = reason.empty() ? "aborted" : reason;
  }
  changed_.notify_all();
  log_warning(reason, "; on this rank: ", where_it_stands());
  std::unique_lock lock(calls_, times_.patience);
  std::lock_guard state(state_);
  // At once: each waits for its kernels, which may stand behind those of another communicator, and
  // for the end of graphs that hold its operations, which this thread may have.
  for (NcclHandle& handle : handles_)
    if (NcclComm comm = handle.comm.exchange(nullptr))
      aborts_.emplace_back([this, comm] {
        api_->enter_thread();
        api_->abort(comm);
      });
}

std::string NcclProcess::where_it_stands() {
  std::lock_guard lock(state_);
  if (current_) return "inside " + describe(*current_);
  if (oldest_ != next_) return describe(ring_[oldest_ % ring_.size()].operation) + " has not ended";
  return last_ ? "nothing is outstanding, the last was " + describe(*last_) : "no operation yet";
}

void NcclProcess::begin(NcclGroup& group, NcclOperation& operation) {
  std::lock_guard lock(state_);
  operation.group = &group;
  operation.number = ++group.operations;
  operation.since = Clock::now();
  current_ = last_ = operation;
}

void NcclProcess::finish() {
  std::lock_guard lock(state_);
  current_.reset();
}

NcclResult NcclProcess::call_locked(c10::function_ref<NcclResult()> call) {
  std::lock_guard lock(calls_);
  check_alive();
  return call();
}

void NcclProcess::wait_ready(const NcclOperation& operation, const NcclHandle& handle,
                             NcclResult result) {
  milliseconds waited(0);  // in pauses, so that a stop of this process (SIGSTOP) is no delay
  for (milliseconds pause(0); result == kNcclInProgress;) {
    NcclResult called = call_locked([&] { return api_->async_error(handle.comm, result); });
    if (called != kNcclSuccess) result = called;
    if (result != kNcclInProgress) break;
    if (waited > times_.deadline)
      fail_operation(
          concat(describe(operation), " was not set up within ", seconds_text(times_.deadline),
                 ": is another rank missing, or cannot the nodes reach each other? "
                 "NCCL_DEBUG=INFO tells more"),
          kNcclRemoteError);
    std::unique_lock lock(state_);
    changed_.wait_for(lock, pause, [&] { return !reason_.empty(); });
    waited += pause;
    pause = std::min(pause + milliseconds(1), milliseconds(20));
  }
  if (result == kNcclSuccess) return;
  std::string why;
  call_locked([&] {
    why = api_->error_text(result, handle.comm);
    return kNcclSuccess;
  });
  fail_operation(concat(describe(operation), ": ", why), result);
}

void NcclProcess::fail_operation(const std::string& reason, NcclResult result) {
  abort(reason);
  {
    std::lock_guard lock(state_);
    if (reason_ != reason) fail(Exit::kPeerLost, reason_);
  }
  bool lost = result == kNcclRemoteError || result == kNcclSystemError;
  fail(lost ? Exit::kPeerLost : Exit::kInternal, reason);
}

void NcclProcess::check_alive() {
  std::lock_guard lock(state_);
  if (!reason_.empty()) fail(Exit::kPeerLost, reason_);
}

// One thread at a time runs operations, so the slot taken is still free when it is filled. Where
// the ring is full, its newest slot is for the newest operation, so that none is behind the last.
void NcclProcess::record(const NcclOperation& operation, CudaStream stream) {
  Slot* slot = nullptr;
  bool full = false;
  {
    std::lock_guard lock(state_);
    full = next_ - oldest_ == ring_.size();
    slot = &ring_[(full ? next_ - 1 : next_) % ring_.size()];
    slot->operation = operation;
  }
  if (!slot->event) slot->event = api_->make_event();
  api_->record(slot->event, stream);
  if (full) return;
  std::lock_guard lock(state_);
  if (oldest_ == next_) progress_ = operation.since;
  ++next_;
}

void NcclProcess::watch() try {
  set_log_rank(rank_, size_);
  api_->enter_thread();
  for (auto looked = Clock::now();;) {
    {
      std::unique_lock lock(state_);
      changed_.wait_for(lock, times_.poll, [&] { return stopping_ || !reason_.empty(); });
      if (stopping_ || !reason_.empty()) return;
      auto now = Clock::now();
      leave_out(now - std::exchange(looked, now) - kLook);
    }
    advance();
    std::string reason = asynchronous_error();
    if (reason.empty()) reason = overdue();
    if (!reason.empty()) abort(reason);
  }
} catch (const std::exception& e) { abort(concat("the watchdog of NCCL failed: ", e.what())); }

// A stop of this process (SIGSTOP) is no delay of what is under way.
void NcclProcess::leave_out(Clock::duration stop) {
  if (stop <= Clock::duration::zero()) return;
  progress_ += stop;
  if (current_) current_->since += stop;
}

void NcclProcess::advance() {
  while (true) {
    CudaEvent event;
    {
      std::lock_guard lock(state_);
      if (oldest_ == next_) return;
      event = ring_[oldest_ % ring_.size()].event;
    }
    if (!api_->done(event)) return;
    std::lock_guard lock(state_);
    ++oldest_;
    progress_ = Clock::now();
  }
}

std::string NcclProcess::asynchronous_error() {
  std::unique_lock lock(calls_, std::try_to_lock);
  if (!lock) return "";
  std::deque<NcclGroup*> groups;
  {
    std::lock_guard state(state_);
    if (!reason_.empty()) return "";
    for (NcclGroup& group : groups_)
      if (group.handle->ready && group.handle->comm) groups.push_back(&group);
  }
  for (NcclGroup* group : groups) {
    NcclComm comm = group->handle->comm;
    NcclResult state = kNcclSuccess, called = api_->async_error(comm, state);
    if (called != kNcclSuccess) state = called;
    if (state != kNcclSuccess && state != kNcclInProgress)
      return concat("group ", group->name, " (rank ", group->rank, " of ", group->size,
                    "): ", api_->error_text(state, comm));
  }
  return "";
}

std::string NcclProcess::overdue() {
  std::lock_guard lock(state_);
  auto now = Clock::now();
  auto late = [&](Clock::time_point since) { return now - since > times_.deadline; };
  std::string within = " within " + seconds_text(times_.deadline);
  if (oldest_ != next_) {
    const NcclOperation& operation = ring_[oldest_ % ring_.size()].operation;
    if (late(std::max(operation.since, progress_)))
      return concat(describe(operation), " has not ended", within,
                    ": another rank did not arrive, or the network hangs");
  }
  // Where it is polled the thread itself gives up first.
  if (current_ && late(current_->since + times_.patience))
    return describe(*current_) + " did not return" + within;
  return "";
}

}  // namespace neox
