// Who this process is among the processes of its job, and where they meet: a pure function of the
// environment.
#pragma once
#include <string>
#include <vector>

#include "launch/environment.h"

namespace neox {

struct ProcessInfo {
  int rank = 0, size = 1;              // among all processes of the job
  int local_rank = 0, local_size = 1;  // among those of this node
  int node = 0, num_nodes = 1;         // -1 and 0 where the launcher does not tell
  std::string host;                    // of this process
  std::vector<std::string> nodes;      // by node number; empty where the launcher does not tell
  std::vector<int> tasks;              // of each node, where ranks are numbered from node to node
  std::string launcher;                // "Slurm step 12.0", "mpirun of Open MPI", "alone" ...
  std::string rendezvous_host;         // where rank 0 is to be found
  int rendezvous_port = 0;             // the first port to try; 0: rank 0 publishes it through PMIx
  bool pmix = false;                   // a PMIx server is there to publish the address
  std::string life;                    // of the job, the same for all its ranks: "JOB.STEP.RESTART"
  std::vector<std::string> notes;      // what was found and not used, for rank 0's log
};

// The first that applies: NEOX_RANK, NEOX_WORLD_SIZE, NEOX_LOCAL_RANK, NEOX_LOCAL_SIZE and
// NEOX_MASTER=HOST:PORT; torchrun; mpirun of Open MPI; a Slurm step; RANK, WORLD_SIZE and
// LOCAL_RANK; alone. Throws (64) in the batch shell of a job of several tasks, for a set that is
// not whole, and for sources that contradict each other, naming both.
ProcessInfo process_info(const Environment& env, const std::string& host);

// Throws (64) where this process is one of several of a job; `program` works alone.
void check_alone(const std::string& program);

// ProcessInfo::life without the checks of process_info().
std::string life_of_job(const Environment& env);

// Numbers the nodes in the order of the ranks, where the launcher did not tell; hosts are those of
// all ranks, by rank.
void number_nodes(ProcessInfo& process, const std::vector<std::string>& hosts);

// One line of name=value, for people and for tests: "rank=3 size=4 ... meet=node1:17921".
std::string describe(const ProcessInfo& process);

// gethostname(); HOSTNAME is that of the batch shell.
std::string host_name();

}  // namespace neox
