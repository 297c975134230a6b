#include "jobs/job_script.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "jobs/script_parts.h"

namespace neox {
namespace {

const std::pair<JobKind, const char*> kNames[] = {{JobKind::kBuildImage, "build-image"},
                                                  {JobKind::kPrepareData, "prepare-data"},
                                                  {JobKind::kTrain, "train"},
                                                  {JobKind::kConvert, "convert"},
                                                  {JobKind::kGenerate, "generate"}};

void add_option(std::vector<std::string>& out, const std::string& name, const std::string& value) {
  if (!value.empty()) out.push_back(concat("--", name, "=", value));
}

std::string count(NodeRange nodes) {
  return nodes.min == nodes.max ? concat(nodes.min) : concat(nodes.min, "-", nodes.max);
}

void add_gpus(std::vector<std::string>& out, const GpuRequest& gpus, GpuOption style) {
  if (gpus.per_node == 0 || style == GpuOption::kNone) return;
  std::string value = (gpus.type.empty() ? "" : gpus.type + ":") + concat(gpus.per_node);
  if (style == GpuOption::kGres) return add_option(out, "gres", "gpu:" + value);
  add_option(out, "gpus-per-node", value);
}

// As sbatch reads its lines: a backslash takes its meaning from what follows, also in quotes.
std::string sbatch_quote(const std::string& word) {
  if (word.find_first_of(" \t#'\"\\") == word.npos) return word;
  std::string quoted = "\"";
  for (char c : word) quoted += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return quoted + '"';
}

std::string lines_of(const std::vector<std::string>& options) {
  std::string out;
  for (const std::string& option : options) out += concat("#SBATCH ", sbatch_quote(option), "\n");
  return out;
}

std::vector<std::string> size_options(const SlurmJob& job, const Profile& profile) {
  std::vector<std::string> out;
  add_option(out, "job-name", job.name.empty() ? "neox-" + name_of(job.kind) : job.name);
  add_option(out, "nodes", count(job.nodes));
  if (job.kind != JobKind::kTrain) add_option(out, "ntasks-per-node", concat(job.tasks_per_node));
  add_gpus(out, job.gpus, profile.gpu_option);
  return out;
}

std::vector<std::string> asked_options(const SlurmJob& job, const Profile& profile) {
  const SlurmOptions& slurm = job.slurm;
  std::vector<std::string> out;
  add_option(out, "time", slurm.time);
  if (is_requeued(job.kind)) add_option(out, "signal", concat("B:USR1@", job.lead_seconds));
  add_option(out, "partition", slurm.partition.empty() ? profile.partition : slurm.partition);
  add_option(out, "account", slurm.account);
  add_option(out, "qos", slurm.qos);
  add_option(out, "constraint", slurm.constraint);
  add_option(out, "reservation", slurm.reservation);
  add_option(out, "nice", slurm.nice);
  if (!slurm.after.empty()) {
    add_option(out, "dependency", "afterok:" + slurm.after);
    add_option(out, "kill-on-invalid-dep", "yes");
  }
  out.insert(out.end(), slurm.extra.begin(), slurm.extra.end());
  return out;
}

std::string sbatch_lines(const SlurmJob& job, const Profile& profile) {
  std::string out = lines_of(size_options(job, profile));
  out +=
      "#SBATCH --exclusive\n#SBATCH --wait-all-nodes=1\n#SBATCH --requeue\n"
      "#SBATCH --open-mode=append\n";
  out += lines_of({concat("--output=", log_name(job, profile))});
  // The last line of an option holds, so the command line's stand behind the profile's.
  for (const std::string& line : profile.sbatch) out += concat("#SBATCH ", line, "\n");
  return out + lines_of(asked_options(job, profile));
}

std::string variable_line(const Variable& variable, const SlurmJob& job) {
  auto decided = job.values.find(variable.name);
  if (decided != job.values.end())
    return concat(variable.name, "=", shell_quote(decided->second), "\n");
  std::string line = concat(": \"${", variable.name, ":=", variable.value, "}\"");
  if (variable.comment.empty()) return line + '\n';
  return line + std::string(line.size() < 50 ? 50 - line.size() : 2, ' ') + "# " +
         variable.comment + '\n';
}

std::string variables(const SlurmJob& job) {
  std::string out = "# Variables: what your shell exports wins over a default (:=).\n";
  auto table = script_variables(job.kind);
  for (const Variable& variable : table) out += variable_line(variable, job);
  for (const auto& [name, value] : job.values) {
    bool known = std::ranges::any_of(table, [&](const Variable& v) { return v.name == name; });
    if (!known) out += concat(name, "=", shell_quote(value), "\n");
  }
  return out;
}

std::string modules(const Profile& profile) {
  if (profile.modules.empty()) return "";
  std::string none =
      concat("profile ", profile.name, " loads modules (", join(profile.modules, ", "),
             "), but there is no function module, neither of the shell nor of "
             "/etc/profile.d; have the prologue load them");
  std::string out =
      concat(kModules, "command -v module > /dev/null || die 64 ", shell_quote(none), "\n");
  for (const std::string& module : profile.modules)
    out += concat("module load ", shell_quote(module), "\n");
  return out;
}

// Of the cluster: variables, modules, prologue.
std::string surroundings(const SlurmJob& job, const Profile& profile) {
  std::string out;
  bool computes = job.kind == JobKind::kTrain || job.kind == JobKind::kGenerate;
  for (const auto& [name, value] : profile.environment)
    if (computes) out += concat(": \"${", name, "=", value, "}\"; export ", name, "\n");
  std::string foreign = modules(profile) + profile.prologue;
  if (!foreign.empty())
    out += concat("set +u  # Lmod, conda and their like ask for variables that are not set\n",
                  foreign, foreign.ends_with('\n') ? "" : "\n", "set -u\n");
  if (!job.programs.empty()) out += concat("export PATH=", shell_quote(job.programs), ":$PATH\n");
  if (out.empty()) return out;
  return concat("\n# The cluster (profile ", profile.name, ").\n", out);
}

std::string command(const SlurmJob& job) {
  std::string out = script_command(job.kind);
  for (const std::string& config : job.configs) out += " " + shell_quote(config);
  for (const std::string& argument : job.arguments) out += " " + shell_quote(argument);
  return out + " \"$@\")\n";
}

std::string tasks_line(const std::string& per_node) {
  return concat("tasks=${SLURM_NTASKS_PER_NODE:-", per_node, "}\n", kTaskCount,
                "step+=(--nodes=\"$SLURM_JOB_NUM_NODES\" --ntasks=$((tasks * "
                "SLURM_JOB_NUM_NODES)) --ntasks-per-node=\"$tasks\")\n");
}

std::string step(const SlurmJob& job, const Profile& profile) {
  std::string out = kStep;
  if (job.kind == JobKind::kTrain) {
    if (job.gpus.per_node == 0)
      out +=
          "export CUDA_VISIBLE_DEVICES=  # on CPUs, whatever --exclusive shows of the nodes' "
          "GPUs\n";
    std::string tasks = concat(job.tasks_per_node);
    out += kTasks;
    if (job.tasks_per_node == job.gpus.per_node) {
      out += concat("gpus=${SLURM_GPUS_PER_NODE:-", tasks, "}\ngpus=${gpus##*:}\n");
      tasks = concat("$((gpus > 0 ? gpus : ", tasks, "))");
    }
    out += tasks_line(tasks);
    std::string several = R"([ $((tasks * ${SLURM_JOB_NUM_NODES:-1})) -gt 1 ])";
    if (job.mpi.empty())
      out += concat("if ! on_gpus && ", several,
                    "; then step+=(--mpi=\"${SLURM_MPI_TYPE:-pmix}\"); fi\n");
    else
      out += concat("step+=(--mpi=", shell_quote(job.mpi), ")\n");
    out +=
        "# With Slurm's default, mixed, a rank can leave MPI_Init before another is ready for its "
        "messages, which then crashes.\nexport SLURM_PMIX_FENCE=${SLURM_PMIX_FENCE:-ring}\n";
  } else {
    out += tasks_line(concat(job.tasks_per_node));
  }
  if (profile.auto_resume == AutoResume::kWhereInstalled)
    out +=
        "if [ -d /opt/sagemaker_cluster ]; then step+=(--auto-resume=1); fi  # HyperPod replaces "
        "a failed node\n";
  return out;
}

// What a container is to see, as far as it can be mounted.
std::string paths(const SlurmJob& job) {
  std::string out = "paths=(\"${command[@]}\"";
  for (const std::string& path : job.paths) out += " " + shell_quote(path);
  return out + ")  # configurations, tokenizers, data, checkpoints: /path and key=/path\n";
}

std::string body(const SlurmJob& job, const Profile& profile) {
  if (job.kind == JobKind::kBuildImage) return std::string("\n") + kBuildImage;
  std::string out = "\n";
  bool trains = job.kind == JobKind::kTrain;
  if (job.kind != JobKind::kPrepareData)
    out += concat(kConfigs, trains ? kFoundConfig : kNamedConfig, kName, '\n');
  out += command(job) + '\n' + step(job, profile) + '\n' + paths(job) + kImage;
  if (trains || job.kind == JobKind::kGenerate)
    out +=
        "# Slurm takes the variable from the tasks of a step without GPUs.\n"
        "if on_cpus; then step+=(env CUDA_VISIBLE_DEVICES=); fi\n";
  if (!is_requeued(job.kind)) return out + '\n' + kRunOnce;
  return out + '\n' + kTimeLimit + '\n' + kRunRequeued + '\n' + kRequeue;
}

}  // namespace

std::string name_of(JobKind kind) {
  for (auto [k, name] : kNames)
    if (k == kind) return name;
  return "";
}

std::vector<std::string> job_names() {
  std::vector<std::string> names;
  for (auto [kind, name] : kNames) names.emplace_back(name);
  return names;
}

std::optional<JobKind> parse_job_kind(const std::string& word) {
  for (auto [kind, name] : kNames)
    if (word == name) return kind;
  return std::nullopt;
}

bool is_requeued(JobKind kind) { return kind == JobKind::kTrain || kind == JobKind::kPrepareData; }

std::string file_name(JobKind kind) {
  std::string number = kind == JobKind::kGenerate ? "" : concat(static_cast<int>(kind), ".");
  return number + name_of(kind) + ".sbatch";
}

int ranks_per_task(const SlurmJob& job) {
  const std::string option = "--spawn";
  std::optional<int> ranks;
  for (size_t i = 0; i < job.arguments.size(); ++i) {
    const std::string& word = job.arguments[i];
    if (word == option && i + 1 < job.arguments.size())
      ranks = number_of<int>(job.arguments[i + 1]);
    if (word.starts_with(option + "=")) ranks = number_of<int>(word.substr(option.size() + 1));
  }
  return std::clamp(ranks.value_or(1), 1, 1 << 16);
}

SlurmJob default_job(JobKind kind, int gpus_per_node) {
  SlurmJob job{.kind = kind};
  if (kind == JobKind::kTrain) {
    job.nodes = {2, 2};
    job.gpus.per_node = gpus_per_node;
    job.tasks_per_node = std::max(gpus_per_node, 1);
  }
  if (kind == JobKind::kPrepareData) job.lead_seconds = 60;  // it notes every 10 s how far it is
  if (kind == JobKind::kGenerate) job.gpus.per_node = std::min(gpus_per_node, 1);
  return job;
}

std::string shell_quote(const std::string& text) {
  auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) ||
           std::string_view("_-./:,=@%+").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, plain)) return text;
  std::string quoted = "'";
  for (char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::vector<std::string> decided_options(const SlurmJob& job, const Profile& profile) {
  std::vector<std::string> options = size_options(job, profile);
  for (std::string& option : asked_options(job, profile)) options.push_back(std::move(option));
  return options;
}

bool is_array(const SlurmJob& job, const Profile& profile) {
  auto makes_one = [](const std::string& option) {
    return option.starts_with("--array") || option.starts_with("-a");
  };
  return std::ranges::any_of(profile.sbatch, makes_one) ||
         std::ranges::any_of(job.slurm.extra, makes_one);
}

std::string log_name(const SlurmJob& job, const Profile& profile) {
  return is_array(job, profile) ? "%x_%A_%a.out" : "%x_%j.out";
}

std::string job_script(const SlurmJob& job, const Profile& profile) {
  std::string out = "#!/bin/bash\n";
  for (const std::string& line : script_comment(job.kind)) out += "# " + line + '\n';
  out += "# Written by neox-submit; docs/slurm.md explains it.\n";
  out += sbatch_lines(job, profile) + '\n';
  out += std::string("set -euo pipefail\n") + kHelpers;
  if (is_requeued(job.kind)) out += kEarlySignal;
  return out + '\n' + variables(job) + surroundings(job, profile) + body(job, profile);
}

}  // namespace neox
