#include "launch/process_info.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "launch/hostlist.h"

namespace neox {
namespace {

using Names = std::vector<std::string>;

const Names kExplicit = {"NEOX_RANK", "NEOX_WORLD_SIZE", "NEOX_LOCAL_RANK", "NEOX_LOCAL_SIZE",
                         "NEOX_MASTER"};
const Names kTorch = {"RANK",        "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                      "MASTER_ADDR", "MASTER_PORT"};
const Names kOpenMpi = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
const Names kSlurm = {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS",      "SLURM_LOCALID",
                      "SLURM_NODEID", "SLURM_STEP_NUM_NODES",      "SLURM_STEP_NODELIST",
                      "SLURM_JOB_ID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_ID"};
// Steps from here on are not started by srun: an interactive shell of salloc, a batch shell.
constexpr uint64_t kFirstSpecialStep = 0xfffffff0;
constexpr int kMany = std::numeric_limits<int>::max();

bool has(const Environment& env, const std::string& name) { return !variable(env, name).empty(); }

bool has_all(const Environment& env, const Names& names) {
  return std::ranges::all_of(names, [&](const auto& name) { return has(env, name); });
}

// "RANK=3 WORLD_SIZE=4": those that are set.
std::string shown(const Environment& env, const Names& names) {
  Names set;
  for (const auto& name : names)
    if (has(env, name)) set.push_back(name + "=" + variable(env, name));
  return join(set, " ");
}

void require_all(const Environment& env, const Names& names, const std::string& what) {
  Names missing;
  std::ranges::copy_if(names, std::back_inserter(missing),
                       [&](const auto& name) { return !has(env, name); });
  check_usage(missing.empty(), what, " is set in part: ", shown(env, names), ", but not ",
              join(missing, ", "), "; set all of them or none");
}

uint64_t id_variable(const Environment& env, const std::string& name) {
  std::string text = variable(env, name);
  check_usage(
      !text.empty() && text.size() < 19 && text.find_first_not_of("0123456789") == text.npos,
      "the environment says ", name, "=", text, ", which is not a number");
  return std::stoull(text);
}

enum class Launcher { kExplicit, kTorchrun, kOpenMpi, kSlurm, kByHand, kAlone };

// A batch shell keeps the variables of a step in which its job was submitted. What slurmd sets anew
// there tells: the node, and task 0 as the only one on it. Not SLURM_NTASKS, which may be that
// step's too, and under srun -E is not the step's own.
bool step_is_of_another_job(const Environment& env) {
  if (!has_all(env, {"SLURMD_NODENAME", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE"}) ||
      variable(env, "SLURM_GTIDS") != "0")
    return false;
  std::vector<int> tasks = expand_tasks_per_node(variable(env, "SLURM_STEP_TASKS_PER_NODE"));
  Names nodes = expand_hostlist(variable(env, "SLURM_STEP_NODELIST"));
  auto at = std::ranges::find(nodes, variable(env, "SLURMD_NODENAME"));
  auto node = static_cast<size_t>(at - nodes.begin());
  return at == nodes.end() || (node < tasks.size() && tasks[node] != 1);
}

bool in_slurm_step(const Environment& env) {
  return has_all(env, {"SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"}) &&
         id_variable(env, "SLURM_STEP_ID") < kFirstSpecialStep && !step_is_of_another_job(env);
}

Launcher launcher_of(const Environment& env) {
  if (!shown(env, {kExplicit.begin(), kExplicit.end() - 1}).empty()) return Launcher::kExplicit;
  // Without the others it says where ranks meet that Open MPI or Slurm has numbered.
  if (has(env, "NEOX_MASTER")) {
    if (has(env, "TORCHELASTIC_RUN_ID")) return Launcher::kExplicit;
    if (has(env, "OMPI_COMM_WORLD_RANK")) return Launcher::kOpenMpi;
    return in_slurm_step(env) ? Launcher::kSlurm : Launcher::kExplicit;
  }
  if (has(env, "TORCHELASTIC_RUN_ID") ||
      has_all(env, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR"}))
    return Launcher::kTorchrun;
  if (has(env, "OMPI_COMM_WORLD_RANK")) return Launcher::kOpenMpi;
  if (in_slurm_step(env)) return Launcher::kSlurm;
  return has(env, "RANK") ? Launcher::kByHand : Launcher::kAlone;
}

bool pmix_server(const Environment& env) {
  auto uri = env.lower_bound("PMIX_SERVER_URI");
  return has_all(env, {"PMIX_NAMESPACE", "PMIX_RANK"}) && uri != env.end() &&
         uri->first.starts_with("PMIX_SERVER_URI");
}

// rank, size, local rank and local size, which are in this order in all sets.
void read_ranks(const Environment& env, const Names& names, ProcessInfo& info) {
  info.size = number_variable(env, names[1], 1, kMany);
  info.rank = number_variable(env, names[0], 0, info.size - 1);
  info.local_size = number_variable(env, names[3], 1, info.size);
  info.local_rank = number_variable(env, names[2], 0, info.local_size - 1);
  bool one_node = info.local_size == info.size;
  info.node = one_node ? 0 : -1;
  info.num_nodes = one_node ? 1 : 0;
}

int port_number(const std::string& name, const std::string& text) {
  return number_variable({{name, text}}, name, 1, 65535);
}

void read_master(const Environment& env, ProcessInfo& info) {
  std::string master = variable(env, "NEOX_MASTER");
  size_t colon = master.rfind(':');
  check_usage(colon != std::string::npos && colon > 0, "NEOX_MASTER=", master, " is not HOST:PORT");
  info.rendezvous_host = master.substr(0, colon);
  if (info.rendezvous_host.starts_with('[') && info.rendezvous_host.ends_with(']'))
    info.rendezvous_host = info.rendezvous_host.substr(1, colon - 2);
  info.rendezvous_port = port_number("port of NEOX_MASTER", master.substr(colon + 1));
}

void read_explicit(const Environment& env, ProcessInfo& info) {
  require_all(env, kExplicit, "the set of NEOX_* variables that names a rank");
  read_ranks(env, kExplicit, info);
  read_master(env, info);
  info.launcher = "NEOX_* variables";
}

void read_torch(const Environment& env, ProcessInfo& info) {
  bool single = variable(env, "WORLD_SIZE") == "1" && !has(env, "TORCHELASTIC_RUN_ID") &&
                has_all(env, {"RANK", "LOCAL_RANK"});
  info.launcher = "RANK and WORLD_SIZE, set by hand";
  if (single && (!has(env, "LOCAL_WORLD_SIZE") || !has(env, "MASTER_ADDR"))) {
    number_variable(env, "RANK", 0, 0);
    number_variable(env, "LOCAL_RANK", 0, 0);
    return;
  }
  require_all(env, kTorch, "the set of variables of torchrun");
  read_ranks(env, kTorch, info);
  if (has_all(env, {"GROUP_RANK", "GROUP_WORLD_SIZE"})) {
    info.num_nodes = number_variable(env, "GROUP_WORLD_SIZE", 1, info.size);
    info.node = number_variable(env, "GROUP_RANK", 0, info.num_nodes - 1);
  }
  info.rendezvous_host = variable(env, "MASTER_ADDR");
  info.rendezvous_port = port_number("MASTER_PORT", variable(env, "MASTER_PORT"));
  // torchrun itself listens there, for as long as the job lives.
  if (variable(env, "TORCHELASTIC_USE_AGENT_STORE") == "True")
    info.rendezvous_port = info.rendezvous_port == 65535 ? 29999 : info.rendezvous_port + 1;
  if (has(env, "TORCHELASTIC_RUN_ID")) info.launcher = "torchrun";
}

void read_open_mpi(const Environment& env, ProcessInfo& info) {
  require_all(env, kOpenMpi, "the set of variables of Open MPI's mpirun");
  read_ranks(env, kOpenMpi, info);
  info.launcher = "mpirun of Open MPI";
  if (has(env, "NEOX_MASTER")) return read_master(env, info);
  info.pmix = pmix_server(env);
  check_usage(info.pmix || info.size == 1, "mpirun started ", info.size,
              " ranks without a PMIx server (PMIX_NAMESPACE, "
              "PMIX_RANK, PMIX_SERVER_URI*), so that they cannot find each other: use Open MPI 4 "
              "or newer, srun, or set NEOX_MASTER=HOST:PORT on all ranks");
}

// The first job of a heterogeneous job stands for all of it.
std::string slurm_job(const Environment& env) {
  for (const char* name : {"SLURM_JOB_ID_HET_GROUP_0", "SLURM_HET_JOB_ID", "SLURM_JOB_ID"})
    if (has(env, name)) return variable(env, name);
  return "";
}

// Below the ports that kernels hand out (32768 to 60999), and apart for neighbouring jobs and
// their steps.
int slurm_port(uint64_t job, uint64_t step) {
  return static_cast<int>(15000 + (job * 7919 + step * 101) % 15000);
}

// mpirun of MPICH or Intel MPI: one process of many would believe that it is alone.
void refuse_foreign_mpirun(const Environment& env, const ProcessInfo& info) {
  if (!has_all(env, {"PMI_RANK", "PMI_SIZE"})) return;
  check_usage(number_variable(env, "PMI_SIZE", 1, kMany) == info.size,
              "two sources contradict each other: PMI_RANK=", variable(env, "PMI_RANK"),
              " PMI_SIZE=", variable(env, "PMI_SIZE"), ", but ", info.launcher, " tells a size of ",
              info.size,
              "; an mpirun other than Open MPI's is not supported: start the program with srun, or "
              "set NEOX_RANK, NEOX_WORLD_SIZE, NEOX_LOCAL_RANK, NEOX_LOCAL_SIZE and NEOX_MASTER");
}

// "4,5,6" is numbers(4, 3).
std::string numbers(int first, int count) {
  Names all;
  for (int i = 0; i < count; ++i) all.push_back(concat(first + i));
  return join(all, ",");
}

void read_slurm_nodes(const Environment& env, ProcessInfo& info) {
  std::string tasks_text = variable(env, "SLURM_STEP_TASKS_PER_NODE");
  std::string nodes_text = variable(env, "SLURM_STEP_NODELIST");
  std::vector<int> tasks = expand_tasks_per_node(tasks_text);
  info.nodes = expand_hostlist(nodes_text);
  info.num_nodes = number_variable(env, "SLURM_STEP_NUM_NODES", 1, kMany);
  info.node = number_variable(env, "SLURM_NODEID", 0, info.num_nodes - 1);
  auto sum = std::accumulate(tasks.begin(), tasks.end(), int64_t{0});
  check_usage(sum == info.size, "Slurm contradicts itself: SLURM_STEP_NUM_TASKS=", info.size,
              ", but SLURM_STEP_TASKS_PER_NODE=", tasks_text, " makes ", sum);
  check_usage(
      tasks.size() == info.nodes.size() && tasks.size() == static_cast<size_t>(info.num_nodes),
      "Slurm contradicts itself: SLURM_STEP_NUM_NODES=", info.num_nodes,
      ", SLURM_STEP_NODELIST=", nodes_text, " (", info.nodes.size(),
      ") and SLURM_STEP_TASKS_PER_NODE=", tasks_text, " (", tasks.size(),
      ") name different numbers of nodes");
  info.local_size = tasks[static_cast<size_t>(info.node)];
  auto before = tasks.begin() + info.node;
  int first = std::accumulate(tasks.begin(), before, 0);
  if (variable(env, "SLURM_GTIDS") == numbers(first, info.local_size)) info.tasks = tasks;
  const std::string& name = info.nodes[static_cast<size_t>(info.node)];
  std::string daemon = variable(env, "SLURMD_NODENAME");
  check_usage(daemon.empty() || daemon == name,
              "Slurm contradicts itself: SLURMD_NODENAME=", daemon, ", but node ", info.node,
              " of SLURM_STEP_NODELIST=", nodes_text, " is ", name);
}

void read_slurm(const Environment& env, ProcessInfo& info) {
  require_all(env, kSlurm, "the set of variables of a Slurm step");
  info.size = number_variable(env, "SLURM_STEP_NUM_TASKS", 1, kMany);
  info.rank = number_variable(env, "SLURM_PROCID", 0, info.size - 1);
  read_slurm_nodes(env, info);
  info.local_rank = number_variable(env, "SLURM_LOCALID", 0, info.local_size - 1);
  std::string job = slurm_job(env), step = variable(env, "SLURM_STEP_ID");
  info.launcher = concat("Slurm step ", job, ".", step);
  info.rendezvous_host = info.nodes[0];
  info.rendezvous_port = slurm_port(id_variable({{"SLURM_JOB_ID", job}}, "SLURM_JOB_ID"),
                                    id_variable(env, "SLURM_STEP_ID"));
  info.pmix = pmix_server(env);
  if (has(env, "NEOX_MASTER")) {
    read_master(env, info);
    info.pmix = false;  // it would tell another place
  }
  refuse_foreign_mpirun(env, info);
}

// enroot's hook for PyTorch images sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT
// from the step's; job scripts export some of them, often without RANK.
void compare_with_slurm(const Environment& env, ProcessInfo& info) {
  std::string found = shown(env, kTorch);
  if (found.empty() || !in_slurm_step(env)) return;
  bool same_size = variable(env, "WORLD_SIZE") == variable(env, "SLURM_STEP_NUM_TASKS");
  const std::array<std::array<const char*, 2>, 2> pairs = {
      {{"RANK", "SLURM_PROCID"}, {"LOCAL_RANK", "SLURM_LOCALID"}}};
  for (const auto& [theirs, ours] : pairs)
    check_usage(!same_size || !has(env, theirs) || variable(env, theirs) == variable(env, ours),
                "two sources contradict each other: ", theirs, "=", variable(env, theirs), ", but ",
                ours, "=", variable(env, ours), ", of ", info.size,
                " processes in both; unset the one that is wrong (e.g. with 'env -u ", theirs,
                "')");
  if (info.launcher.starts_with("Slurm"))
    info.notes.push_back(concat(found, " not used: ", info.launcher, " tells",
                                same_size || !has(env, "WORLD_SIZE") ? "" : " another size"));
}

void refuse_batch_shell(const Environment& env) {
  // A shell of salloc has no rank, or, on a node of the job, a special step.
  if (!has_all(env, {"SLURM_JOB_ID", "SLURM_PROCID"}) ||
      (has(env, "SLURM_STEP_ID") && !step_is_of_another_job(env)))
    return;
  std::string tasks = variable(env, "SLURM_NTASKS"), jobs = variable(env, "SLURM_HET_SIZE");
  if (tasks.empty()) tasks = variable(env, "SLURM_JOB_NUM_NODES");
  if ((tasks.empty() || tasks == "1") && (jobs.empty() || jobs == "1")) return;
  fail(Exit::kUsage, "this is the batch shell of Slurm job ", variable(env, "SLURM_JOB_ID"),
       ", which has ", jobs.empty() ? tasks + " tasks" : jobs + " components", " on ",
       variable(env, "SLURM_JOB_NODELIST"),
       ", and not one of its tasks: start the program with srun (srun -N1 -n1 for one process)");
}

void read_alone(const Environment& env, ProcessInfo& info) {
  info.launcher = "alone";
  refuse_batch_shell(env);
  refuse_foreign_mpirun(env, info);
  std::string tasks = variable(env, "SLURM_NTASKS"), found = shown(env, kTorch);
  if (has(env, "SLURM_JOB_ID") && !tasks.empty() && tasks != "1")
    info.notes.push_back(concat("Slurm job ", variable(env, "SLURM_JOB_ID"), " has ", tasks,
                                " tasks; this is a single process in a shell of it (srun starts "
                                "all)"));
  if (has(env, "SLURM_STEP_ID") && step_is_of_another_job(env))
    info.notes.push_back(concat(shown(env, {"SLURM_STEP_NODELIST", "SLURM_STEP_NUM_TASKS"}),
                                " not used: of the step in which this job was submitted"));
  if (has(env, "WORLD_SIZE") && variable(env, "WORLD_SIZE") != "1")
    info.notes.push_back(concat(found, " not used: RANK is not set"));
}

uint64_t fnv1a(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;
  return hash;
}

std::string hex(uint64_t value) {
  std::ostringstream out;
  out << std::hex << value;
  return out.str();
}

// What tells this start of the processes from all others of the same Slurm job, or of the machine.
std::string start_of(const Environment& env, Launcher launcher) {
  std::string life = variable(env, "NEOX_LIFE"), run = variable(env, "TORCHELASTIC_RUN_ID");
  switch (launcher) {
    case Launcher::kExplicit:
      return life.empty() ? hex(fnv1a(variable(env, "NEOX_MASTER"))) : life;
    case Launcher::kTorchrun:
    case Launcher::kByHand:
      return run.empty()
                 ? hex(fnv1a(variable(env, "MASTER_ADDR") + ":" + variable(env, "MASTER_PORT")))
                 : run + "." + variable(env, "TORCHELASTIC_RESTART_COUNT");
    case Launcher::kOpenMpi:
      if (has(env, "PMIX_NAMESPACE")) return variable(env, "PMIX_NAMESPACE");
      return variable(env, "OMPI_MCA_ess_base_jobid");
    case Launcher::kSlurm:
      return variable(env, "SLURM_STEP_ID");
    case Launcher::kAlone:
      return concat(host_name(), "-", ::getpid());
  }
  return "";
}

}  // namespace

void check_alone(const std::string& program) {
  ProcessInfo process = process_info(environment(), host_name());
  check_usage(process.size == 1, program, " is one process, and this is one of ", process.size,
              " (", process.launcher, "); start it once: srun -n 1, mpirun -n 1");
}

std::string life_of_job(const Environment& env) {
  Launcher launcher = launcher_of(env);
  std::string job = slurm_job(env), restart = variable(env, "SLURM_RESTART_COUNT");
  std::string life = start_of(env, launcher);
  if (!job.empty() && !(launcher == Launcher::kExplicit && has(env, "NEOX_LIFE")))
    life = concat(job, ".", life, ".", restart.empty() ? "0" : restart);
  // It becomes a part of file names.
  for (char& c : life)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_') c = '-';
  return life;
}

ProcessInfo process_info(const Environment& env, const std::string& host) {
  static const std::map<Launcher, void (*)(const Environment&, ProcessInfo&)> kReaders = {
      {Launcher::kExplicit, read_explicit}, {Launcher::kTorchrun, read_torch},
      {Launcher::kOpenMpi, read_open_mpi},  {Launcher::kSlurm, read_slurm},
      {Launcher::kByHand, read_torch},      {Launcher::kAlone, read_alone}};
  Launcher launcher = launcher_of(env);
  ProcessInfo info;
  info.host = host;
  kReaders.at(launcher)(env, info);
  bool torchrun = launcher == Launcher::kTorchrun && has(env, "TORCHELASTIC_RUN_ID");
  if (launcher == Launcher::kSlurm || (launcher == Launcher::kTorchrun && !torchrun))
    compare_with_slurm(env, info);
  info.life = life_of_job(env);
  return info;
}

void number_nodes(ProcessInfo& process, const std::vector<std::string>& hosts) {
  if (process.num_nodes > 0) return;
  for (const std::string& host : hosts)
    if (std::ranges::find(process.nodes, host) == process.nodes.end())
      process.nodes.push_back(host);
  const std::string& mine = hosts.at(static_cast<size_t>(process.rank));
  process.num_nodes = static_cast<int>(process.nodes.size());
  process.node = static_cast<int>(std::ranges::find(process.nodes, mine) - process.nodes.begin());
}

std::string describe(const ProcessInfo& p) {
  std::string meet = "nowhere";
  if (p.rendezvous_port > 0) meet = concat(p.rendezvous_host, ":", p.rendezvous_port);
  if (p.pmix) meet = p.rendezvous_port > 0 ? "PMIx or " + meet : "PMIx";
  auto told = [](int value, int unknown) {
    return value == unknown ? std::string("?") : std::to_string(value);
  };
  return concat("rank=", p.rank, " size=", p.size, " local_rank=", p.local_rank,
                " local_size=", p.local_size, " node=", told(p.node, -1),
                " num_nodes=", told(p.num_nodes, 0), " host=", p.host, " life=", p.life,
                " launcher='", p.launcher, "' meet='", meet, "'");
}

std::string host_name() {
  std::array<char, 256> name{};
  int result = ::gethostname(name.data(), name.size() - 1);
  check(result == 0, "gethostname: ", describe_errno(errno));
  return name.data();
}

}  // namespace neox
