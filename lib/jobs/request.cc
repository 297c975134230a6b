#include "jobs/request.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "config/merge.h"
#include "config/value.h"
#include "jobs/check_job.h"
#include "jobs/container.h"
#include "jobs/decided.h"
#include "jobs/job_script.h"
#include "jobs/layouts.h"
#include "jobs/script_parts.h"
#include "jobs/slurm_options.h"
#include "jobs/submit.h"
#include "jobs/vocabulary.h"

namespace neox {
namespace {

namespace po = boost::program_options;

const char* const kDescription =
    "Renders the sbatch script of a job for a kind of cluster, and prints it; with --submit it is\n"
    "handed to Slurm. Several jobs in one call run one after the other, each if the one before it\n"
    "succeeded. With a CONFIG the training job is checked first: ranks, batch, layout, memory,\n"
    "files (missing ones are errors with --submit), time for saving. Options behind -- go to\n"
    "sbatch as they are. --nodes, tasks and GPUs are those of the training job, where there is\n"
    "one. neox-submit layouts CONFIG shows how the model can be laid out on these nodes and GPUs,\n"
    "what of their memory that takes, and what it costs.";

const char* const kExamples =
    "  neox-submit train configs/pythia/70M.yml --nodes 2           # look at the script\n"
    "  neox-submit train configs/pythia/70M.yml --nodes 2-4 --time 12:00:00 --submit\n"
    "  neox-submit prepare-data train configs/pythia/70M.yml --container /fsx/apps/neox.sqsh "
    "--submit\n"
    "  neox-submit train 1-4B.yml --gpus-per-node h100:8 --profile aws-hyperpod --partition gpu "
    "-- --mem=0\n"
    "  neox-submit layouts configs/pythia/12B.yml --nodes 4 --gpus-per-node h100:8   # a table\n"
    "  neox-submit train configs/pythia/14M.yml --gpus-per-node 0 --tasks-per-node 4   # on CPUs\n"
    "  neox-submit build-image prepare-data train convert --write scripts   # files to edit\n";

// The leading words of the command line that are jobs; the rest are configurations.
std::vector<JobKind> read_kinds(std::vector<std::string>& words) {
  std::vector<JobKind> kinds;
  size_t n = 0;
  for (; n < words.size() && parse_job_kind(words[n]); ++n)
    kinds.push_back(*parse_job_kind(words[n]));
  const std::vector<std::string> names = job_names();
  std::string near = words.empty() ? "" : nearest(words[0], names);
  check_usage(!kinds.empty(), words.empty() ? "no job is named" : concat("no job '", words[0], "'"),
              did_you_mean(near, "."), " The jobs: ", join(names, ", "),
              ". See neox-submit --help.");
  words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(n));
  return kinds;
}

// "layouts CONFIG..." asks about a training job.
void read_layouts(std::vector<std::string>& words, SubmitRequest& request) {
  if (words.empty() || words[0] != "layouts") return;
  check_usage(request.action == SubmitRequest::Action::kPrint,
              "layouts prints a table, and has nothing to submit or to write");
  check_usage(words.size() > 1, "layouts needs a configuration, such as configs/pythia/12B.yml");
  request.action = SubmitRequest::Action::kLayouts;
  words[0] = name_of(JobKind::kTrain);
}

// The run's configurations, by absolute paths.
std::vector<std::string> find_configs(const std::vector<std::string>& names) {
  std::vector<std::string> paths;
  for (const std::string& name : names) {
    check_usage(!parse_job_kind(name) || fs::exists(name), "'", name,
                "' behind a configuration: jobs come first, such as neox-submit train ", name, " ",
                names[0]);
    paths.push_back(fs::absolute(find_config(name, "")).lexically_normal());
  }
  return paths;
}

// What was said by options; these hold with and without a configuration.
void read_values(const Program& program, SlurmJob& job) {
  auto take = [&](const char* option, const char* variable) {
    if (auto value = program.given<std::string>(option)) job.values[variable] = *value;
  };
  bool builds = job.kind == JobKind::kBuildImage;
  if (program.has("container"))
    job.values[builds ? "ENROOT_IMAGE" : "IMAGE"] = image_of(program, {});
  if (!builds) {
    take("mounts", "CONTAINER_MOUNT");
    if (program.has("mounts")) check_mounts(job.values["CONTAINER_MOUNT"]);
  }
  if (!is_requeued(job.kind)) return;
  if (program.has("lead") && job.kind == JobKind::kTrain)
    job.lead_seconds = positive(program.get<std::string>("lead"), "lead");
  if (program.has("max-restarts"))
    job.values["MAX_RESTARTS"] =
        concat(positive(program.get<std::string>("max-restarts"), "max-restarts", 0));
}

ConfigOptions config_options(const SlurmJob& job, const std::vector<std::string>& configs,
                             const std::vector<std::string>& overrides) {
  const JobValues& v = job.values;
  ConfigOptions options{.files = configs, .directory = {}, .overrides = overrides};
  const std::string& checkpoints = v.at("CHECKPOINT_PATH");  // as the script gives it
  options.defaults = {"save=" + checkpoints, "load=" + checkpoints};
  if (job.kind == JobKind::kTrain) options.defaults.push_back("data_path=" + prepared_prefix(v));
  return options;
}

// What is converted, or generates, is what the run of the configuration saves.
void take_save(SlurmJob& job, const Program& program, const std::vector<std::string>& configs) {
  if (job.kind != JobKind::kConvert && job.kind != JobKind::kGenerate) return;
  Config config = load_config(config_options(job, configs, program.list("set")));
  job.values["CHECKPOINT_PATH"] = config.checkpoint.save.string();
}

std::optional<double> gigabytes(const Program& program) {
  auto memory = program.given<double>("gpu-memory");
  check_usage(memory.value_or(1) > 0, "--gpu-memory ", memory.value_or(1),
              ": GB of one GPU, such as 80");
  return memory;
}

Gpus gpus_of(const SlurmJob& job, const Program& program, const CheckOptions& options) {
  check_usage(job.nodes.min == job.nodes.max, "layouts needs one number of nodes, not ",
              job.nodes.min, "-", job.nodes.max);
  auto room = room_of(job, options);
  auto rates = gpu_rates(job.gpus.type);
  check_usage(room && rates, "layouts for ", job.gpus.type.empty() ? "GPUs" : job.gpus.type,
              ": give a type that is known, such as --gpus-per-node h100:8",
              job.gpus.per_node == 0 ? "; on CPUs there is no memory of GPUs to share out" : "");
  if (auto network = program.given<double>("network")) rates->network = *network;
  check_usage(rates->network > 0, "--network ", rates->network, ": GB/s of one GPU, such as 50");
  return {.nodes = job.nodes.min, .per_node = ranks_per_node(job), .room = *room, .rates = *rates};
}

// Of those layouts that a configuration can say.
std::string layouts_of(const SlurmJob& job, const Program& program, const Config& config,
                       const ConfigOptions& read, const CheckOptions& options) {
  auto accepts = [&](const std::vector<std::string>& keys) {
    ConfigOptions changed = read;
    changed.overrides.insert(changed.overrides.end(), keys.begin(), keys.end());
    try {
      load_config(changed);
      return true;
    } catch (const Error&) { return false; }  // a layout that this model or run cannot have
  };
  return layout_table(config, gpus_of(job, program, options), options.entries, accepts);
}

void check_training(SlurmJob& job, const Program& program, const std::vector<std::string>& configs,
                    CheckOptions::Files files, const std::vector<std::string>& made,
                    SubmitRequest& request) {
  ConfigOptions read = config_options(job, configs, program.list("set"));
  // Layouts need no tokenizer, and the script's may not be of the kind that the configuration
  // names.
  if (request.action != SubmitRequest::Action::kLayouts)
    read.defaults.push_back("vocab_file=" + job.values.at("VOCAB_FILE"));
  Config config = load_config(read);
  job.paths = absolute_paths(config);
  CheckOptions options{
      .files = files,
      .made = made,
      .mounts = job.values.at("IMAGE").empty() ? "" : job.values.at("CONTAINER_MOUNT"),
      .write_rate = program.given<double>("write-rate").value_or(request.profile.write_rate),
      .gpu_memory = gigabytes(program)};
  check_usage(options.write_rate > 0, "--write-rate ", options.write_rate,
              ": MB/s of the shared file system, such as 300");
  if (program.has("lead")) options.lead_seconds = job.lead_seconds;
  options.entries = vocabulary_entries(config, options.mounts, request.notes);
  if (request.action == SubmitRequest::Action::kLayouts) {
    request.table = layouts_of(job, program, config, read, options);
    return;
  }
  CheckedJob checked = check_job(job, config, options);
  job.lead_seconds = checked.lead_seconds;
  request.notes.insert(request.notes.end(), checked.notes.begin(), checked.notes.end());
}

SlurmJob read_job(JobKind kind, const Program& program, const std::vector<std::string>& sbatch,
                  const Profile& profile) {
  SlurmJob job = default_job(kind, profile.gpus_per_node);
  read_slurm(program, sbatch, profile, job);
  read_values(program, job);
  if (kind == JobKind::kTrain)
    for (const std::string& assignment : program.list("set"))
      job.arguments.insert(job.arguments.end(), {"--set", assignment});
  return job;
}

// Jobs whose program is one process.
void take_alone(const Program& program, SlurmJob& job) {
  using K = JobKind;
  if (job.kind == K::kTrain || job.kind == K::kPrepareData) return;
  if (program.has("gpus-per-node")) job.gpus = read_gpus(word(program, "gpus-per-node"));
  job.gpus.per_node = job.kind == K::kGenerate ? std::min(job.gpus.per_node, 1) : 0;
  if (!program.has("tasks-per-node")) job.tasks_per_node = 1;
  check_usage(job.nodes.max == 1 && job.tasks_per_node == 1, name_of(job.kind),
              " is one task on one node; leave out --nodes and --tasks-per-node");
}

// A job has no standard input that asks for prompts.
void check_prompt(const SlurmJob& job, SubmitRequest& request) {
  auto asks = [](const std::string& a) {
    return a.starts_with("--prompt") || a.starts_with("--file");
  };
  if (job.kind != JobKind::kGenerate || std::ranges::any_of(job.arguments, asks)) return;
  const char* text = "generate has no prompt: add --arg=--prompt=TEXT, or --arg=--file=FILE";
  check_usage(request.action != SubmitRequest::Action::kSubmit, text);
  request.notes.push_back(text);
}

// Several jobs share a name, each with its own behind it.
std::string job_name(const Program& program, JobKind kind, size_t jobs) {
  std::string name = word(program, "job-name");
  check_usage(name.find('/') == name.npos, "--job-name ", name,
              ": scripts and logs are named after it, so it takes no '/'");
  return name.empty() || jobs == 1 ? name : concat(name, "-", name_of(kind));
}

void read_profile(const Program& program, const Surroundings& here, SubmitRequest& request) {
  std::string name = program.given<std::string>("profile").value_or("generic");
  request.profile = load_profile(name, profile_directories(here.programs));
  request.notes = request.profile.notes;
  if (program.has("partition"))
    std::erase_if(request.notes,
                  [](const std::string& note) { return note.find("--partition") != note.npos; });
}

void read_action(const Program& program, SubmitRequest& request) {
  check_usage(!program.has("submit") || !program.has("write"),
              "--submit and --write exclude each other");
  if (program.has("submit")) request.action = SubmitRequest::Action::kSubmit;
  if (!program.has("write")) return;
  request.action = SubmitRequest::Action::kWrite;
  request.directory = program.get<std::string>("write");
}

// NAME.old, NAME.old-2 and so on: the first that holds nothing else.
fs::path name_of_old(const fs::path& file, const std::string& content) {
  fs::path old = file;
  old += ".old";
  for (int n = 2; is_found(old) && read_file(old) != content; ++n) {
    old = file;
    old += concat(".old-", n);
  }
  return old;
}

// Scripts are there to be edited, so what is replaced is kept.
void write_script(const fs::path& file, const std::string& script, std::ostream& out) {
  std::optional<std::string> before;
  if (is_found(file)) before = read_file(file);
  if (before == script) {
    out << file.string() << " stays as it is\n";
    return;
  }
  fs::path old;
  if (before) write_file_atomically(old = name_of_old(file, *before), *before);
  write_file_atomically(file, script);
  out << "wrote " << file.string();
  if (before) out << "; what it held is now in " << old.string();
  out << "\n";
}

// Of one that is unknown: it may be one of sbatch, which none of ours need be like.
std::string suggest_option(const std::string& option, const std::vector<std::string>& names) {
  std::string near = nearest(option, names);
  return concat(did_you_mean(near), near.empty() ? "; o" : " O",
                "ptions of sbatch stand behind --, such as -- --mem=0");
}

}  // namespace

