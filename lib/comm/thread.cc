#include "comm/thread.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/maximum.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "comm/reduce.h"

namespace neox {
namespace {

using std::chrono::milliseconds;

struct World {  // what all threads share
  std::mutex mutex;
  std::condition_variable changed;
  std::chrono::seconds deadline;
  std::string aborted;  // the reason, once there is one

  void check_alive() const {
    if (!aborted.empty()) fail(Exit::kPeerLost, aborted);
  }
  // The first reason stays. The caller holds the mutex.
  void abort(const std::string& reason) {
    if (aborted.empty()) aborted = reason;
    changed.notify_all();
  }
  // False where neither it is done nor the world aborted by the deadline. Slices are counted, and
  // not the time: a stop of this process (SIGSTOP) is no rank's delay.
  template <class Done>
  bool wait(std::unique_lock<std::mutex>& lock, std::chrono::seconds limit, const Done& done) {
    constexpr milliseconds kSlice{100};
    auto over = [&] { return done() || !aborted.empty(); };
    for (milliseconds waited{0}; waited < limit; waited += kSlice)
      if (changed.wait_for(lock, kSlice, over)) return true;
    return over();
  }
};

struct Slot {  // what one rank brings to a collective
  std::string call;
  Tensor tensor;
  std::string text;
  int color = 0;
};

struct Waiting {  // one side of a transfer that waits for the other
  Tensor tensor;
  bool* done;
};

class Group {
 public:
  Group(World& world, std::string name, std::vector<int> world_ranks)
      : world_(world),
        name_(std::move(name)),
        world_ranks_(std::move(world_ranks)),
        slots_(world_ranks_.size()),
        arrived_(world_ranks_.size()) {}

  World& world() { return world_; }
  int size() const { return static_cast<int>(world_ranks_.size()); }
  const std::vector<int>& world_ranks() const { return world_ranks_; }
  const std::vector<Slot>& slots() const { return slots_; }

  // Waits until all ranks have brought a slot; read(slots) runs on each rank before any of them
  // goes on.
  template <class Read>
  void meet(int rank, Slot slot, std::chrono::seconds deadline, const Read& read) {
    std::string call = slot.call;
    slots_[static_cast<size_t>(rank)] = std::move(slot);  // nobody reads: the last meeting is over
    wait_for_all(rank, deadline, call);
    check_same(call);
    read();
    wait_for_all(rank, deadline, call);
  }

  void exchange(int rank, std::span<Communicator::Transfer> transfers) {
    std::unique_lock lock(world_.mutex);
    world_.check_alive();  // after an abort the other sides are gone
    std::deque<bool> done(transfers.size(), false);
    for (size_t i = 0; i < transfers.size(); ++i) post(rank, transfers[i], &done[i]);
    auto all_done = [&] { return std::all_of(done.begin(), done.end(), [](bool d) { return d; }); };
    bool in_time = world_.wait(lock, world_.deadline, all_done);
    if (all_done()) return;
    std::string reason = world_.aborted;
    if (!in_time)
      reason = concat("exchange in group ", name_, ": no peer for rank ", rank, "'s ",
                      describe(transfers, done));
    abort_locked(reason);
  }

  std::shared_ptr<Group> child(int color, const std::string& name, const std::vector<int>& ranks) {
    std::lock_guard lock(world_.mutex);
    std::shared_ptr<Group>& group = children_[color];
    if (!group) group = std::make_shared<Group>(world_, name, ranks);
    return group;
  }
  void forget_children() {
    std::lock_guard lock(world_.mutex);
    children_.clear();
  }

 private:
  void wait_for_all(int rank, std::chrono::seconds deadline, const std::string& call) {
    std::unique_lock lock(world_.mutex);
    world_.check_alive();
    arrived_[static_cast<size_t>(rank)] = true;
    int64_t generation = generation_;
    if (++count_ == size()) {
      count_ = 0;
      std::fill(arrived_.begin(), arrived_.end(), false);
      ++generation_;
      world_.changed.notify_all();
      return;
    }
    bool in_time = world_.wait(lock, deadline, [&] { return generation_ != generation; });
    if (generation_ != generation) return;
    abort_locked(in_time ? world_.aborted
                         : concat(call, " in group ", name_, ": ", missing(),
                                  " did not arrive within ", deadline.count(), " s"));
  }

  [[noreturn]] void abort_locked(const std::string& reason) {
    world_.abort(reason);
    fail(Exit::kPeerLost, reason);
  }

  std::string missing() const {
    std::string text;
    for (size_t r = 0; r < arrived_.size(); ++r)
      if (!arrived_[r]) text += concat(text.empty() ? "rank " : ", rank ", world_ranks_[r]);
    return text;
  }

  void check_same(const std::string& call) const {
    for (size_t r = 0; r < slots_.size(); ++r)
      check(slots_[r].call == call, "group ", name_,
            ": the ranks call different operations: ", call, " here, but rank ", world_ranks_[r],
            " calls ", slots_[r].call);
  }

