#include "jobs/check_files.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "config/architecture.h"
#include "jobs/container.h"

namespace neox {
namespace {

using Files = CheckOptions::Files;
using Notes = std::vector<std::string>;

// Where a path comes from, for messages; --default is what the script's variables give.
std::string origin(const Config& config, const std::string& key) {
  std::string place = config.where(key);
  if (place != "--default") return place;
  return key == "vocab_file"              ? "by VOCAB_FILE or MODEL_PATH"
         : key == "save" || key == "load" ? "by CHECKPOINT_PATH or MODEL_PATH"
                                          : "by DATA_PATH and DATASET";
}

// What is not as it must be is refused, or noted where nothing is submitted.
template <class... Parts>
void expect(bool good, const CheckOptions& options, Notes& notes, const Parts&... parts) {
  if (good) return;
  check_usage(options.files == Files::kMayBeMissing, parts...);
  notes.push_back(concat(parts...));
}

// Is it there, or will it be, being made by an earlier job or a folder of what is?
bool comes_to_be(const fs::path& path, const CheckOptions& options) {
  std::error_code error;
  if (fs::exists(path_outside(path, options.mounts), error)) return true;
  if (options.files == Files::kPreparedBefore) return true;
  fs::path whole = fs::absolute(path).lexically_normal();
  return std::ranges::any_of(options.made, [&](const std::string& made) {
    fs::path other = fs::absolute(made).lexically_normal();
    return std::ranges::mismatch(whole, other).in1 == whole.end();
  });
}

void check_data(const Config& config, const CheckOptions& options, Notes& notes) {
  auto check_prefix = [&](const std::string& key, const std::string& prefix) {
    for (const std::string& file : {prefix + ".bin", prefix + ".idx"}) {
      if (comes_to_be(file, options)) continue;
      return expect(false, options, notes, origin(config, key), ": ", key, " is ", prefix, ", but ",
                    file,
                    options.made.empty() ? " does not exist. Prepare it first (neox-submit "
                                           "prepare-data train ... does both, one after the other)"
                                         : " does not exist, and the job before makes " +
                                               options.made[0] + ". Let both be the same",
                    ", wait for the job that makes it (--after JOBID), or name another with --set ",
                    key, "=PREFIX");
    }
  };
  for (const auto& [key, prefix] : datasets_of(config.data)) check_prefix(key, prefix);
  for (auto [key, path] : {std::pair{"vocab_file", &config.tokenizer.vocab_file},
                           {"merge_file", &config.tokenizer.merge_file}})
    expect(path->empty() || comes_to_be(*path, options), options, notes, origin(config, key), ": ",
           key, " ", path->string(),
           " does not exist. neox-submit prepare-data fetches the 20B tokenizer; or name another "
           "with --set ",
           key, "=FILE");
}

// "" where this user may write into the folder.
std::string trouble_writing(const fs::path& folder) {
  return access(folder.c_str(), W_OK | X_OK) == 0 ? "" : describe_errno(errno);
}

// The folder exists, and checkpoints can be written there, or it can be made.
void check_save(const Config& config, const CheckOptions& options, Notes& notes) {
  const std::string name = "; name another directory with --set save=DIR --set load=DIR";
  const fs::path& save = config.checkpoint.save;
  fs::path outside = path_outside(save, options.mounts);
  std::error_code error;
  std::string found = concat(origin(config, "save"), ": save is ", save.string(), ", ");
  if (fs::exists(outside, error)) {
    bool folder = fs::is_directory(outside, error);
    expect(folder, options, notes, found, "which is a file", name);
    std::string trouble = folder ? trouble_writing(outside) : "";
    return expect(trouble.empty(), options, notes, found,
                  "where checkpoints cannot be written: ", trouble, name);
  }
  fs::path parent = fs::absolute(save).lexically_normal().parent_path();
  fs::path there = path_outside(parent, options.mounts);
  expect(comes_to_be(parent, options), options, notes, found, "but the folder ", there.string(),
         " does not exist; make it (mkdir -p ", there.string(),
         "), or name another with --set save=DIR --set load=DIR");
  std::string trouble = fs::exists(there, error) ? trouble_writing(there) : "";
  expect(trouble.empty(), options, notes, found, "which cannot be made: ", trouble, name);
}

// What a checkpoint says of its run.
struct Stored {
  fs::path dir;              // global_stepN; empty: there is none
  std::string architecture;  // empty: it is not one of neox.cpp
  std::string config;        // empty: another program made the weights
  int64_t padded_vocab = 0, global_batch = 0, micro_batch = 0;
};

Stored read_stored(const fs::path& dir) {
  Stored stored{.dir = dir, .architecture = {}, .config = {}};
  std::error_code error;
  fs::path state = dir / "train_state.json";
  if (!fs::exists(state, error)) return stored;
  auto json = nlohmann::json::parse(read_file(state), nullptr, false);
  if (!json.is_object()) return stored;
  auto text = [&](const char* key) {
    auto value = json.find(key);
    return value != json.end() && value->is_string() ? value->get<std::string>() : "";
  };
  auto number = [&](const char* key) {
    auto value = json.find(key);
    return value != json.end() && value->is_number_integer() ? value->get<int64_t>() : 0;
  };
  stored.architecture = text("architecture"), stored.config = text("config");
  stored.padded_vocab = number("padded_vocab");
  stored.global_batch = number("global_batch"), stored.micro_batch = number("micro_batch");
  return stored;
}

// The newest one in a directory, those of neox.cpp first.
Stored newest_in(const fs::path& run_dir) {
  constexpr std::string_view kPrefix = "global_step";
  std::map<int64_t, fs::path, std::greater<>> steps;
  std::error_code error;
  for (fs::directory_iterator it(run_dir, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename();
    if (!name.starts_with(kPrefix)) continue;
    if (auto step = number_of<int64_t>(name.substr(kPrefix.size()))) steps[*step] = it->path();
  }
  for (const auto& [step, dir] : steps)
    if (Stored stored = read_stored(dir); !stored.architecture.empty()) return stored;
  return {
      .dir = steps.empty() ? fs::path() : steps.begin()->second, .architecture = {}, .config = {}};
}

const std::string kOwnDirectory = "; a run of its own has its own --set save=DIR --set load=DIR";

// As neox-train compares them: the tensors, which a run from weights alone may turn otherwise.
bool check_model(const Config& config, const std::optional<Config>& saved, const Stored& stored,
                 bool weights, const CheckOptions& options, Notes& notes) {
  ModelConfig model = config.model;
  model.vocab = stored.padded_vocab;
  const ModelConfig* any_angles = saved && weights ? &saved->model : nullptr;
  if (has_architecture(model, stored.architecture, any_angles)) return true;
  std::string keys = saved ? model_difference(*saved, config) : "";
  if (keys.empty())
    keys = concat(":\n  there:  ", stored.architecture, "\n  config: ", architecture(model));
  else
    keys = ". Its configuration says" + keys;
  expect(false, options, notes, origin(config, "load"), ": load is ",
         config.checkpoint.load.string(), ", where ", stored.dir.filename().string(),
         " holds another model", keys, "\nName the directory of this model", kOwnDirectory);
  return false;
}

void check_schedule(const Config& config, const Config& saved, const Stored& stored,
                    const CheckOptions& options, Notes& notes) {
  std::string key = schedule_difference(config, saved);
  if (key.empty()) return;
  expect(false, options, notes, config.where(key), ": ", key, " is ", config.value(key),
         ", but the run in ", stored.dir.string(), " began with ", saved.value(key),
         "; go on with --set use_checkpoint_lr_scheduler=true (its schedule) or --set "
         "override_lr_scheduler=true (this one)",
         kOwnDirectory);
}

void check_same_run(const Config& config, const Stored& stored, const CheckOptions& options,
                    Notes& notes) {
  bool own = same_place(config.checkpoint.load, config.checkpoint.save);
  Resume resume = own ? Resume::kWhole : config.checkpoint.resume;
  std::optional<Config> saved;
  std::string name = stored.dir.string() + " (its configuration)";
  if (!stored.config.empty()) saved = load_config({.texts = {{name, stored.config}}});
  if (!check_model(config, saved, stored, resume == Resume::kWeights, options, notes)) return;
  if (saved && resume == Resume::kWhole &&
      config.schedule.on_resume == ScheduleOnResume::kMustAgree)
    check_schedule(config, *saved, stored, options, notes);
}

// What `load` holds, as far as it decides whether the run starts.
void check_load(const Config& config, const CheckOptions& options, Notes& notes) {
  const CheckpointConfig& c = config.checkpoint;
  if (c.load.empty() || c.iteration) return;  // an older one: neox-train looks
  bool own = same_place(c.load, c.save);
  std::string where = concat(origin(config, "load"), ": load is ", c.load.string());
  if (!own && !newest_in(path_outside(c.save, options.mounts)).dir.empty())
    return;  // begun before, or refused: neox-train looks
  Stored stored = newest_in(path_outside(c.load, options.mounts));
  if (stored.dir.empty())
    return expect(own || options.files == Files::kPreparedBefore, options, notes, where,
                  ", where there is no checkpoint; to start afresh give it the directory of save: "
                  "--set load=",
                  c.save.string());
  if (stored.architecture.empty())
    return expect(false, options, notes, where, ", where ", stored.dir.filename().string(),
                  " is no checkpoint of neox.cpp; convert it (neox-convert --to neox.cpp ",
                  c.load.string(), " NEW), or name another directory with --set load=DIR");
  check_same_run(config, stored, options, notes);
}

}  // namespace

void check_files(const Config& config, const CheckOptions& options, Notes& notes) {
  check_data(config, options, notes);
  const fs::path &save = config.checkpoint.save, &load = config.checkpoint.load;
  if (save.empty())
    notes.push_back("save is not set: a requeued job starts from the beginning");
  else
    check_usage(!load.empty(), origin(config, "save"), ": save is ", save.string(),
                ", but load is not set, so a requeued job would not go on from its checkpoint; add "
                "--set load=",
                save.string());
  if (!save.empty()) check_save(config, options, notes);
  check_load(config, options, notes);
}

std::optional<FrozenBatch> kept_batch(const Config& config, const CheckOptions& options) {
  const CheckpointConfig& c = config.checkpoint;
  if (c.load.empty() || (c.resume == Resume::kWeights && !same_place(c.load, c.save)))
    return std::nullopt;
  Stored stored = newest_in(path_outside(c.load, options.mounts));
  if (stored.global_batch == 0) return std::nullopt;
  return FrozenBatch{stored.global_batch, stored.micro_batch};
}

}  // namespace neox