CommandLine part_at_dashes(const std::vector<std::string>& arguments) {
  auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  CommandLine line{.own = {arguments.begin(), dashes}, .sbatch = {}};
  if (dashes != arguments.end()) line.sbatch.assign(dashes + 1, arguments.end());
  return line;
}

Program submit_program() {
  Program program({.name = "neox-submit",
                   .summary = "Makes Slurm jobs of neox.cpp, checks them, and submits them.",
                   .usage = "JOB... [CONFIG...] [options] [-- options of sbatch]",
                   .description = kDescription,
                   .examples = kExamples});
  auto add = program.options().add_options();
  add("what", texts("WORD..."),
      "build-image, prepare-data, train, convert, generate; or layouts; then configurations");
  add("set", texts("KEY=VALUE"), "for neox-train: overrides the configuration");
  add("arg", texts("WORD"), "a further argument of the (last) job's program; may be repeated");
  add("nodes", text("N|MIN-MAX"), "nodes (2 for training, else 1); a range: as many as are free");
  add("gpus-per-node", text("[TYPE:]N"), "GPUs, and tasks, of a node (8); 0: a job on CPUs");
  add("tasks-per-node", text("N"), "ranks of a node, where they are not one for each GPU");
  add("time", text("TIME"), "time limit, as sbatch takes it");
  add("lead", text("SECONDS"), "SIGUSR1 so long before the end (from the estimated save time)");
  add("max-restarts", text("N"),
      "requeue after at most N lives in a row without a checkpoint (10); 0: never");
  add("container", text("IMAGE"), ".sqsh: pyxis; .sif: apptainer; without: programs in PATH");
  add("mounts", text("FROM:TO,..."), "folders in the container ($FSX_PATH:$FSX_PATH)");
  add("mpi", text("TYPE"), "of srun --mpi, for jobs on CPUs (pmix)");
  add("after", text("JOBID"), "start when that job has succeeded");
  add("job-name", text("NAME"), "neox-train and the like");
  for (const char* option : {"account", "partition", "qos", "constraint", "reservation", "nice"})
    add(option, text("VALUE"), "as of sbatch");
  add("profile", text("NAME|FILE"), "kind of cluster (generic); env/profiles has them");
  add("write-rate", po::value<double>()->value_name("MB/s"), "of the shared file system");
  add("gpu-memory", po::value<double>()->value_name("GB"), "of one GPU, for the check of memory");
  add("network", po::value<double>()->value_name("GB/s"),
      "between nodes, of one GPU: for layouts (AWS's, of the GPU's type)");
  add("submit", "hand the scripts to sbatch; logs go to logs/");
  add("write", text("DIR"), "write the scripts there; what they replace stays as NAME.old");
  program.positional("what", -1);
  program.others({.suggest = suggest_option});
  return program;
}

