#include "train/job.h"

#include <ATen/Parallel.h>
#include <torch/version.h>

#include <mutex>
#include <numeric>
#include <optional>
#include <set>

#include "base/build_id.h"
#include "base/file.h"
#include "base/log.h"
#include "base/program.h"
#include "base/text.h"
#include "base/version.h"
#include "checkpoint/checkpoint.h"
#include "comm/nccl.h"
#include "comm/nccl_communicator.h"
#include "comm/network.h"
#include "comm/world.h"
#include "config/batch.h"
#include "config/estimate.h"
#include "launch/cpu.h"
#include "launch/spawn.h"
#include "model/device.h"
#include "ops/cpu_arena.h"
#include "rendezvous/job.h"
#include "rendezvous/names.h"
#include "tokenizer/of_config.h"
#include "train/pace.h"
#include "train/ranks.h"
#include "train/run.h"
#include "train/time_limit.h"

namespace neox {
namespace {

// Behind the terminal's ^C.
constexpr const char* kSavesAndStops =
    "\nneox-train: Ctrl-C: the run saves and stops as soon as this step is done; a second Ctrl-C "
    "ends it at once, without saving\n";
constexpr const char* kStops =
    "\nneox-train: Ctrl-C: the run stops as soon as this step is done, and nothing is saved, "
    "because save is not set; a second Ctrl-C ends it at once\n";

JoinOptions joining_options(const Config& config, const Environment& env, const RunPlace& place) {
  JoinOptions options = join_options(env);
  bool gpu = place.device.is_cuda();
  options.must_agree = {
      {"the build of neox-train", concat(kVersion, " ", build_id())},
      {"the version of LibTorch", TORCH_VERSION},
      {"what ranks talk through", gpu ? "NCCL " + nccl_version_text(nccl_version()) : "MPI"}};
  for (const Setting& setting : config.settings)
    if (setting.effect != Effect::kNone)
      options.must_agree.emplace_back(setting.key, setting.value);
  options.channel = config.checkpoint.async_save && !config.checkpoint.save.empty();
  options.poll = [&stop = place.stop] { check_not_stopped(stop, "before all ranks had arrived"); };
  return options;
}

// "node1: 0-3, node2: 4-7"
std::string rank_map(const std::vector<std::string>& hosts) {
  std::string text;
  for (size_t first = 0, last; first < hosts.size(); first = last + 1) {
    for (last = first; last + 1 < hosts.size() && hosts[last + 1] == hosts[first];) ++last;
    text += concat(text.empty() ? "" : ", ", hosts[first], ": ", first);
    if (last > first) text += concat("-", last);
  }
  return text;
}

void say_network(const ProcessInfo& process, const Environment& env) {
  NetworkReport report = describe_network({.nccl_version = nccl_version_text(nccl_version()),
                                           .env = env,
                                           .num_nodes = process.num_nodes,
                                           .find_library = find_library});
  for (const std::string& line : report.lines) log_info(line);
  for (const std::string& warning : report.warnings) log_warning(warning);
}

void say_job(const Config& config, const Job& job, const at::Device& device,
             const Environment& env) {
  const ProcessInfo& process = job.process();
  log_info(counted(process.size, "rank"), " by ", process.launcher, " (", rank_map(job.hosts()),
           "), ", device.is_cuda() ? "NCCL" : "MPI");
  for (const std::string& note : process.notes) log_info("note: ", note);
  if (device.is_cuda()) say_network(process, env);
  const auto& save = config.checkpoint.save;
  if (!save.empty())
    log_info("checkpoints in ", save.string(), ", ",
             human_bytes(static_cast<double>(free_bytes(save))), " free");
}

// Collective.
RunPlace with_shared_end(RunPlace place, Job& job) {
  SharedEnd end = share_end(job.control(), job.hosts(), place.started, place.allocation_left);
  if (job.process().rank == 0 && !end.warning.empty()) log_warning(end.warning);
  place.allocation_left = end.left;
  return place;
}

Exit train_in_job(const Config& config, Job& job, Communicator& all, const RunPlace& place) {
  const ProcessInfo& process = job.process();
  Layout layout = fitting_layout(config.layout, process.size);
  bool trains = process.rank < layout.size();
  bool some_idle = layout.size() < process.size;
  std::unique_ptr<Communicator> part = some_idle ? all.split(trains ? 0 : 1, "world") : nullptr;
  if (process.rank == 0 && some_idle) {
    std::vector<int> idle(static_cast<size_t>(process.size - layout.size()));
    std::iota(idle.begin(), idle.end(), layout.size());
    log_warning("the layout ", to_string(layout), " takes ", layout.size(), " of ", process.size,
                " ranks; idle: ", name_ranks(idle, job.hosts()));
  }
  if (process.rank == 0)
    if (std::string spread = spread_groups(layout, job.hosts()); !spread.empty())
      log_warning(spread);
  if (!trains) return idle(job.control()), Exit::kDone;
  TrainingControl control(job.control(), layout.size());
  RunPlace there = place;
  Pace pace(job, layout);
  there.pace = &pace;
  auto host = job.hosts().begin();
  there.num_nodes = static_cast<int>(std::set<std::string>(host, host + layout.size()).size());
  Exit exit = train_rank(config, part ? *part : all, control, there);
  control.release();
  return exit;
}

// The communicators of this process, for the thread that finds a lost rank.
class Abortable {
 public:
  void set(const std::shared_ptr<Communicator>& world) {
    std::lock_guard lock(mutex_);
    world_ = world;
  }
  void abort(const std::string& reason) {
    std::shared_ptr<Communicator> world;
    {
      std::lock_guard lock(mutex_);
      world = world_.lock();
    }
    if (world) world->abort(reason);
  }

