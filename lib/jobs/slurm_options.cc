#include "jobs/slurm_options.h"

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "base/text.h"
#include "jobs/check_job.h"

namespace neox {
namespace {

// Options of sbatch, and of neox-submit.
struct Checked {
  const char *name, *letter, *ours;
};
constexpr Checked kChecked[] = {{"--nodes", "-N", "nodes"},
                                {"--ntasks", "-n", "nodes and --tasks-per-node"},
                                {"--ntasks-per-node", "", "tasks-per-node"},
                                {"--tasks-per-node", "", "tasks-per-node"},
                                {"--gpus", "-G", "gpus-per-node"},
                                {"--gpus-per-node", "", "gpus-per-node"},
                                {"--gpus-per-task", "", "gpus-per-node"},
                                {"--gres=gpu", "", "gpus-per-node"},
                                {"--time", "-t", "time"},
                                {"--signal", "", "lead"},
                                {"--dependency", "-d", "after"},
                                {"--job-name", "-J", "job-name"}};

// Letters may have their value behind them, long names be cut short.
bool is_option(const std::string& word, const Checked& option) {
  if (*option.letter && word.starts_with(option.letter)) return true;
  std::string_view name = option.name;
  if (name.find('=') != name.npos) return word.starts_with(name);
  std::string given = word.substr(0, word.find('='));
  return given.size() > 5 && name.starts_with(given);
}

// What neox-submit has to know of. The lead of a training job's signal is checked; other jobs may
// have any signal.
const Checked* find_checked(const std::string& option, JobKind kind) {
  for (const Checked& checked : kChecked) {
    bool leads = std::string_view(checked.ours) == "lead";
    if (is_option(option, checked) && (!leads || kind == JobKind::kTrain)) return &checked;
  }
  return nullptr;
}

// The options of a line, each with its value: "-t 60 --mem 0" has "-t60" and "--mem=0".
std::vector<std::string> options_of(const std::string& line) {
  std::vector<std::string> options;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    if (word.starts_with("-") || options.empty())
      options.push_back(word);
    else
      options.back() += (options.back().starts_with("--") ? "=" : "") + word;
  }
  return options;
}

// Looks at the options of a profile, and returns the time limit among them.
std::string default_time(const Profile& profile, JobKind kind) {
  std::string time;
  for (const std::string& line : profile.sbatch) {
    check_usage(line.starts_with("-") && line.find('\n') == line.npos, "'", line,
                "' in sbatch of profile ", profile.name,
                ": options of sbatch stand there, such as --mem=0");
    for (const std::string& option : options_of(line)) {
      const Checked* checked = find_checked(option, kind);
      bool limits = checked && std::string_view(checked->ours) == "time";
      check_usage(!checked || limits, "'", option, "' in sbatch of profile ", profile.name,
                  ": say it on the command line, as --", checked ? checked->ours : "",
                  ", so that neox-submit knows of it");
      if (limits) time = option.substr(option.starts_with("--") ? option.find('=') + 1 : 2);
    }
  }
  return time;
}

NodeRange read_nodes(const std::string& text) {
  auto parts = split(text, '-');
  check_usage(parts.size() <= 2, "--nodes ", text, ": write a number, or MIN-MAX such as 2-4");
  NodeRange nodes{positive(parts[0], "nodes"), positive(parts.back(), "nodes")};
  check_usage(nodes.min <= nodes.max, "--nodes ", text, ": the smaller number comes first");
  return nodes;
}

}  // namespace

std::string word(const Program& program, const std::string& option) {
  if (!program.has(option)) return "";
  auto text = program.get<std::string>(option);
  check_usage(!text.empty() && text.find_first_of(" \t\n#'\"") == text.npos, "--", option, " '",
              text, "': an #SBATCH line takes one word without quotes, # and spaces");
  return text;
}

int positive(const std::string& text, const std::string& option, int least) {
  bool digits = !text.empty() && text.size() < 7 &&
                std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  int n = digits ? std::stoi(text) : -1;
  check_usage(n >= least, "--", option, " ", text, ": it must be a number from ", least, " on");
  return n;
}

GpuRequest read_gpus(const std::string& text) {
  size_t colon = text.rfind(':');
  std::string number = colon == text.npos ? text : text.substr(colon + 1);
  return {.type = colon == text.npos ? "" : text.substr(0, colon),
          .per_node = positive(number, "gpus-per-node", 0)};
}

void read_size(const Program& program, SlurmJob& job) {
  if (program.has("nodes")) job.nodes = read_nodes(word(program, "nodes"));
  if (program.has("gpus-per-node")) {
    job.gpus = read_gpus(word(program, "gpus-per-node"));
    job.tasks_per_node = std::max(job.gpus.per_node, 1);
  }
  if (program.has("tasks-per-node"))
    job.tasks_per_node = positive(word(program, "tasks-per-node"), "tasks-per-node");
}

void read_slurm(const Program& program, const std::vector<std::string>& sbatch,
                const Profile& profile, SlurmJob& job) {
  SlurmOptions& slurm = job.slurm;
  slurm.account = word(program, "account");
  slurm.partition = word(program, "partition");
  slurm.qos = word(program, "qos");
  slurm.constraint = word(program, "constraint");
  slurm.reservation = word(program, "reservation");
  slurm.nice = word(program, "nice");
  std::string usual = default_time(profile, job.kind);
  slurm.time = program.has("time") ? word(program, "time") : usual;
  check_usage(slurm.time.empty() || parse_slurm_time(slurm.time), "--time ", slurm.time,
              program.has("time") ? "" : " of profile " + profile.name,
              ": write minutes, H:M:S, D-H, D-H:M:S or UNLIMITED");
  job.mpi = word(program, "mpi");
  for (const std::string& option : sbatch) {
    bool good = option.starts_with("-") && option.find('\n') == option.npos;
    check_usage(good && option != "--submit", "'", option,
                "' behind --: options of sbatch stand there, such as -- --mem=0 --exclude=node7");
    // What the checks are for is said where they see it.
    const Checked* checked = find_checked(option, job.kind);
    check_usage(!checked, "'", option, "' behind --: say it before --, as --",
                checked ? checked->ours : "", ", so that neox-submit knows of it");
    slurm.extra.push_back(option);
  }
}

}  // namespace neox
