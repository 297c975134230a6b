#include "nccl_stand_in.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <thread>
#include <utility>

#include "base/error.h"

namespace neox::testing {
namespace {

at::ScalarType type_of(NcclType type) {
  switch (type) {
    case NcclType::kUint8:
      return at::kByte;
    case NcclType::kInt32:
      return at::kInt;
    case NcclType::kInt64:
      return at::kLong;
    case NcclType::kHalf:
      return at::kHalf;
    case NcclType::kFloat:
      return at::kFloat;
    case NcclType::kDouble:
      return at::kDouble;
    case NcclType::kBFloat16:
      return at::kBFloat16;
  }
  return at::kByte;
}

Tensor tensor_at(const void* data, size_t count, at::ScalarType type) {
  return at::from_blob(const_cast<void*>(data), {static_cast<int64_t>(count)},
                       at::device(at::kCPU).dtype(type));
}

Communicator::Op op_of(NcclReduce reduce) {
  return reduce == NcclReduce::kSum ? Communicator::Op::kSum : Communicator::Op::kMax;
}

const char* text_of(NcclReduce reduce) { return reduce == NcclReduce::kSum ? " sum" : " max"; }

}  // namespace

std::vector<std::string> NcclStandIn::calls() {
  std::lock_guard lock(mutex_);
  return calls_;
}

std::vector<std::string> NcclStandIn::wrong() {
  std::lock_guard lock(mutex_);
  return wrong_;
}

int NcclStandIn::count(const std::string& call) {
  std::lock_guard lock(mutex_);
  int n = 0;
  for (const std::string& c : calls_) n += c.starts_with(call);
  return n;
}

void NcclStandIn::forget() {
  std::lock_guard lock(mutex_);
  calls_.clear();
}

void NcclStandIn::note(const std::string& call) {
  std::lock_guard lock(mutex_);
  calls_.push_back(call);
}

NcclComm NcclStandIn::add(std::unique_ptr<Communicator> ranks) {
  std::lock_guard lock(mutex_);
  comms_.push_back(std::make_unique<Comm>(
      Comm{.number = static_cast<int>(comms_.size()), .ranks = std::move(ranks)}));
  comms_.back()->polls = polls_in_progress;
  return comms_.back().get();
}

NcclResult NcclStandIn::operate(NcclComm comm, const std::string& call,
                                const std::function<void()>& work) {
  if (!comm) {
    std::lock_guard lock(mutex_);
    wrong_.push_back(call + " of no communicator");
    return 4;
  }
  std::string text = concat(call, " of ", of(comm).number);
  {
    std::unique_lock lock(mutex_);
    calls_.push_back(text);
    if (++inside_ > 1) wrong_.push_back(text + " while another call runs");
    if (of(comm).ended) wrong_.push_back(text + " after its end");
    if (of(comm).polls > 0) wrong_.push_back(text + " before it is ready");
    if (hangs) aborted_.wait(lock, [&] { return any_aborted_; });
  }
  NcclResult result = this->result;
  if (result == kNcclSuccess && !hangs) work();
  std::lock_guard lock(mutex_);
  --inside_;
  if (result != kNcclSuccess) return result;
  if (!of(comm).ended) of(comm).polls = polls_in_progress;
  return of(comm).polls > 0 ? kNcclInProgress : kNcclSuccess;
}

std::string NcclStandIn::unique_id() {
  check(!no_id, "no network interface");
  return std::string("\0id\xff of a world", 15);
}

NcclResult NcclStandIn::init(NcclComm& comm, int size, const std::string& id, int rank) {
  note(concat("init ", rank, " of ", size));
  if (id != std::string("\0id\xff of a world", 15)) return 4;
  comm = add(ranks_.split(0, "nccl"));
  return polls_in_progress > 0 ? kNcclInProgress : kNcclSuccess;
}

NcclResult NcclStandIn::split(NcclComm parent, int color, int key, NcclComm& child) {
  if (parent && key != of(parent).ranks->rank())
    note("a split that changes the order of the ranks");
  NcclResult found = operate(parent, concat("split by ", color), [&] {
    NcclComm made = add(of(parent).ranks->split(color, "split"));
    child = polls_in_progress > 0 ? nullptr : made;
    if (!child) of(parent).child = made, of(parent).place = &child;
  });
  // NCCL 2.28 says success of a split that is under way.
  return found == kNcclInProgress ? kNcclSuccess : found;
}

NcclResult NcclStandIn::rank_and_size(NcclComm comm, int& rank, int& size) {
  rank = of(comm).ranks->rank();
  size = of(comm).ranks->size();
  return kNcclSuccess;
}

NcclResult NcclStandIn::finalize(NcclComm comm) {
  return operate(comm, "finalize", [] {});
}

NcclResult NcclStandIn::destroy(NcclComm comm) {
  note(concat("destroy of ", of(comm).number));
  std::lock_guard lock(mutex_);
  if (of(comm).ended) wrong_.push_back("destroyed twice");
  of(comm).ended = true;
  return kNcclSuccess;
}

NcclResult NcclStandIn::abort(NcclComm comm) {
  while (graph_lives) std::this_thread::yield();
  note(concat("abort of ", of(comm).number));
  std::lock_guard lock(mutex_);
  if (of(comm).ended) wrong_.push_back("aborted after its end");
  of(comm).ended = any_aborted_ = true;
  of(comm).ranks->abort("aborted");
  aborted_.notify_all();
  return kNcclSuccess;
}

NcclResult NcclStandIn::async_error(NcclComm comm, NcclResult& found) {
  std::lock_guard lock(mutex_);
  if (of(comm).ended) wrong_.push_back("polled after its end");
  found = state;
  if (of(comm).polls > 0) {
    --of(comm).polls;
    found = kNcclInProgress;
  } else if (NcclComm* place = std::exchange(of(comm).place, nullptr)) {
    *place = of(comm).child;
  }
  return kNcclSuccess;
}

std::string NcclStandIn::error_text(NcclResult result, NcclComm) {
  return result == kNcclRemoteError ? "remote process exited" : concat("error ", result);
}

NcclResult NcclStandIn::group_start() {
  note("group_start");
  in_group_ = true;
  return kNcclSuccess;
}

// As ncclTransportP2pSetup() of NCCL 2.28: a group waits for the peers with whom it sends or
// receives for the first time, whose groups must be the same, the other way round.
void NcclStandIn::connect(Comm& comm, const std::vector<Communicator::Transfer>& transfers) {
  using Transfer = Communicator::Transfer;
  std::map<int, std::pair<Tensor, Tensor>> peers;  // [first to send, to receive]: mine, theirs
  for (const Transfer& t : transfers) {
    if (!comm.connected.emplace(t.peer, t.kind).second) continue;
    auto& [mine, theirs] = peers[t.peer];
    if (!mine.defined()) mine = at::zeros({2}), theirs = at::zeros({2});
    mine[t.kind == Transfer::kSend ? 0 : 1] = 1;
  }
  std::vector<Transfer> flags;
  for (auto& [peer, both] : peers) {
    flags.push_back({Transfer::kSend, peer, both.first});
    flags.push_back({Transfer::kReceive, peer, both.second});
  }
  comm.ranks->exchange(flags);
  for (auto& [peer, both] : peers)
    if (!both.first.equal(both.second.flip(0)))
      wrong_.push_back(concat("a connection with rank ", peer, " that it does not make alike"));
}

NcclResult NcclStandIn::group_end() {
  note("group_end");
  in_group_ = false;
  auto transfers = std::move(transfers_);
  transfers_.clear();
  if (transfers.empty() || result != kNcclSuccess) return kNcclSuccess;
  connect(of(transfers_of_), transfers);
  of(transfers_of_).ranks->exchange(transfers);
  return kNcclSuccess;
}

NcclResult NcclStandIn::all_reduce(void* data, size_t count, NcclType type, NcclReduce reduce,
                                   NcclComm comm, CudaStream) {
  return operate(comm, concat("all_reduce", text_of(reduce), " ", count), [&] {
    Tensor t = tensor_at(data, count, type_of(type));
    of(comm).ranks->all_reduce(t, op_of(reduce));
  });
}

NcclResult NcclStandIn::reduce_scatter(const void* full, void* mine, size_t count, NcclType type,
                                       NcclReduce reduce, NcclComm comm, CudaStream) {
  return operate(comm, concat("reduce_scatter", text_of(reduce), " ", count), [&] {
    Communicator& ranks = *of(comm).ranks;
    size_t all = count * static_cast<size_t>(ranks.size());
    Tensor sum = tensor_at(full, all, type_of(type)).clone(),
           out = tensor_at(mine, count, type_of(type));
    ranks.all_reduce(sum, op_of(reduce));
    out.copy_(sum.narrow(0, ranks.rank() * out.numel(), out.numel()));
  });
}

NcclResult NcclStandIn::all_gather(const void* mine, void* full, size_t bytes, NcclComm comm,
                                   CudaStream) {
  return operate(comm, concat("all_gather ", bytes), [&] {
    Tensor in = tensor_at(mine, bytes, at::kByte),
           out = tensor_at(full, bytes * static_cast<size_t>(of(comm).ranks->size()), at::kByte);
    of(comm).ranks->all_gather(in, out);
  });
}

NcclResult NcclStandIn::broadcast(void* data, size_t bytes, int root, NcclComm comm, CudaStream) {
  return operate(comm, concat("broadcast ", bytes, " from ", root), [&] {
    Tensor t = tensor_at(data, bytes, at::kByte);
    of(comm).ranks->broadcast(t, root);
  });
}

NcclResult NcclStandIn::send(const void* data, size_t bytes, int peer, NcclComm comm, CudaStream) {
  return operate(comm, concat("send ", bytes, " to ", peer), [&] {
    if (!in_group_) wrong_.push_back("a send outside a group");
    transfers_of_ = comm;
    transfers_.push_back({Communicator::Transfer::kSend, peer, tensor_at(data, bytes, at::kByte)});
  });
}

NcclResult NcclStandIn::receive(void* data, size_t bytes, int peer, NcclComm comm, CudaStream) {
  return operate(comm, concat("receive ", bytes, " from ", peer), [&] {
    if (!in_group_) wrong_.push_back("a receive outside a group");
    transfers_of_ = comm;
    transfers_.push_back(
        {Communicator::Transfer::kReceive, peer, tensor_at(data, bytes, at::kByte)});
  });
}

CudaEvent NcclStandIn::make_event() {
  std::lock_guard lock(mutex_);
  calls_.push_back("make_event");
  return events_.emplace(new int(0), 0).first->first;
}

void NcclStandIn::free_event(CudaEvent event) {
  std::lock_guard lock(mutex_);
  if (events_.erase(event) == 0) wrong_.push_back("an event freed twice");
  delete static_cast<int*>(event);
}

void NcclStandIn::record(CudaEvent event, CudaStream stream) {
  note(stream == this ? "record" : "record on another stream");
  if (is_capturing) wrong_.push_back("an event recorded under capture");
  std::lock_guard lock(mutex_);
  if (!events_.contains(event)) wrong_.push_back("an event recorded that is not there");
  events_[event] = ++recorded_;
}

bool NcclStandIn::done(CudaEvent event) {
  std::lock_guard lock(mutex_);
  if (!device_works || events_[event] > does) return false;
  ++ended;
  return true;
}

}  // namespace neox::testing
