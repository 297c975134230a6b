// The processes of a job meet: a key-value store (c10d::TCPStore) that rank 0 serves. It carries
// Control, and tells within seconds that a rank was lost. Keys begin with the life of the job, so
// that an orphan of an earlier life, or another job at the same port, is not taken for a peer.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "launch/control.h"
#include "launch/process_info.h"

namespace neox {

struct JoinOptions {
  // What must be the same on all ranks, by name: {"config", hash}, {"build", id}. Ranks that differ
  // from most are named.
  std::vector<std::pair<std::string, std::string>> must_agree;
  std::chrono::seconds deadline{300};  // for all ranks to arrive
  std::chrono::seconds naming{30};     // after it, for rank 0 to say who has not arrived
  std::chrono::seconds patience{20};   // then the log says who is waited for
  std::chrono::milliseconds heartbeat{500};
  std::chrono::milliseconds silence{8000};  // a rank not heard of for so long is lost
  std::chrono::milliseconds answer{5000};   // the same after SIGTERM
  std::function<void()> poll;               // while waiting, each 100 ms; may throw, to stop
  std::string mpi_plugin;                   // NEOX_MPI_PLUGIN; empty: beside the program
  // Control::channel() will be called: the connection of the first is then made before hearts beat,
  // since the store is deaf while it looks up the name of a new client. Other jobs save that time.
  bool channel = false;
};

// What NEOX_MPI_PLUGIN, NEOX_ARRIVAL_SECONDS (the deadline) and NEOX_SILENCE_SECONDS say.
JoinOptions join_options(const Environment& env);

class Job {
 public:
  // Collective where no rank failed: rank 0 serves the store until all have come here, but not
  // longer than 10 s, so ranks that end at different times meet before (control().barrier()). Left
  // by an exception without failed(), it tells the others that this rank failed.
  virtual ~Job() = default;
  virtual const ProcessInfo& process() const = 0;
  virtual Control& control() = 0;
  // Every rank's host, by rank.
  virtual const std::vector<std::string>& hosts() const = 0;
  // From now on a lost or failed rank is noticed: lost(reason) is called once, on a thread of the
  // job's, and should make the main thread's waits throw. Where the process is still there `grace`
  // later, it ends with exit code 76, the reason on stderr. When `signal` becomes SIGTERM all ranks
  // are asked for an answer, since one may be gone already. What `lost` refers to, and `signal`,
  // outlive the job.
  virtual void watch(std::function<void(const std::string& reason)> lost,
                     const std::atomic<int>& signal,
                     std::chrono::seconds grace = std::chrono::seconds(5)) = 0;
  // This rank ends with `exit` because of `reason`: the others' lost() is called with it, and they
  // end with that code. What waits for others over control() throws from now on, and where the
  // process is watched and still there 12 times `grace` later, it ends with `exit`. Does not throw.
  virtual void failed(const std::string& reason, Exit exit) noexcept = 0;
  // Any thread. What this rank says of itself, for rank 0: it goes with the next heartbeat, in the
  // place of what was told before.
  virtual void tell(const std::string& text) = 0;
  // On rank 0: what each rank has told last, as of its last heartbeat; "": nothing.
  virtual std::vector<std::string> told() const = 0;
  // Throws why a rank is lost, once one is: with 76, or with the exit code of the rank that failed.
  virtual void check_all_alive() const = 0;
};

// Collective over all processes of the job. A job of one opens no socket. Throws (76) naming the
// ranks, and their nodes where known, that did not arrive within the deadline, and (64) naming
// those that differ in `must_agree` or take the same rank.
std::unique_ptr<Job> join(const ProcessInfo& process, const JoinOptions& options);

}  // namespace neox
