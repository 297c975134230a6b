// Stands in for NCCL and CUDA: records the calls, carries them out on the CPU between ranks that
// are threads, and fails or waits on demand. What NCCL forbids is noted in `wrong`: two calls at
// once, a communicator used after its end or before it is ready, ranks that first send to each
// other by one and receive by the other in groups that do not match.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "comm/communicator.h"
#include "comm/nccl_api.h"

namespace neox::testing {

class NcclStandIn : public NcclApi {
 public:
  explicit NcclStandIn(Communicator& ranks) : ranks_(ranks) {}

  // On demand, from any thread.
  std::atomic<int> version_code{22809};
  std::atomic<int> polls_in_progress{0};  // that many of async_error() after each operation
  std::atomic<NcclResult> result{kNcclSuccess}, state{kNcclSuccess};  // of operations, of polls
  std::atomic<bool> device_works{true}, is_capturing{false}, no_id{false};
  std::atomic<bool> graph_lives{false};  // that holds operations: abort waits for its end
  std::atomic<bool> hangs{false};        // operations return only when something is aborted
  std::atomic<int> ended{0};             // events found done
  std::atomic<int> does{1 << 30};        // so many of the events that are recorded come to be done

  std::vector<std::string> calls();
  std::vector<std::string> wrong();
  int count(const std::string& call);  // those that begin with it
  void forget();                       // the calls so far

  int version() override { return version_code; }
  std::string unique_id() override;
  NcclResult init(NcclComm& comm, int size, const std::string& id, int rank) override;
  NcclResult split(NcclComm parent, int color, int key, NcclComm& child) override;
  NcclResult rank_and_size(NcclComm comm, int& rank, int& size) override;
  NcclResult finalize(NcclComm comm) override;
  NcclResult destroy(NcclComm comm) override;
  NcclResult abort(NcclComm comm) override;
  NcclResult async_error(NcclComm comm, NcclResult& state) override;
  std::string error_text(NcclResult result, NcclComm comm) override;
  NcclResult group_start() override;
  NcclResult group_end() override;
  NcclResult all_reduce(void*, size_t, NcclType, NcclReduce, NcclComm, CudaStream) override;
  NcclResult reduce_scatter(const void*, void*, size_t, NcclType, NcclReduce, NcclComm,
                            CudaStream) override;
  NcclResult all_gather(const void*, void*, size_t, NcclComm, CudaStream) override;
  NcclResult broadcast(void*, size_t, int root, NcclComm, CudaStream) override;
  NcclResult send(const void*, size_t, int peer, NcclComm, CudaStream) override;
  NcclResult receive(void*, size_t, int peer, NcclComm, CudaStream) override;
  CudaStream current_stream() override { return this; }
  bool capturing(CudaStream) override { return is_capturing; }
  CudaEvent make_event() override;
  void free_event(CudaEvent event) override;
  void record(CudaEvent event, CudaStream stream) override;
  bool done(CudaEvent) override;
  void enter_thread() override {}

 private:
  struct Comm {
    int number;  // in the order of their making
    std::unique_ptr<Communicator> ranks;
    bool ended = false;
    int polls = 0;
    // What a split makes, and where it is put once this one is ready, as by NCCL.
    NcclComm child = nullptr, *place = nullptr;
    std::set<std::pair<int, Communicator::Transfer::Kind>> connected = {};
  };

  void note(const std::string& call);
  NcclResult operate(NcclComm comm, const std::string& call, const std::function<void()>& work);
  NcclComm add(std::unique_ptr<Communicator> ranks);
  void connect(Comm& comm, const std::vector<Communicator::Transfer>& transfers);
  Comm& of(NcclComm comm) { return *static_cast<Comm*>(comm); }

  Communicator& ranks_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable aborted_;
  bool any_aborted_ = false;
  std::vector<std::string> calls_, wrong_;
  std::vector<std::unique_ptr<Comm>> comms_;
  std::map<CudaEvent, int> events_;  // which one it is of those that were recorded
  int recorded_ = 0;
  bool in_group_ = false;
  std::vector<Communicator::Transfer> transfers_;
  NcclComm transfers_of_ = nullptr;
  std::atomic<int> inside_{0};
};

}  // namespace neox::testing
