// NCCL and the CUDA runtime. NCCL is not linked: libnccl.so.2 is the one that LibTorch has loaded,
// or a container put before it (LD_PRELOAD).
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>
#include <nccl.h>

#include "base/error.h"
#include "comm/nccl.h"
#include "comm/nccl_communicator.h"

namespace neox {
namespace {

static_assert(kNcclSuccess == ncclSuccess && kNcclSystemError == ncclSystemError &&
              kNcclRemoteError == ncclRemoteError && kNcclInProgress == ncclInProgress);

void* nccl_library() {
  void* library = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_GLOBAL);
  check_usage(library, "libnccl.so.2 cannot be loaded (", library ? "" : ::dlerror(),
              "): ranks on GPUs need NCCL 2.18 or newer; it comes with LibTorch's wheel "
              "(nvidia-nccl) or with the container");
  return library;
}

template <class Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  check_usage(function, "libnccl.so.2 has no ", name, ": NCCL 2.18 or newer is needed");
}

ncclDataType_t type_of(NcclType type) {
  switch (type) {
    case NcclType::kUint8:
      return ncclUint8;
    case NcclType::kInt32:
      return ncclInt32;
    case NcclType::kInt64:
      return ncclInt64;
    case NcclType::kHalf:
      return ncclFloat16;
    case NcclType::kFloat:
      return ncclFloat32;
    case NcclType::kDouble:
      return ncclFloat64;
    case NcclType::kBFloat16:
      return ncclBfloat16;
  }
  fail(Exit::kInternal, "a type without a number in NCCL");
}

ncclRedOp_t reduce_of(NcclReduce reduce) { return reduce == NcclReduce::kSum ? ncclSum : ncclMax; }
ncclComm_t comm_of(NcclComm comm) { return static_cast<ncclComm_t>(comm); }
cudaStream_t stream_of(CudaStream stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(CudaEvent event) { return static_cast<cudaEvent_t>(event); }

void check_cuda(cudaError_t status, const char* call) {
  check(status == cudaSuccess, call, ": ", cudaGetErrorString(status));
}

struct Functions {
  explicit Functions(void* library) {
    find(library, "ncclGetVersion", get_version);
    int version = 0;
    get_version(&version);
    check_usage(version >= kNcclOldest, "NCCL ", nccl_version_text(version),
                " (libnccl.so.2) is too old: 2.18 or newer is needed, which has ncclCommSplit");
    find(library, "ncclGetUniqueId", get_unique_id);
    find(library, "ncclCommInitRankConfig", init);
    find(library, "ncclCommSplit", split);
    find(library, "ncclCommCount", count);
    find(library, "ncclCommUserRank", user_rank);
    find(library, "ncclCommFinalize", finalize);
    find(library, "ncclCommDestroy", destroy);
    find(library, "ncclCommAbort", abort);
    find(library, "ncclCommGetAsyncError", async_error);
    find(library, "ncclGetErrorString", error_string);
    find(library, "ncclGetLastError", last_error);
    find(library, "ncclGroupStart", group_start);
    find(library, "ncclGroupEnd", group_end);
    find(library, "ncclAllReduce", all_reduce);
    find(library, "ncclReduceScatter", reduce_scatter);
    find(library, "ncclAllGather", all_gather);
    find(library, "ncclBroadcast", broadcast);
    find(library, "ncclSend", send);
    find(library, "ncclRecv", receive);
  }
  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRankConfig) init;
  decltype(&ncclCommSplit) split;
  decltype(&ncclCommCount) count;
  decltype(&ncclCommUserRank) user_rank;
  decltype(&ncclCommFinalize) finalize;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclCommGetAsyncError) async_error;
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetLastError) last_error;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) receive;
};

class CudaNcclApi : public NcclApi {
 public:
  explicit CudaNcclApi(const at::Device& device) : device_(device), f_(nccl_library()) {
    c10::cuda::set_device(device.index());
  }