  void post(int rank, Communicator::Transfer& transfer, bool* done) {
    bool send = transfer.kind == Communicator::Transfer::kSend;
    auto key = send ? std::pair(rank, transfer.peer) : std::pair(transfer.peer, rank);
    std::deque<Waiting>& other = send ? receives_[key] : sends_[key];
    if (other.empty())
      return (send ? sends_[key] : receives_[key]).push_back({transfer.tensor, done});
    Waiting match = other.front();
    other.pop_front();
    at::NoGradGuard no_grad;
    const Tensor& from = send ? transfer.tensor : match.tensor;
    Tensor to = send ? match.tensor : transfer.tensor;
    check(from.sizes() == to.sizes() && from.scalar_type() == to.scalar_type(), "group ", name_,
          ": rank ", key.first, " sends ", from.sizes(), " to rank ", key.second,
          ", which expects ", to.sizes());
    to.copy_(from);
    *done = *match.done = true;
    world_.changed.notify_all();
  }

  static std::string describe(std::span<Communicator::Transfer> transfers,
                              const std::deque<bool>& done) {
    std::string text;
    for (size_t i = 0; i < transfers.size(); ++i)
      if (!done[i])
        text += concat(
            text.empty() ? "" : ", ",
            transfers[i].kind == Communicator::Transfer::kSend ? "send to " : "receive from ",
            transfers[i].peer);
    return text;
  }

  World& world_;
  std::string name_;
  std::vector<int> world_ranks_;
  std::vector<Slot> slots_;
  std::vector<bool> arrived_;
  int count_ = 0;
  int64_t generation_ = 0;
  std::map<int, std::shared_ptr<Group>> children_;
  std::map<std::pair<int, int>, std::deque<Waiting>> sends_, receives_;
};

// memcpy stores large blocks past the caches, which ATen's copy reads into them first.
void copy_elements(const Tensor& from, Tensor to) {
  if (to.data_ptr() == from.data_ptr()) return;
  if (to.is_cpu() && from.is_cpu() && to.scalar_type() == from.scalar_type())
    std::memcpy(to.data_ptr(), from.data_ptr(), to.nbytes());
  else
    to.copy_(from.view(to.sizes()));
}

std::string describe_call(const char* operation, const Tensor& t) {
  return concat(operation, " of ", t.numel(), " x ", t.scalar_type());
}

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  void all_reduce(Tensor& t, Op op) override {
    const char* name = op == Op::kSum ? "all_reduce sum" : "all_reduce max";
    if (t.is_cpu()) return meet(name, t, [&] { reduce_my_part(op, t); });
    Tensor result;
    meet(name, t, [&] { result = reduced(op, t.numel(), 0).view(t.sizes()); });
    at::NoGradGuard no_grad;
    t.copy_(result);
  }
  void reduce_scatter(const Tensor& full, Tensor& mine) override {
    check(full.numel() == mine.numel() * size(), "reduce_scatter: ", full.numel(),
          " elements are not ", size(), " chunks of ", mine.numel());
    meet("reduce_scatter", full, [&] {  // nobody else reads this chunk, so mine may be it
      int64_t begin = rank_ * mine.numel();
      void* to = mine.data_ptr();
      if (mine.is_cpu())
        reduce_ranks(Op::kSum, mine.scalar_type(), parts_at(begin), {&to, 1}, mine.numel());
      else
        mine.copy_(reduced(Op::kSum, mine.numel(), begin).view(mine.sizes()));
    });
  }
  void all_gather(const Tensor& mine, Tensor& full) override {
    check(full.numel() == mine.numel() * size(), "all_gather: ", full.numel(), " elements are not ",
          size(), " chunks of ", mine.numel());
    meet("all_gather", mine, [&] {  // mine may be a chunk of full: this rank leaves it as it is
      Tensor chunks = full.view({size(), mine.numel()});
      for (int r = 0; r < size(); ++r) copy_elements(slot(r), chunks[r]);
    });
  }
  void broadcast(Tensor& t, int root) override {
    meet("broadcast", t, [&] { copy_elements(slot(root), t); });
  }
  void exchange(std::span<Transfer> transfers) override {
    if (!transfers.empty()) group_->exchange(rank_, transfers);
  }
  std::unique_ptr<Communicator> split(int color, const std::string& name) override {
    std::vector<int> members;
    int rank = 0;
    group_->meet(rank_, {"split " + name, {}, {}, color}, group_->world().deadline, [&] {
      for (int r = 0; r < size(); ++r) {
        if (group_->slots()[static_cast<size_t>(r)].color != color) continue;
        rank += r < rank_;
        members.push_back(group_->world_ranks()[static_cast<size_t>(r)]);
      }
    });
    auto child = group_->child(color, name, members);
    group_->meet(rank_, {"split " + name, {}, {}, 0}, group_->world().deadline, [] {});
    if (rank_ == 0) group_->forget_children();
    group_->meet(rank_, {"split " + name, {}, {}, 0}, group_->world().deadline, [] {});
    return std::make_unique<ThreadCommunicator>(child, rank);
  }
  void abort(const std::string& reason) override {
    std::lock_guard lock(group_->world().mutex);
    group_->world().abort(reason);
  }