SubmitRequest read_submit_request(const Program& program, const std::vector<std::string>& sbatch,
                                  const Surroundings& here) {
  SubmitRequest request;
  read_action(program, request);
  read_profile(program, here, request);
  std::vector<std::string> words = program.list("what"), made;
  read_layouts(words, request);
  std::vector<JobKind> kinds = read_kinds(words);
  std::vector<std::string> configs = find_configs(words);
  check_image(program, kinds, here.environment, request);
  auto asked = [&](JobKind kind) { return std::ranges::count(kinds, kind) > 0; };
  auto files =
      program.has("submit") ? CheckOptions::Files::kMustExist : CheckOptions::Files::kMayBeMissing;
  if (program.has("after")) files = CheckOptions::Files::kPreparedBefore;
  bool trains = asked(JobKind::kTrain), builds = asked(JobKind::kBuildImage);
  std::string image = builds ? image_to_build(program, here.environment) : "";
  for (JobKind kind : kinds) {
    SlurmJob job = read_job(kind, program, sbatch, request.profile);
    if (!trains || kind == JobKind::kTrain) read_size(program, job);
    take_alone(program, job);
    if (kind == kinds.front()) job.slurm.after = word(program, "after");
    job.name = job_name(program, kind, kinds.size());
    if (kind == kinds.back())
      for (const auto& argument : program.list("arg")) job.arguments.push_back(argument);
    check_prompt(job, request);
    if (!configs.empty()) {
      decide(job, program, configs, here);
      if (builds) job.values[kind == JobKind::kBuildImage ? "ENROOT_IMAGE" : "IMAGE"] = image;
      take_save(job, program, configs);
    }
    if (kind == JobKind::kTrain && !configs.empty()) {
      job.configs.assign(configs.begin() + 1, configs.end());
      check_training(job, program, configs, files, made, request);
    }
    job.programs = programs_to_add(job, here);
    if (kind == JobKind::kPrepareData && !configs.empty()) made = made_by(job);
    request.jobs.push_back(std::move(job));
  }
  return request;
}

void carry_out(const SubmitRequest& request, std::ostream& out) {
  using Action = SubmitRequest::Action;
  if (request.action == Action::kLayouts) {
    out << request.table;
    return;
  }
  if (request.action == Action::kSubmit) return submit_jobs(request.jobs, request.profile, out);
  for (const SlurmJob& job : request.jobs) {
    std::string script = job_script(job, request.profile);
    if (request.action == Action::kPrint) {
      out << script;
      continue;
    }
    make_directories(request.directory);
    write_script(request.directory / file_name(job.kind), script, out);
  }
}

}  // namespace neox