  int version() override {
    int version = 0;
    f_.get_version(&version);
    return version;
  }
  std::string unique_id() override {
    ncclUniqueId id;
    ncclResult_t result = f_.get_unique_id(&id);
    check(result == ncclSuccess, "ncclGetUniqueId: ", error_text(result, nullptr));
    return std::string(id.internal, sizeof id.internal);
  }
  NcclResult init(NcclComm& comm, int size, const std::string& id, int rank) override {
    ncclUniqueId unique;
    check(id.size() == sizeof unique.internal, "an NCCL id has ", sizeof unique.internal,
          " bytes, not ", id.size());
    id.copy(unique.internal, id.size());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return f_.init(reinterpret_cast<ncclComm_t*>(&comm), size, unique, rank, &config);
  }
  NcclResult split(NcclComm parent, int color, int key, NcclComm& child) override {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    return f_.split(comm_of(parent), color, key, reinterpret_cast<ncclComm_t*>(&child), &config);
  }
  NcclResult rank_and_size(NcclComm comm, int& rank, int& size) override {
    ncclResult_t result = f_.user_rank(comm_of(comm), &rank);
    return result == ncclSuccess ? f_.count(comm_of(comm), &size) : result;
  }
  NcclResult finalize(NcclComm comm) override { return f_.finalize(comm_of(comm)); }
  NcclResult destroy(NcclComm comm) override { return f_.destroy(comm_of(comm)); }
  NcclResult abort(NcclComm comm) override { return f_.abort(comm_of(comm)); }
  NcclResult async_error(NcclComm comm, NcclResult& state) override {
    ncclResult_t found = ncclSuccess, called = f_.async_error(comm_of(comm), &found);
    state = found;
    return called;
  }
  std::string error_text(NcclResult result, NcclComm comm) override {
    std::string text = f_.error_string(static_cast<ncclResult_t>(result));
    const char* last = f_.last_error(comm_of(comm));
    return last && *last ? text + ": " + last : text;
  }

  NcclResult group_start() override { return f_.group_start(); }
  NcclResult group_end() override { return f_.group_end(); }
  NcclResult all_reduce(void* data, size_t count, NcclType type, NcclReduce reduce, NcclComm comm,
                        CudaStream stream) override {
    return f_.all_reduce(data, data, count, type_of(type), reduce_of(reduce), comm_of(comm),
                         stream_of(stream));
  }
  NcclResult reduce_scatter(const void* full, void* mine, size_t count, NcclType type,
                            NcclReduce reduce, NcclComm comm, CudaStream stream) override {
    return f_.reduce_scatter(full, mine, count, type_of(type), reduce_of(reduce), comm_of(comm),
                             stream_of(stream));
  }
  NcclResult all_gather(const void* mine, void* full, size_t bytes, NcclComm comm,
                        CudaStream stream) override {
    return f_.all_gather(mine, full, bytes, ncclUint8, comm_of(comm), stream_of(stream));
  }
  NcclResult broadcast(void* data, size_t bytes, int root, NcclComm comm,
                       CudaStream stream) override {
    return f_.broadcast(data, data, bytes, ncclUint8, root, comm_of(comm), stream_of(stream));
  }
  NcclResult send(const void* data, size_t bytes, int peer, NcclComm comm,
                  CudaStream stream) override {
    return f_.send(data, bytes, ncclUint8, peer, comm_of(comm), stream_of(stream));
  }
  NcclResult receive(void* data, size_t bytes, int peer, NcclComm comm,
                     CudaStream stream) override {
    return f_.receive(data, bytes, ncclUint8, peer, comm_of(comm), stream_of(stream));
  }

  CudaStream current_stream() override {
    return c10::cuda::getCurrentCUDAStream(device_.index()).stream();
  }
  bool capturing(CudaStream stream) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check_cuda(cudaStreamIsCapturing(stream_of(stream), &status), "cudaStreamIsCapturing");
    return status != cudaStreamCaptureStatusNone;
  }
  CudaEvent make_event() override {
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    return event;
  }
  void free_event(CudaEvent event) override { (void)cudaEventDestroy(event_of(event)); }
  void record(CudaEvent event, CudaStream stream) override {
    check_cuda(cudaEventRecord(event_of(event), stream_of(stream)), "cudaEventRecord");
  }
  // An error of the device ends the operation too; the main thread meets it at its next call.
  bool done(CudaEvent event) override {
    return cudaEventQuery(event_of(event)) != cudaErrorNotReady;
  }
  // A broken device is told by the calls that follow.
  void enter_thread() override {
    (void)cudaSetDevice(device_.index());
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
  }

 private:
  at::Device device_;
  Functions f_;
};

}  // namespace

int nccl_version() {
  decltype(&ncclGetVersion) get_version = nullptr;
  find(nccl_library(), "ncclGetVersion", get_version);
  int version = 0;
  get_version(&version);
  return version;
}

std::shared_ptr<NcclApi> nccl_api(const at::Device& device) {
  return std::make_shared<CudaNcclApi>(device);
}

std::unique_ptr<Communicator> nccl_world(const ProcessInfo& process, Control& control,
                                         const at::Device& device, std::chrono::seconds deadline) {
  check(control.rank() == process.rank && control.size() == process.size, "rank ", process.rank,
        " of ", process.size, " (", process.launcher, ") is ", control.rank(), " of ",
        control.size(), " in the rendezvous");
  return nccl_communicator(nccl_api(device), control, device, {.deadline = deadline});
}

}  // namespace neox
