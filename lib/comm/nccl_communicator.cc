#include "comm/nccl_communicator.h"

#include <cstdint>

#include "base/error.h"

namespace neox {
namespace {

struct Reduction {
  NcclType type;
  bool sum_is_max = false;  // true + true is true
};

Reduction reduction_of(const Tensor& t, const char* name) {
  switch (t.scalar_type()) {
    case at::kFloat:
      return {NcclType::kFloat};
    case at::kDouble:
      return {NcclType::kDouble};
    case at::kHalf:
      return {NcclType::kHalf};
    case at::kBFloat16:
      return {NcclType::kBFloat16};
    case at::kInt:
      return {NcclType::kInt32};
    case at::kLong:
      return {NcclType::kInt64};
    case at::kByte:
      return {NcclType::kUint8};
    case at::kBool:
      return {NcclType::kUint8, true};
    default:
      fail(Exit::kInternal, name, ": NCCL does not add up ", t.scalar_type());
  }
}

// A communicator of NCCL's, shared by the groups that hold the same ranks.
struct Shared {
  Shared(std::shared_ptr<NcclProcess> of, NcclGroup& owner)
      : process(std::move(of)), group(owner) {}
  ~Shared() { process->end(group); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  std::shared_ptr<NcclProcess> process;
  NcclGroup& group;
};

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<Shared> shared, NcclGroup& group, const at::Device& device)
      : shared_(std::move(shared)), group_(group), device_(device) {}
  int rank() const override { return group_.rank; }
  int size() const override { return group_.size; }

  void all_reduce(Tensor& t, Op op) override {
    const char* name = op == Op::kSum ? "all_reduce sum" : "all_reduce max";
    check_tensor(t, name);
    Reduction reduction = reduction_of(t, name);
    NcclReduce how = op == Op::kMax || reduction.sum_is_max ? NcclReduce::kMax : NcclReduce::kSum;
    run(name, t, [&](CudaStream stream) {
      return api().all_reduce(t.mutable_data_ptr(), count(t), reduction.type, how, comm(), stream);
    });
  }
  void reduce_scatter(const Tensor& full, Tensor& mine) override {
    check_chunks(full, mine, "reduce_scatter");
    Reduction reduction = reduction_of(full, "reduce_scatter");
    NcclReduce how = reduction.sum_is_max ? NcclReduce::kMax : NcclReduce::kSum;
    run("reduce_scatter", full, [&](CudaStream stream) {
      return api().reduce_scatter(full.const_data_ptr(), mine.mutable_data_ptr(), count(mine),
                                  reduction.type, how, comm(), stream);
    });
  }
  void all_gather(const Tensor& mine, Tensor& full) override {
    check_chunks(full, mine, "all_gather");
    run("all_gather", mine, [&](CudaStream stream) {
      return api().all_gather(mine.const_data_ptr(), full.mutable_data_ptr(), mine.nbytes(), comm(),
                              stream);
    });
  }
  void broadcast(Tensor& t, int root) override {
    check_tensor(t, "broadcast");
    check_peer(root, "broadcast");
    run("broadcast", t, [&](CudaStream stream) {
      return api().broadcast(t.mutable_data_ptr(), t.nbytes(), root, comm(), stream);
    });
  }
  void exchange(std::span<Transfer> transfers) override {
    if (transfers.empty()) return shared_->process->check_alive();
    NcclOperation operation{.name = "exchange", .type = transfers[0].tensor.scalar_type()};
    for (const Transfer& transfer : transfers) {
      check_tensor(transfer.tensor, "exchange");
      check_peer(transfer.peer, "exchange");
      operation.count += transfer.tensor.numel();
      if (operation.num_peers < 4)
        operation.peers[static_cast<size_t>(operation.num_peers)] = transfer.peer;
      ++operation.num_peers;
    }
    shared_->process->run(group_, operation,
                          [&](CudaStream stream) { return send_all(transfers, stream); });
  }
  std::unique_ptr<Communicator> split(int color, const std::string& name) override;
  void abort(const std::string& reason) override { shared_->process->abort(reason); }

 private:
  NcclApi& api() { return shared_->process->api(); }
  NcclComm comm() const { return group_.handle->comm; }
  static size_t count(const Tensor& t) { return static_cast<size_t>(t.numel()); }

  template <class Call>
  void run(const char* name, const Tensor& t, const Call& call) {
    if (t.numel() == 0) return shared_->process->check_alive();  // on all ranks
    shared_->process->run(group_, {.name = name, .count = t.numel(), .type = t.scalar_type()},
                          call);
  }

  // A group that was begun is ended also where one of its calls failed.
  NcclResult send_all(std::span<Transfer> transfers, CudaStream stream) {
    NcclResult result = api().group_start();
    if (result != kNcclSuccess) return result;
    for (Transfer& t : transfers) {
      if (result != kNcclSuccess && result != kNcclInProgress) break;
      if (t.tensor.numel() == 0) continue;
      result = t.kind == Transfer::kSend ? api().send(t.tensor.const_data_ptr(), t.tensor.nbytes(),
                                                      t.peer, comm(), stream)
                                         : api().receive(t.tensor.mutable_data_ptr(),
                                                         t.tensor.nbytes(), t.peer, comm(), stream);
    }
    NcclResult ended = api().group_end();
    return result == kNcclSuccess || result == kNcclInProgress ? ended : result;
  }