 private:
  std::mutex mutex_;
  std::weak_ptr<Communicator> world_;
};

// The others are told first, then know why; operations that still run here end without them, before
// destructors that wait for the device. Throws where the error comes of a lost rank, and is not
// this one's own: also where that is known only when this one's has been told, since operations may
// end before the rank's reason has come.
void give_up(Job& job, Communicator* world, const std::exception& e) {
  job.check_all_alive();
  job.failed(e.what(), exit_of(e));
  job.check_all_alive();
  const ProcessInfo& process = job.process();
  if (world)
    world->abort(concat("rank ", process.rank, " on ", process.host, " failed: ", e.what()));
}

Exit train_process(const Config& config, const ProcessInfo& process, const Environment& env,
                   const RunPlace& place) {
  Abortable abortable;  // outlives the job, whose thread uses it
  JoinOptions joining = joining_options(config, env, place);
  auto job = join(process, joining);
  if (process.rank == 0) say_job(config, *job, place.device, env);
  check_devices_differ(place.device, process, job->control());
  // A rank may be lost before there is a world (the process then ends after the grace), and while
  // this one leaves it.
  job->watch([&](const std::string& reason) { abortable.abort(reason); }, place.stop);
  std::shared_ptr<Communicator> world;
  LastWords words([&](const std::exception& e) { give_up(*job, nullptr, e); });
  try {
    world = world_communicator(process, job->control(), place.device,
                               {.mpi_plugin = joining.mpi_plugin});
    abortable.set(world);
    RunPlace there = with_shared_end(place, *job);
    there.failed = [&](const std::exception& e) { give_up(*job, world.get(), e); };
    Exit exit = train_in_job(config, *job, *world, there);
    job->control().barrier();  // rank 0, whose store the others need, is not gone before them
    return exit;
  } catch (const std::exception& e) {
    give_up(*job, world.get(), e);
    throw;
  }
}

// A line for each of the files that does not exist.
std::string not_there(const std::vector<fs::path>& files, const char* needed) {
  std::string lines;
  std::error_code error;
  for (const fs::path& file : files)
    if (!file.empty() && !fs::exists(file, error))
      lines += concat(file.string(), " is not there: the run needs ", needed, "\n");
  return lines;
}

// What a run is that may have begun before.
Estimate estimate_of(const Config& config, int64_t ranks) {
  const fs::path& save = config.checkpoint.save;
  if (save.empty()) return estimate(config, config.model.vocab, ranks);
  std::optional<FrozenBatch> batch;
  if (auto found = find_checkpoint(save)) {
    TrainState state = Checkpoint(*found).state();
    if (state.global_batch > 0) batch = {state.global_batch, state.micro_batch};
  }
  Estimate e = estimate(config, config.model.vocab, ranks, free_bytes(save), batch);
  if (batch) e.present_bytes = bytes_below(save);
  return e;
}

}  // namespace

Exit train(const Config& config, const ProcessInfo& process, const Environment& env, int spawn,
           const std::vector<std::string>& arguments, const StopFlag& stop) {
  if (process.size == 1) answer_ctrl_c(config.checkpoint.save.empty() ? kStops : kSavesAndStops);
  at::Device device = choose_device(env, process);
  if (spawn > 1 && device.is_cuda()) return spawn_ranks(arguments, process, spawn, stop);
  use_device(device);
  RunPlace place{device,
                 stop,
                 process.life,
                 allocation_left(env),
                 process.local_size,
                 variable(env, "NEOX_FAILURES_FILE")};
  CpuShare share = cpu_share(env, cpu_counts(), process);
  at::set_num_threads(share.threads);
  if (place.device.is_cpu()) use_cpu_arena();
  if (!share.warning.empty() && process.local_rank == 0) log_warning(share.warning);
  if (process.size == 1) return train_threads(config, spawn, place);
  check_usage(spawn == 1, "--spawn ", spawn, " in a job of ", process.size, " processes (",
              process.launcher, "): on CPUs each rank is a task of its own; ask for ", spawn,
              " times the tasks instead");
  set_log_rank(process.rank, process.size);
  try {
    return train_process(config, process, env, place);
  } catch (const std::exception& e) {
    std::string who = concat("rank ", process.rank, " on ", process.host, ": "), what = e.what();
    fail(exit_of(e), what.starts_with(who) ? "" : who, what);
  }
}

std::string dry_run(const Config& config, int64_t ranks) {
  Config complete = config;
  const TokenizerConfig& files = config.tokenizer;
  std::string missing = not_there({files.vocab_file, files.merge_file}, "its tokenizer");
  bool no_tokenizer = !missing.empty();
  std::set<std::string> prefixes;
  for (const NamedDataset& dataset : datasets_of(config.data))
    if (prefixes.insert(dataset.prefix).second)
      missing += not_there({dataset.prefix + ".bin", dataset.prefix + ".idx"}, "its data prepared");
  std::unique_ptr<Tokenizer> tokenizer = no_tokenizer ? nullptr : load_tokenizer(config);
  UsualVocabulary usual = usual_vocabulary(config.tokenizer);
  int64_t entries = tokenizer ? tokenizer->vocab_size() : usual.entries;
  int64_t vocab = config.model.vocab > 0 ? config.model.vocab : padded_vocab(config, entries);
  complete.model.vocab = vocab;
  Estimate e = estimate_of(complete, ranks);
  std::string text = render(e, complete);
  if (!tokenizer && config.model.vocab == 0)
    text += concat(no_tokenizer ? "Computed" : "No vocab_file is given: computed",
                   " for the vocabulary of ", usual.name, ", padded to ", vocab,
                   " entries; --set padded_vocab_size=N computes for another.\n");
  text += missing;
  std::string bad = badly_used_ranks(e.batch, e.data_ranks);
  if (!bad.empty()) text += "note: " + bad + '\n';
  for (const std::string& note : config.notes) text += "note: " + note + '\n';
  return text;
}

}  // namespace neox