 private:
  template <class Read>
  void meet(const char* operation, const Tensor& t, const Read& read) {
    at::NoGradGuard no_grad;
    check(t.is_contiguous(), operation, ": the tensor is not contiguous");
    group_->meet(rank_, {describe_call(operation, t), t, {}, 0}, group_->world().deadline, read);
  }
  // Every rank reduces a part of all tensors and writes it to all: no copies, and nobody else reads
  // or writes that part.
  void reduce_my_part(Op op, const Tensor& t) {
    int64_t part = (t.numel() + size() - 1) / size(), begin = std::min(t.numel(), rank_ * part);
    std::vector<const void*> from = parts_at(begin);
    std::vector<void*> to;
    for (const void* p : from) to.push_back(const_cast<void*>(p));
    reduce_ranks(op, t.scalar_type(), from, to, std::min(part, t.numel() - begin));
  }
  std::vector<const void*> parts_at(int64_t begin) const {
    std::vector<const void*> parts;
    for (int r = 0; r < size(); ++r)
      parts.push_back(static_cast<const char*>(slot(r).data_ptr()) +
                      begin * slot(r).element_size());
    return parts;
  }
  // The same with ATen, for tensors of a device.
  Tensor reduced(Op op, int64_t numel, int64_t begin) const {
    Tensor result = slot(0).flatten().narrow(0, begin, numel).clone();
    for (int r = 1; r < size(); ++r) {
      Tensor next = slot(r).flatten().narrow(0, begin, numel);
      op == Op::kSum ? result.add_(next) : at::maximum_out(result, result, next);
    }
    return result;
  }
  const Tensor& slot(int rank) const { return group_->slots()[static_cast<size_t>(rank)].tensor; }

  std::shared_ptr<Group> group_;
  int rank_;
};

class ThreadControl : public Control {
 public:
  ThreadControl(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}
  using Control::gather;
  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  std::vector<std::string> gather(const std::string& mine, std::chrono::seconds deadline) override {
    std::vector<std::string> all;
    group_->meet(rank_, {"control gather", {}, mine, 0}, deadline, [&] {
      for (const Slot& slot : group_->slots()) all.push_back(slot.text);
    });
    return all;
  }
  std::unique_ptr<Control> channel(const std::string& name, int size) override {
    std::vector<int> ranks(group_->world_ranks().begin(), group_->world_ranks().begin() + size);
    return std::make_unique<ThreadControl>(group_->child(channels_++, name, ranks), rank_);
  }

 private:
  std::shared_ptr<Group> group_;
  int rank_;
  int channels_ = 0;
};

Error no_thread(int ranks, const std::system_error& e) {
  return {Exit::kUsage, concat("the system starts no more threads (", e.what(),
                               "), and there are to be ", ranks, " ranks; take fewer")};
}

}  // namespace

void run_thread_ranks(int ranks, const RankBody& body, std::chrono::seconds deadline) {
  World world;
  world.deadline = deadline;
  std::vector<int> all;
  for (int r = 0; r < ranks; ++r) all.push_back(r);
  auto group = std::make_shared<Group>(world, "world", all);
  auto control_group = std::make_shared<Group>(world, "control", all);
  std::exception_ptr first;
  int culprit = 0;
  auto failed = [&](int rank, const std::exception_ptr& error, const char* what) {
    std::lock_guard lock(world.mutex);
    if (!first) first = error, culprit = rank;
    world.abort(concat("rank ", rank, " failed: ", what));
  };
  auto run = [&](int rank) {
    set_log_rank(rank, ranks);
    ThreadCommunicator communicator(group, rank);
    ThreadControl control(control_group, rank);
    try {
      body(communicator, control);
    } catch (const std::exception& e) { failed(rank, std::current_exception(), e.what()); }
  };
  std::vector<std::jthread> threads;
  try {
    for (int r = 0; r < ranks; ++r) threads.emplace_back(run, r);
  } catch (const std::system_error& e) {
    auto rank = static_cast<int>(threads.size());
    Error error = no_thread(ranks, e);
    failed(rank, std::make_exception_ptr(error), error.what());
  }
  threads.clear();
  if (!first) return;
  if (ranks == 1) std::rethrow_exception(first);
  try {
    std::rethrow_exception(first);
  } catch (const Error& e) {
    fail(e.exit(), "rank ", culprit, ": ", e.what());
  } catch (const std::exception& e) { fail(Exit::kInternal, "rank ", culprit, ": ", e.what()); }
}

}  // namespace neox
