#include <mpi.h>
#include <pmix.h>

#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "comm/mpi/share.h"

namespace neox::mpi {
namespace {

void check_pmix(pmix_status_t status, const std::string& what) {
  if (status != PMIX_SUCCESS) fail(Exit::kInternal, what, ": ", PMIx_Error_string(status));
}

// PMIx counts its users.
class Client {
 public:
  Client() {
    pmix_status_t status = PMIx_Init(&me_, nullptr, 0);
    check_usage(status == PMIX_SUCCESS, "no PMIx server answers (", PMIx_Error_string(status),
                "): start the job with srun --mpi=pmix or mpirun");
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() { PMIx_Finalize(nullptr, 0); }
  const pmix_proc_t& me() const { return me_; }

 private:
  pmix_proc_t me_;
};

struct Fence {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  pmix_status_t status = PMIX_SUCCESS;
};

void fence_done(pmix_status_t status, void* data) {
  std::unique_ptr<std::shared_ptr<Fence>> fence(static_cast<std::shared_ptr<Fence>*>(data));
  std::lock_guard lock((*fence)->mutex);
  (*fence)->done = true;
  (*fence)->status = status;
  (*fence)->changed.notify_all();
}

// All ranks of the job come here, and see what any has put before. PMIx's own time-out is not
// honoured by every server.
void fence(const pmix_proc_t& me, std::chrono::seconds deadline) {
  pmix_proc_t all;
  PMIX_PROC_CONSTRUCT(&all);
  PMIX_LOAD_PROCID(&all, me.nspace, PMIX_RANK_WILDCARD);
  pmix_info_t collect;
  bool yes = true;
  PMIX_INFO_CONSTRUCT(&collect);
  PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
  auto state = std::make_shared<Fence>();
  check_pmix(PMIx_Fence_nb(&all, 1, &collect, 1, fence_done, new std::shared_ptr<Fence>(state)),
             "PMIx_Fence_nb");
  std::unique_lock lock(state->mutex);
  if (!state->changed.wait_for(lock, deadline, [&] { return state->done; }))
    fail(Exit::kPeerLost, "not all ranks of the PMIx job ", me.nspace, " came to share within ",
         deadline.count(), " s; this is rank ", me.rank);
  check_pmix(state->status, "PMIx_Fence_nb");
}

void put(const std::string& key, const std::string& text) {
  pmix_value_t value;
  PMIX_VALUE_CONSTRUCT(&value);
  value.type = PMIX_BYTE_OBJECT;
  value.data.bo.bytes = const_cast<char*>(text.data());
  value.data.bo.size = text.size();
  check_pmix(PMIx_Put(PMIX_GLOBAL, key.c_str(), &value), "PMIx_Put of " + key);
  check_pmix(PMIx_Commit(), "PMIx_Commit");
}

std::string get(const pmix_proc_t& me, const std::string& key, std::chrono::seconds deadline) {
  pmix_proc_t zero;
  PMIX_PROC_CONSTRUCT(&zero);
  PMIX_LOAD_PROCID(&zero, me.nspace, 0);
  pmix_info_t timeout;
  int seconds = static_cast<int>(deadline.count());
  PMIX_INFO_CONSTRUCT(&timeout);
  PMIX_INFO_LOAD(&timeout, PMIX_TIMEOUT, &seconds, PMIX_INT);
  pmix_value_t* value = nullptr;
  check_pmix(PMIx_Get(&zero, key.c_str(), &timeout, 1, &value), "PMIx_Get of " + key);
  std::string text(value->data.bo.bytes, value->data.bo.size);
  PMIX_VALUE_RELEASE(value);
  return text;
}

// Open MPI 4 fails where PMIx was left before MPI_Init: its server lets a process come, but not
// come again. From version 5 on it fails where PMIx was not left: it takes this process's name only
// from a PMIx_Init of its own (ompi_rte_init).
bool is_left_before_mpi() {
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0, major = 0;
  MPI_Get_library_version(version, &length);
  return std::sscanf(version, "Open MPI v%d", &major) == 1 && major >= 5;
}

}  // namespace

// The ranks meet behind it, before any calls MPI_Init: a server that loses a client counts one less
// in the fence that is under way, so that none may leave while others are back already.
std::string share(const std::string& mine, std::chrono::seconds deadline) {
  static std::unique_ptr<Client> client;
  if (!client) client = std::make_unique<Client>();
  static int calls = 0;
  std::string key = concat("neox.share.", calls++);
  const pmix_proc_t& me = client->me();
  if (me.rank == 0) put(key, mine);
  fence(me, deadline);
  std::string text = get(me, key, deadline);
  if (is_left_before_mpi()) client.reset();
  return text;
}

}  // namespace neox::mpi
