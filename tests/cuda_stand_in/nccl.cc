// NCCL between processes of this machine, beside the stand-in for CUDA: libnccl.so.2, preloaded.
//
// - An operation is a name on its stream: no values move. The host waits in each until the other
//   ranks of the communicator have come to it, as NCCL's does where it connects them. So calls that
//   are in another order on another rank are refused, or hang, which is refused after a while.
// - NCCL_STAND_IN_DIR=DIR: an empty directory, where the ranks meet.
// - NCCL_STAND_IN_FAILS=NAME: the function of that name fails as where the network is misset.
//   NCCL_STAND_IN_VERSION=22703: another version.
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "machine.h"

namespace {

namespace fs = std::filesystem;
using cuda_stand_in::concat;

struct Transfer {
  std::string kind;
  size_t bytes;
  int peer;
  cudaStream_t stream;
};

}  // namespace

struct ncclComm {
  std::string name;
  int rank = 0, size = 1, operations = 0, splits = 0;
  std::map<std::string, int> transfers;  // with a peer, in a direction
  std::map<int, int> meetings;           // with a peer, to connect
};

namespace {

constexpr std::chrono::seconds kPatience(20);
thread_local int group_depth = 0;
thread_local std::vector<std::pair<ncclComm*, Transfer>> grouped;

const char* variable(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

void put(const std::string& name, const std::string& text) {
  fs::path file = fs::path(variable("NCCL_STAND_IN_DIR")) / name;
  fs::path begun = file.string() + concat(".", ::getpid());
  std::ofstream(begun) << text;
  fs::rename(begun, file);
}

// The text that another rank puts there; false where it does not come.
bool take(const std::string& name, std::string& text) {
  fs::path path = fs::path(variable("NCCL_STAND_IN_DIR")) / name;
  auto until = std::chrono::steady_clock::now() + kPatience;
  while (!fs::exists(path)) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  std::ifstream file(path);
  text.assign(std::istreambuf_iterator<char>(file), {});
  return true;
}

ncclResult_t refuse(const std::string& what) {
  cuda_stand_in::refuse(cudaErrorUnknown, "NCCL: " + what);
  return ncclInternalError;
}

// What all ranks of a communicator say at its next operation.
ncclResult_t meet(ncclComm& comm, const std::string& mine, std::vector<std::string>& all) {
  std::string place = concat(comm.name, ".", ++comm.operations, ".");
  put(concat(place, comm.rank), mine);
  all.resize(static_cast<size_t>(comm.size));
  for (int rank = 0; rank < comm.size; ++rank)
    if (!take(concat(place, rank), all[static_cast<size_t>(rank)]))
      return refuse(concat("rank ", rank, " of ", comm.name, " does not come to ", mine));
  return ncclSuccess;
}

ncclResult_t operate(ncclComm& comm, const std::string& what, cudaStream_t stream) {
  std::vector<std::string> all;
  if (ncclResult_t error = meet(comm, what, all)) return error;
  for (const std::string& theirs : all)
    if (theirs != what) return refuse(concat(what, " in ", comm.name, " beside ", theirs));
  auto guard = cuda_stand_in::lock();
  cuda_stand_in::use_context("NCCL");
  cuda_stand_in::enqueue(stream, concat("NCCL ", what, " in ", comm.name));
  return ncclSuccess;
}

// The n-th send from one rank to another and its receive.
std::string place_of(const ncclComm& comm, const Transfer& t, int n, bool theirs) {
  bool sends = t.kind == "send";
  int from = sends ? comm.rank : t.peer, to = sends ? t.peer : comm.rank;
  return concat(comm.name, ".", from, "-", to, ".", n, sends == theirs ? ".received" : ".sent");
}

// As ncclTransportP2pSetup() of NCCL 2.28: a group waits for the peers with whom it sends or
// receives for the first time, whose groups must be the same, the other way round.
ncclResult_t connect() {
  std::map<std::pair<ncclComm*, int>, std::string> mine, theirs;
  for (auto& [comm, t] : grouped) {
    if (comm->transfers.contains(concat(t.kind, t.peer))) continue;
    mine[{comm, t.peer}] += t.kind == "send" ? "s" : "r";
    theirs[{comm, t.peer}] += t.kind == "send" ? "r" : "s";
  }
  for (auto& [with, kinds] : mine) {
    auto [comm, peer] = with;
    std::ranges::sort(kinds);
    put(concat(comm->name, ".connect.", comm->rank, "-", peer, ".", ++comm->meetings[peer]), kinds);
  }
  for (auto& [with, kinds] : theirs) {
    auto [comm, peer] = with;
    std::string found;
    std::ranges::sort(kinds);
    if (!take(concat(comm->name, ".connect.", peer, "-", comm->rank, ".", comm->meetings[peer]),
              found) ||
        found != kinds)
      return refuse(
          concat("rank ", peer, " of ", comm->name, " connects for ", found, ", not for ", kinds));
  }
  return ncclSuccess;
}

ncclResult_t exchange() {
  if (ncclResult_t error = connect()) return error;
  std::vector<int> numbers;
  for (auto& [comm, t] : grouped) {
    numbers.push_back(++comm->transfers[concat(t.kind, t.peer)]);
    put(place_of(*comm, t, numbers.back(), false), std::to_string(t.bytes));
  }
  auto all = std::exchange(grouped, {});
  for (size_t i = 0; i < all.size(); ++i) {
    auto& [comm, t] = all[i];
    std::string bytes, what = concat(t.kind, " of ", t.bytes, " with ", t.peer);
    if (!take(place_of(*comm, t, numbers[i], true), bytes))
      return refuse(concat("rank ", t.peer, " of ", comm->name, " does not come to ", what));
    if (bytes != std::to_string(t.bytes)) return refuse(concat(what, " beside ", bytes));
    auto guard = cuda_stand_in::lock();
    cuda_stand_in::enqueue(t.stream, concat("NCCL ", what, " in ", comm->name));
  }
  return ncclSuccess;
}

ncclResult_t transfer(ncclComm* comm, const Transfer& t) {
  grouped.emplace_back(comm, t);
  return group_depth > 0 ? ncclSuccess : exchange();
}

bool fails(const char* function) {
  return variable("NCCL_STAND_IN_FAILS") == std::string(function);
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  std::string text = variable("NCCL_STAND_IN_VERSION");
  return *version = text.empty() ? 22809 : std::stoi(text), ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) { return "invalid usage"; }
const char* ncclGetLastError(ncclComm_t) { return "Bootstrap : no socket interface found"; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  std::strcpy(id->internal, "world");
  return fails("ncclGetUniqueId") ? ncclInvalidUsage : ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t*) {
  *comm = new ncclComm{.name = id.internal, .rank = rank, .size = size};
  std::vector<std::string> all;
  return fails("ncclCommInitRankConfig") ? ncclInvalidUsage : meet(**comm, "init", all);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child, ncclConfig_t*) {
  std::vector<std::string> all;
  if (ncclResult_t error = meet(*comm, concat("split ", color, " ", key), all)) return error;
  *child = new ncclComm{.name = concat(comm->name, "-", ++comm->splits, "of", color), .size = 0};
  for (const std::string& text : all) {
    int their_color = 0, their_key = 0;
    if (std::sscanf(text.c_str(), "split %d %d", &their_color, &their_key) != 2)
      return refuse("a split beside " + text);
    if (their_color != color) continue;
    ++(*child)->size;
    (*child)->rank += their_key < key;
  }
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* size) {
  return *size = comm->size, ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  return *rank = comm->rank, ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  return *error = ncclSuccess, ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  std::vector<std::string> all;
  return meet(*comm, "finalize", all);
}
ncclResult_t ncclCommDestroy(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommAbort(ncclComm_t) { return ncclSuccess; }

ncclResult_t ncclGroupStart() { return ++group_depth, ncclSuccess; }
ncclResult_t ncclGroupEnd() { return --group_depth > 0 ? ncclSuccess : exchange(); }

ncclResult_t ncclAllReduce(const void*, void*, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return operate(*comm, concat("all_reduce ", op, " of ", count, " x ", type), stream);
}
ncclResult_t ncclReduceScatter(const void*, void*, size_t count, ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t comm, cudaStream_t stream) {
  return operate(*comm, concat("reduce_scatter of ", count, " x ", type), stream);
}
ncclResult_t ncclAllGather(const void*, void*, size_t count, ncclDataType_t, ncclComm_t comm,
                           cudaStream_t stream) {
  return operate(*comm, concat("all_gather of ", count), stream);
}
ncclResult_t ncclBroadcast(const void*, void*, size_t count, ncclDataType_t, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return operate(*comm, concat("broadcast of ", count, " from ", root), stream);
}
ncclResult_t ncclSend(const void*, size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return transfer(comm, {"send", count, peer, stream});
}
ncclResult_t ncclRecv(void*, size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return transfer(comm, {"receive", count, peer, stream});
}

}  // extern "C"
