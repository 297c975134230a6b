#include "train/start.h"

#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/layout.h"
#include "config/architecture.h"
#include "config/batch_schedule.h"
#include "generate/load.h"
#include "model/parameters.h"
#include "train/ranks.h"

namespace neox {
namespace {

// What would fail at the first save, hours later, fails now.
void check_save(const Config& config) {
  const fs::path& dir = config.checkpoint.save;
  if (dir.empty()) return;
  try {
    check_io(!fs::exists(dir) || fs::is_directory(dir), dir.string(),
             " is a file; name a directory");
    make_directories(dir);
    fs::path probe = dir / ".neox-may-write-here";
    write_file_atomically(probe, "");
    fs::remove(probe);
  } catch (const Error& e) {
    fail(e.exit(), config.where("save"), ": save names ", dir.string(),
         ", where checkpoints cannot be written: ", e.what());
  }
}

// A run that starts elsewhere must not mix its checkpoints with another's.
void check_save_is_free(const Config& config) {
  const CheckpointConfig& c = config.checkpoint;
  if (c.save.empty() || same_place(c.load, c.save)) return;
  auto found = find_checkpoint(c.save);
  std::string how = c.resume == Resume::kWeights ? "finetune" : "no_load_optim";
  check_usage(
      !found, config.where("save"), ": save names ", c.save.string(), ", which holds ",
      found ? found->filename().string() : "", " of an earlier run, but load is ",
      c.load.empty() ? "not given" : c.load.string(),
      c.resume == Resume::kWhole ? "" : concat(", with ", how, ": true (", config.where(how), ")"),
      ". To go on from it set load: ", c.save.string(),
      c.resume == Resume::kWhole ? "" : concat(" and leave ", how, " out"),
      "; to start anew give another save directory, or remove that one");
}

// The configuration of the run that wrote the checkpoint; none where another program did.
std::optional<Config> config_of(const TrainState& state, const fs::path& dir) {
  if (state.config.empty()) return std::nullopt;
  return load_config({.texts = {{dir.string() + " (its configuration)", state.config}}});
}

// What that run said of checkpoints.
CheckpointConfig checkpoints_of(const fs::path& dir) {
  auto config = config_of(Checkpoint(dir).state(), dir);
  return config ? config->checkpoint : CheckpointConfig();
}

// The checkpoint of a run that began from another's: it goes on from its own.
std::optional<fs::path> begun_before(const CheckpointConfig& c) {
  if (c.save.empty() || c.load.empty() || same_place(c.load, c.save)) return std::nullopt;
  auto found = find_checkpoint(c.save);
  if (!found) return found;
  CheckpointConfig before = checkpoints_of(*found);
  std::error_code absent;
  bool same = same_place(before.load, c.load) || !fs::exists(before.load, absent);  // it has moved
  same = same && before.iteration == c.iteration && before.resume == c.resume;
  return same ? found : std::nullopt;
}

// The checkpoint in load. A run may go back to an iteration of its own directory, where the next
// start would take the newest: that must be of the run that went back, which then goes on from it,
// and not of the one that is given up.
std::optional<fs::path> checkpoint_to_load(const Config& config) {
  const CheckpointConfig& c = config.checkpoint;
  bool goes_back = c.iteration && *c.iteration < config.train.iters && same_place(c.load, c.save);
  if (!goes_back) return find_checkpoint(c.load, c.iteration);
  auto newest = find_checkpoint(c.load);
  if (newest && checkpoints_of(*newest).iteration == c.iteration) {
    log_info("the run that went back to iteration ", *c.iteration, " goes on from its own");
    return newest;
  }
  auto chosen = find_checkpoint(c.load, c.iteration);
  std::string name = newest ? newest->filename().string() : "";
  check_usage(chosen == newest, config.where("iteration"), ": iteration is ", *c.iteration,
              ", but ", c.load.string(), " also holds ", name,
              " of a run that did not go back there, and a later start would go on from that; move "
              "the later checkpoints away, or remove iteration to go on from ",
              name);
  return chosen;
}

// Rank 0 looks, so that all ranks take the same one.
std::optional<Checkpoint> open_checkpoint(const Config& config, Control& control) {
  const CheckpointConfig& c = config.checkpoint;
  std::string found;
  if (control.rank() == 0) {
    check_save(config);
    found = begun_before(c).value_or("").string();
    if (found.empty()) check_save_is_free(config);
    check_usage(!c.iteration || !c.load.empty(), config.where("iteration"),
                ": iteration is given, but load is not; add load, the directory whose checkpoint "
                "of that iteration the run begins from");
    std::error_code absent;
    check_usage(!fs::is_regular_file(c.load, absent), config.where("load"), ": load names ",
                c.load.string(),
                ", which is a file; give the directory that holds the global_step directories");
    if (found.empty() && !c.load.empty()) found = checkpoint_to_load(config).value_or("").string();
  }
  found = control.gather(found)[0];
  if (!found.empty())
    return Checkpoint(found, control.rank() == 0 ? RankFiles::kLookAt : RankFiles::kLookedAt);
  check_usage(c.load.empty() || same_place(c.load, c.save), config.where("load"), ": load names ",
              c.load.string(),
              ", where there is no checkpoint; to start afresh leave load out, or give it the "
              "directory of save");
  return std::nullopt;
}

int64_t first_vocab(const Config& config, const Tokenizer* tokenizer) {
  if (tokenizer) return padded_vocab(config, tokenizer->vocab_size());
  check_usage(config.tokenizer.padded_vocab_size.has_value(),
              "the size of the vocabulary is not known: give vocab_file (the tokenizer), or "
              "padded_vocab_size");
  return *config.tokenizer.padded_vocab_size;
}

void check_vocab(const Config& config, const TrainState& state, const Tokenizer* tokenizer,
                 const std::string& dir, bool first) {
  if (tokenizer) check_tokenizer_of(state, config, *tokenizer, dir, first);
  check_usage(state.padded_vocab % config.layout.tensor == 0, config.where("model_parallel_size"),
              ": model_parallel_size ", config.layout.tensor, " does not divide the ",
              state.padded_vocab, " rows that the embedding of ", dir, " has");
}

void warn_of_kept_rows(const Config& config, const TrainState& state, const fs::path& dir,
                       bool first) {
  int64_t asked = config.tokenizer.padded_vocab_size.value_or(state.padded_vocab);
  if (first && asked != state.padded_vocab)
    log_warning(config.where("padded_vocab_size"), ": padded_vocab_size is ", asked,
                ", but the embedding of ", dir.string(), " has ", state.padded_vocab,
                " rows, which it keeps; neox-convert --padded-vocab ", asked,
                " writes a model of so many, to begin a run from (finetune: true)");
}

// A run that begins from weights alone may turn queries and keys by other angles.
void check_architecture(const Config& config, const TrainState& state,
                        const std::optional<Config>& saved, const std::string& dir, Resume resume) {
  bool any_angles = saved && resume == Resume::kWeights;
  if (has_architecture(config.model, state.architecture, any_angles ? &saved->model : nullptr))
    return;
  std::string keys = saved ? model_difference(*saved, config) : "";
  fs::path file = fs::path(dir).parent_path() / kModelConfigFile;
  fail(Exit::kUsage, dir, " holds another model.\n  there:  ", state.architecture,
       "\n  config: ", architecture(config.model), keys.empty() ? "" : "\nIts configuration says",
       keys, "\nGive the run its own save and load directories, or the config of that model",
       fs::exists(file) ? concat(": ", file.string()) : "", ".");
}

// The schedule of the run that wrote the checkpoint, unless the config says which one to take.
void choose_schedule(Config& config, const Config& saved, const std::string& dir, bool first) {
  if (config.schedule.on_resume == ScheduleOnResume::kOfConfig) return;
  std::string rises =
      rises_again(saved.schedule, length_of_run(config))
          ? concat(" ends with step ", std::llround(saved.schedule.decay_iters),
                   ", behind which NeoX's formula lets the learning rate rise again")
          : "";
  if (config.schedule.on_resume == ScheduleOnResume::kOfCheckpoint) {
    if (first && !rises.empty() && !rises_again(config.schedule, length_of_run(config)))
      log_warning("the schedule of the run of ", dir, rises, "; override_lr_scheduler: true takes ",
                  "this configuration's");
    return take_schedule(config, saved);
  }
  std::string key = schedule_difference(config, saved);
  check_usage(key.empty(), config.where(key), ": ", key, " is ", config.value(key),
              ", but the run of ", dir, " began with ", saved.value(key),
              "; go on with override_lr_scheduler: true (this schedule) or "
              "use_checkpoint_lr_scheduler: true (that of the run",
              rises.empty() ? "" : ", which", rises, ")");
}

// Of the configuration alone, which may name it by its parts.
int64_t asked_batch(const Config& config, int64_t data_ranks) {
  return config.batch.global ? *config.batch.global : plan_batch(config, data_ranks).global;
}

// Which samples a step has follows from it.
void check_ramp_up(const Config& config, const Config& saved, const std::string& dir) {
  const std::string key = "rampup_batch_size";
  check_usage(config.value(key) == saved.value(key), config.where(key), ": ", key, " is ",
              config.value(key), ", but the run of ", dir, " began with ", saved.value(key),
              ", which decides what each of its steps has; put that back, or begin another run "
              "from its weights (finetune: true)");
}

// The batch of a run is decided at its first start.
void check_kept_batch(const Config& config, const TrainState& state, int64_t data_ranks,
                      const std::string& dir, bool first) {
  int64_t asked = asked_batch(config, data_ranks);
  if (asked == state.global_batch) return;
  bool whole = config.batch.global.has_value();
  std::string key = whole ? "train_batch_size" : "train_micro_batch_size_per_gpu";
  std::string found = concat(config.where(key), ": ",
                             whole ? concat("train_batch_size is ", asked)
                                   : concat("micro-batch and accumulation make a batch of ", asked,
                                            " on ", counted(data_ranks, "data-parallel rank")),
                             ", but the run of ", dir, " began with ", state.global_batch);
  bool decays_by_samples = config.value("lr_decay_samples") != "null" &&
                           config.schedule.on_resume != ScheduleOnResume::kOfCheckpoint;
  for (auto [counted, is_given] : {std::pair{"train_epochs", config.train.epochs > 0},
                                   std::pair{"train_samples", config.train.samples > 0},
                                   std::pair{"lr_decay_samples", decays_by_samples}})
    check_usage(!is_given, found, ", and ", counted, " (", config.where(counted),
                ") is counted in steps of it; leave train_batch_size ", state.global_batch,
                ", or begin another run (finetune: true)");
  if (first) log_warning(found, ", which it keeps; another batch is another run (finetune: true)");
}

// By Sinkhorn's iteration a token's experts depend on the others of its micro-batch.
void warn_of_micro_batch(const Config& config, const TrainState& state, const BatchPlan& plan) {
  bool shared = config.model.moe && config.model.moe->router == Router::kSinkhorn;
  if (!shared || state.micro_batch == 0 || plan.micro == state.micro_batch) return;
  log_warning("micro-batches have ", counted(plan.micro, "sample"), " now and had ",
              state.micro_batch,
              ", which with moe_router_type: sinkhorn changes what is trained; "
              "give train_micro_batch_size_per_gpu");
}

// Whether answers are compared with those of the model that training began as.
bool is_compared(const Config& config) {
  const auto& preference = config.train.preference;
  return preference && preference->has_reference() && !preference->reference_free;
}

void check_begins_from_a_model(const Config& config) {
  const CheckpointConfig& c = config.checkpoint;
  if (!is_compared(config)) return;
  bool dpo = config.train.preference->kind == PreferenceConfig::Kind::kDpo;
  check_usage(!c.load.empty() && c.resume == Resume::kWeights, config.where("train_impl"),
              ": train_impl: ", config.value("train_impl"),
              " begins from a trained model, with which it is compared at every start: set load to "
              "its checkpoints and finetune: true",
              dpo ? ", or dpo_reference_free: true" : "");
}

// Collective. The checkpoint in `load` that the run began as, which may hold newer ones by now. A
// run of before does not say which: the newest, as it took at each start.
fs::path find_reference(const Config& config, const Start& start, Control& control) {
  if (start.resume == Resume::kWeights) return start.checkpoint->dir();  // it begins as that
  const CheckpointConfig& c = config.checkpoint;
  int64_t step = start.state.reference_step;
  std::string name = step < 0 ? "checkpoint" : step_name(step), found;
  if (control.rank() == 0) {
    if (step < 0)
      found = find_checkpoint(c.load, c.iteration).value_or("").string();
    else if (is_dir(c.load / name))
      found = (c.load / name).string();
  }
  found = control.gather(found)[0];
  check_usage(!found.empty(), config.where("load"), ": load names ", c.load.string(),
              ", where there is no ", name, "; train_impl: ", config.value("train_impl"), " (",
              config.where("train_impl"), ") needs the model that it began as");
  return found;
}

// A resumed run has its model from elsewhere.
void check_reference(const Config& config, const Start& start) {
  const TrainState& state = start.reference->state();
  fs::path dir = start.reference->dir();
  check_usage(state.padded_vocab == config.model.vocab, config.where("load"), ": the model of ",
              dir.string(), " has a vocabulary of ", state.padded_vocab, ", that of ",
              start.checkpoint->dir().string(), " one of ", config.model.vocab,
              ": it is not what the run began as");
  check_architecture(config, state, config_of(state, dir), dir.string(), Resume::kWeights);
  const std::string& began = start.state.reference_hash;
  check_usage(began.empty() || began == start.reference->parameters_hash(), config.where("load"),
              ": the parameters of ", dir.string(),
              " are not those that the run began with, and with which it is compared; put those "
              "back, or give the run another save directory to begin anew");
}

// Collective.
void open_reference(const Config& config, Start& start, Control& control) {
  if (!is_compared(config)) return;
  start.reference.emplace(find_reference(config, start, control),
                          control.rank() == 0 ? RankFiles::kLookAt : RankFiles::kLookedAt);
  check_reference(config, start);
  start.state.reference_step = start.reference->state().iteration;
  start.state.reference_hash = start.reference->parameters_hash();
}

// Of a run that goes on where the checkpoint ends. own: the checkpoint is one of this run.
void take_state(Start& start, Config& config, const std::optional<Config>& saved, bool own,
                int64_t data_ranks, const Control& control) {
  const TrainState& stored = start.checkpoint->state();
  std::string dir = start.checkpoint->dir().string();
  bool first = control.rank() == 0;
  check_usage(stored.global_batch > 0, dir,
              " holds weights alone, as neox-convert writes them; set finetune: true to begin a "
              "run from them");
  bool left_out = start.resume == Resume::kNoOptimizer &&
                  config.schedule.on_resume == ScheduleOnResume::kMustAgree;
  if (saved && !left_out) choose_schedule(config, *saved, dir, first);
  check_kept_batch(config, stored, data_ranks, dir, first);
  if (saved) check_ramp_up(config, *saved, dir);
  if (saved) start.changed = changed_keys(*saved, config);
  start.state = stored;
  // As far as they write as much to the same disk; fewer ranks may each write for longer.
  double fewer = static_cast<double>(start.checkpoint->num_files()) / control.size();
  start.state.save_seconds = own ? stored.save_seconds * std::max(1.0, fewer) : 0;
  start.batch =
      plan_batch(config, data_ranks, FrozenBatch{stored.global_batch, stored.micro_batch});
  if (first) warn_of_micro_batch(config, stored, start.batch);
  if (stored.micro_batch == 0) start.state.micro_batch = start.batch.micro;
}

// Of a run that begins, with whatever weights.
void begin_state(Start& start, const Config& config, int64_t data_ranks) {
  start.batch = plan_batch(config, data_ranks);
  start.state.global_batch = start.batch.global;
  start.state.micro_batch = start.batch.micro;
  start.state.dataset_samples = samples_of_run(config, batch_schedule(config, start.batch.global));
  start.state.padded_vocab = config.model.vocab;
  start.state.architecture = architecture(config.model);
}

Start find_start_of_model(Config& config, const Tokenizer* tokenizer, int64_t data_ranks,
                          Control& control) {
  const fs::path& save = config.checkpoint.save;
  std::string latest = control.rank() == 0 && !save.empty() ? latest_in(save) : "";
  Start start{.checkpoint = open_checkpoint(config, control)};
  start.latest = latest;
  if (!start.checkpoint) {
    config.model.vocab = first_vocab(config, tokenizer);
    begin_state(start, config, data_ranks);
    return start;
  }
  const TrainState& stored = start.checkpoint->state();
  fs::path dir = start.checkpoint->dir();
  bool first = control.rank() == 0;
  check_vocab(config, stored, tokenizer, dir.string(), first);
  warn_of_kept_rows(config, stored, dir, first);
  config.model.vocab = stored.padded_vocab;
  std::optional<Config> saved = config_of(stored, dir);
  bool own = same_place(dir.parent_path(), config.checkpoint.save);
  if (!own) start.resume = config.checkpoint.resume;
  check_architecture(config, stored, saved, dir.string(), start.resume);
  if (start.resume != Resume::kWeights) {
    take_state(start, config, saved, own, data_ranks, control);
    return start;
  }
  std::string other = saved ? model_difference(*saved, config) : "";
  if (!other.empty() && first)
    log_info("the model is used otherwise than in ", dir.string(),
             ", whose configuration says:", other);
  begin_state(start, config, data_ranks);
  return start;
}

}  // namespace

Start find_start(Config& config, const Tokenizer* tokenizer, int64_t data_ranks, Control& control) {
  std::string read = tokenizer ? fingerprint_text(*tokenizer) : "";
  check_read_alike(control, "the tokenizer (vocab_file)", read);
  check_begins_from_a_model(config);
  Start start = find_start_of_model(config, tokenizer, data_ranks, control);
  open_reference(config, start, control);
  if (tokenizer) start.state.tokenizer_hash = read;
  return start;
}

}  // namespace neox
