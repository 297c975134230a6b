#include "launch/spawn.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "base/log.h"

namespace neox {
namespace {

// Ends with the parent, also where that is killed.
[[noreturn]] void become(const std::vector<std::string>& arguments, const Environment& env,
                         pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(static_cast<int>(Exit::kPeerLost));
  for (const auto& [name, value] : env) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> argv;
  for (const std::string& argument : arguments)
    argv.push_back(const_cast<char*>(argument.c_str()));  // NOLINT: execv's signature
  argv.push_back(nullptr);
  ::execv("/proc/self/exe", argv.data());
  ::_exit(static_cast<int>(Exit::kInternal));
}

std::vector<std::string> without_spawn(const std::vector<std::string>& command) {
  std::vector<std::string> rest;
  for (size_t i = 0; i < command.size(); ++i) {
    if (command[i] == "--spawn")
      ++i;
    else if (!command[i].starts_with("--spawn="))
      rest.push_back(command[i]);
  }
  return rest;
}

struct Child {
  pid_t pid = -1;
  int rank = 0;
  bool runs = true;
};

// The exit code of a child that has ended: its own, or peer lost where a signal ended it.
int code_of(const Child& child, int status) {
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  log_warning("rank ", child.rank, " (pid ", child.pid, ") was ended by signal ", WTERMSIG(status),
              " (", ::strsignal(WTERMSIG(status)), ")");
  return static_cast<int>(Exit::kPeerLost);
}

}  // namespace

Environment spawned_environment(const ProcessInfo& parent, int ranks, int i) {
  const std::string& host = parent.rendezvous_host.empty() ? parent.host : parent.rendezvous_host;
  int port = parent.rendezvous_port > 0 ? parent.rendezvous_port : 15000 + ::getpid() % 15000;
  return {{"NEOX_RANK", std::to_string(parent.rank * ranks + i)},
          {"NEOX_WORLD_SIZE", std::to_string(parent.size * ranks)},
          {"NEOX_LOCAL_RANK", std::to_string(parent.local_rank * ranks + i)},
          {"NEOX_LOCAL_SIZE", std::to_string(parent.local_size * ranks)},
          {"NEOX_MASTER", concat(host, ":", port)},
          {"NEOX_LIFE", parent.life}};
}

Exit spawn_ranks(const std::vector<std::string>& command, const ProcessInfo& parent, int ranks,
                 const std::atomic<int>& stop) {
  // Each of several parents would name a place of its own.
  check_usage(parent.size == 1 || parent.rendezvous_port > 0, "--spawn ", ranks, " under ",
              parent.launcher, ", which names no place where the ranks of ", parent.size,
              " processes meet: start a process for each GPU, or use srun or torchrun");
  std::vector<Child> children;
  std::vector<std::string> arguments = without_spawn(command);
  pid_t self = ::getpid();
  for (int i = 0; i < ranks; ++i) {
    // By this process, whose number says where they meet.
    Environment environment = spawned_environment(parent, ranks, i);
    pid_t pid = ::fork();
    check(pid >= 0, "cannot start rank ", i, ": ", describe_errno(errno));
    if (pid == 0) become(arguments, environment, self);
    children.push_back({pid, parent.rank * ranks + i});
  }
  int first_bad = 0, passed_on = 0;
  for (size_t running = children.size(); running > 0;) {
    if (int signal = stop.load(); signal != passed_on) {
      passed_on = signal;
      // A terminal has sent its SIGINT to the children too, of whom a second one ends all at once.
      for (const Child& child : children)
        if (child.runs) ::kill(child.pid, signal == SIGINT ? SIGUSR1 : signal);
    }
    for (Child& child : children) {
      int status = 0;
      if (!child.runs || ::waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
      child.runs = false;
      --running;
      int code = code_of(child, status);
      if (first_bad == 0) first_bad = code;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return static_cast<Exit>(first_bad);
}

}  // namespace neox
