// The calls of NCCL and of the CUDA runtime that communicators take, behind an interface: all that
// decides compiles without both libraries, and is tested against a stand-in.
#pragma once
#include <cstddef>
#include <string>

namespace neox {

using NcclComm = void*;    // ncclComm_t
using CudaStream = void*;  // cudaStream_t
using CudaEvent = void*;   // cudaEvent_t

// ncclResult_t. A call that is in progress goes on in the background; async_error() tells its end.
using NcclResult = int;
inline constexpr NcclResult kNcclSuccess = 0, kNcclSystemError = 2, kNcclRemoteError = 6,
                            kNcclInProgress = 7;

std::string nccl_version_text(int version);  // 22809 is "2.28.9"

enum class NcclType { kUint8, kInt32, kInt64, kHalf, kFloat, kDouble, kBFloat16 };
enum class NcclReduce { kSum, kMax };

class NcclApi {
 public:
  virtual ~NcclApi() = default;

  virtual int version() = 0;            // 22809 is 2.28.9
  virtual std::string unique_id() = 0;  // 128 bytes, of the rank 0 of a world
  // comm is set at once, and is ready when async_error() no longer says kNcclInProgress.
  virtual NcclResult init(NcclComm& comm, int size, const std::string& id, int rank) = 0;
  // child, which must stay where it is, is set when the parent is ready again.
  virtual NcclResult split(NcclComm parent, int color, int key, NcclComm& child) = 0;
  virtual NcclResult rank_and_size(NcclComm comm, int& rank, int& size) = 0;
  virtual NcclResult finalize(NcclComm comm) = 0;
  virtual NcclResult destroy(NcclComm comm) = 0;
  virtual NcclResult abort(NcclComm comm) = 0;  // frees it too
  virtual NcclResult async_error(NcclComm comm, NcclResult& state) = 0;
  virtual std::string error_text(NcclResult result, NcclComm comm) = 0;

  virtual NcclResult group_start() = 0;
  virtual NcclResult group_end() = 0;
  // count is of elements; where nothing is added up, bytes are moved.
  virtual NcclResult all_reduce(void* data, size_t count, NcclType type, NcclReduce reduce,
                                NcclComm comm, CudaStream stream) = 0;
  virtual NcclResult reduce_scatter(const void* full, void* mine, size_t count, NcclType type,
                                    NcclReduce reduce, NcclComm comm, CudaStream stream) = 0;
  virtual NcclResult all_gather(const void* mine, void* full, size_t bytes, NcclComm comm,
                                CudaStream stream) = 0;
  virtual NcclResult broadcast(void* data, size_t bytes, int root, NcclComm comm,
                               CudaStream stream) = 0;
  virtual NcclResult send(const void* data, size_t bytes, int peer, NcclComm comm,
                          CudaStream stream) = 0;
  virtual NcclResult receive(void* data, size_t bytes, int peer, NcclComm comm,
                             CudaStream stream) = 0;

  virtual CudaStream current_stream() = 0;  // of this thread
  virtual bool capturing(CudaStream stream) = 0;
  virtual CudaEvent make_event() = 0;
  virtual void free_event(CudaEvent event) = 0;
  virtual void record(CudaEvent event, CudaStream stream) = 0;
  virtual bool done(CudaEvent event) = 0;
  // A thread of ours begins: the device, and calls that leave a capture of another thread alone.
  virtual void enter_thread() = 0;
};

}  // namespace neox