  void check_tensor(const Tensor& t, const char* name) const {
    check(t.device() == device_, name, " in group ", group_.name, ": the tensor is on ", t.device(),
          ", the group works on ", device_);
    check(t.is_contiguous(), name, " in group ", group_.name, ": a tensor of sizes ", t.sizes(),
          " and strides ", t.strides(), " is not contiguous");
  }
  void check_chunks(const Tensor& full, const Tensor& mine, const char* name) const {
    check_tensor(full, name);
    check_tensor(mine, name);
    check(full.scalar_type() == mine.scalar_type(), name, ": ", full.scalar_type(), " and ",
          mine.scalar_type(), " are different types");
    check(full.numel() == mine.numel() * size(), name, ": ", full.numel(), " elements are not ",
          size(), " chunks of ", mine.numel());
    auto begin = reinterpret_cast<uintptr_t>(full.const_data_ptr());
    auto own = reinterpret_cast<uintptr_t>(mine.const_data_ptr());
    bool inside = own + mine.nbytes() > begin && own < begin + full.nbytes();
    check(!inside || own == begin + static_cast<size_t>(rank()) * mine.nbytes(), name,
          ": the chunk lies within the whole, but not at the place of rank ", rank());
  }
  void check_peer(int peer, const char* name) const {
    check(peer >= 0 && peer < size(), name, " in group ", group_.name, ": rank ", peer,
          " is not one of its ", size());
  }

  std::shared_ptr<Shared> shared_;
  NcclGroup& group_;
  at::Device device_;
};

// Collective over parent, which gives the new group too, by color.
NcclGroup& split_group(NcclProcess& process, NcclGroup& parent, int color,
                       const std::string& name) {
  NcclHandle& made = process.add_handle();
  NcclGroup& group = process.add_group(name, made);
  process.set_up(parent, {.name = "split"}, made, [&] {
    return process.api().split(parent.handle->comm, color, parent.rank, made.begun);
  });
  process.set_up(group, {.name = "rank_and_size"}, made,
                 [&] { return process.api().rank_and_size(made.comm, group.rank, group.size); });
  return group;
}

std::unique_ptr<Communicator> NcclCommunicator::split(int color, const std::string& name) {
  check(color >= 0, "split ", name, " in group ", group_.name, ": color ", color, " is negative");
  std::shared_ptr<NcclProcess> process = shared_->process;
  NcclGroup& group = split_group(*process, group_, color, name);
  auto made = std::make_shared<Shared>(process, group);
  if (group.size == 1) return self_communicator();  // NCCL's, of no use, ends here
  if (group.size < size()) return std::make_unique<NcclCommunicator>(made, group, device_);
  NcclGroup& alias = process->add_group(name, *group_.handle);
  alias.rank = rank();
  alias.size = size();
  return std::make_unique<NcclCommunicator>(shared_, alias, device_);
}

// Rank 0's id on all ranks; what went wrong there is thrown on all.
std::string share_id(NcclApi& api, Control& control, std::chrono::seconds deadline) {
  std::string mine;
  if (control.rank() == 0) {
    try {
      mine = "id " + api.unique_id();
    } catch (const std::exception& e) { mine = std::string("failed: ") + e.what(); }
  }
  std::string text = control.gather(mine, deadline)[0];
  check(text.starts_with("id "), "NCCL on rank 0 ", text);
  return text.substr(3);
}

}  // namespace

std::string nccl_version_text(int v) {
  return v < 10000 ? concat(v / 1000, ".", v / 100 % 10, ".", v % 100)
                   : concat(v / 10000, ".", v / 100 % 100, ".", v % 100);
}

std::unique_ptr<Communicator> nccl_communicator(std::shared_ptr<NcclApi> api, Control& control,
                                                const at::Device& device, const NcclTimes& times) {
  check_usage(api->version() >= kNcclOldest, "NCCL ", nccl_version_text(api->version()),
              " (libnccl.so.2) is too old: 2.18 or newer is needed, which has ncclCommSplit");
  int rank = control.rank(), size = control.size();
  auto deadline = std::chrono::ceil<std::chrono::seconds>(times.deadline);
  std::string id = share_id(*api, control, deadline);
  auto process = std::make_shared<NcclProcess>(api, rank, size, times);
  // NCCL can be given up on while it forms a world only where that does not block, but then each
  // operation would start a thread. So the first communicator only makes the second.
  NcclHandle& made = process->add_handle();
  NcclGroup& first = process->add_group("of all ranks", made);
  first.rank = rank;
  first.size = size;
  process->set_up(first, {.name = "init"}, made, [&] {
    NcclResult result = api->init(made.begun, size, id, rank);
    made.comm = made.begun;
    return result;
  });
  Shared owner(process, first);
  NcclGroup& world = split_group(*process, first, 0, "world");
  check(world.rank == rank && world.size == size, "NCCL made rank ", world.rank, " of ", world.size,
        " of rank ", rank, " of ", size);
  return std::make_unique<NcclCommunicator>(std::make_shared<Shared>(process, world), world,
                                            device);
}

}  // namespace neox
