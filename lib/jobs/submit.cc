#include "jobs/submit.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "jobs/job_script.h"

namespace neox {
namespace {

struct Finished {
  int status = 0;
  std::string output;
};

// In a shell inside another job that one's variables would count as what the new one asks for. The
// type of MPI is the user's wish, but in a step: that of an interactive shell has none.
bool is_of_a_job(std::string_view variable) {
  constexpr std::array kOthers = {
      "SLURM_CONF=", "SLURM_JWT=", "SLURM_CLUSTERS=", "SLURM_TIME_FORMAT="};
  if (variable.starts_with("SLURM_MPI_TYPE=")) return std::getenv("SLURM_STEP_ID") != nullptr;
  return variable.starts_with("SLURM_") &&
         std::ranges::none_of(kOthers, [&](auto name) { return variable.starts_with(name); });
}

std::vector<char*> own_environment() {
  std::vector<char*> kept;
  bool in_a_job = std::getenv("SLURM_JOB_ID") != nullptr;
  for (char** variable = ::environ; *variable; ++variable)
    if (!in_a_job || !is_of_a_job(*variable)) kept.push_back(*variable);
  kept.push_back(nullptr);
  return kept;
}

// Runs a program of PATH and returns what it wrote to its standard output.
Finished run(const std::vector<std::string>& command) {
  std::array<int, 2> ends{};
  int piped = ::pipe2(ends.data(), O_CLOEXEC);
  check_io(piped == 0, "cannot start ", command[0], ": pipe: ", describe_errno(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  std::vector<char*> environment = own_environment();
  pid_t child = 0;
  int error =
      ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  Finished finished;
  std::array<char, 4096> buffer{};
  for (ssize_t n; error == 0 && (n = ::read(ends[0], buffer.data(), buffer.size())) > 0;)
    finished.output.append(buffer.data(), static_cast<size_t>(n));
  ::close(ends[0]);
  check_io(error == 0, command[0], " could not be started (", describe_errno(error),
           "); is this a node of the cluster where jobs are submitted, and Slurm in PATH?");
  while (::waitpid(child, &finished.status, 0) < 0 && errno == EINTR) {}
  return finished;
}

// The id out of "123" or "123;cluster", what sbatch --parsable prints.
std::string job_id(const std::string& output) {
  std::string id = split(trim(output), ';')[0];
  bool digits = !id.empty() && std::ranges::all_of(id, [](char c) { return c >= '0' && c <= '9'; });
  check_io(digits, "sbatch printed '", trim(output), "', which is no job id");
  return id;
}

// Where the log lies is said by an option of sbatch that was given, too.
bool names_log(const SlurmJob& job, const Profile& profile) {
  auto names = [](const std::string& option) {
    return option.starts_with("--output") || option.starts_with("-o");
  };
  return std::ranges::any_of(profile.sbatch, names) || std::ranges::any_of(job.slurm.extra, names);
}

// By its absolute path, since --chdir may lead elsewhere. A percent sign stands for itself.
std::string log_pattern(const std::string& name) {
  std::string pattern;
  for (char c : std::filesystem::current_path().string())
    pattern += c == '%' ? std::string("%%") : std::string(1, c);
  return pattern + "/logs/" + name;
}

std::string submit(const SlurmJob& job, const Profile& profile, const std::string& name) {
  std::string script = "logs/" + name + ".sbatch";
  write_file_atomically(script, job_script(job, profile));
  std::vector<std::string> command = {"sbatch", "--parsable"};
  for (std::string& option : decided_options(job, profile)) command.push_back(std::move(option));
  if (!names_log(job, profile))
    command.push_back("--output=" + log_pattern(log_name(job, profile)));
  command.push_back(script);
  Finished finished = run(command);
  bool good = WIFEXITED(finished.status) && WEXITSTATUS(finished.status) == 0;
  check_io(good, "sbatch refused ", script, "; its reason stands above");
  return job_id(finished.output);
}

}  // namespace

void submit_jobs(std::vector<SlurmJob> jobs, const Profile& profile, std::ostream& out) {
  make_directories("logs");
  std::string before;
  for (SlurmJob& job : jobs) {
    std::string name = job.name.empty() ? "neox-" + name_of(job.kind) : job.name;
    if (!before.empty()) job.slurm.after = before;
    before = submit(job, profile, name);
    out << "submitted job " << before << " (" << name << ")"
        << (job.slurm.after.empty() ? "" : ", which starts after job " + job.slurm.after) << "\n";
    bool array = is_array(job, profile);
    if (!names_log(job, profile))
      out << (array ? "  logs:   logs/" : "  log:    tail -F logs/") << name << "_" << before
          << (array ? "_*.out\n" : ".out\n");
    out << "  state:  squeue -j " << before << "\n";
    if (job.kind == JobKind::kTrain)
      out << "  save and requeue:  scancel --batch --signal=USR1 " << before
          << (array ? "_ELEMENT\n" : "\n");
    out.flush();
  }
}

}  // namespace neox
