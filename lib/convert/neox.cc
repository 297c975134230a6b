// Reads checkpoints of GPT-NeoX.
#include <ATen/ops/cat.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "convert/formats.h"
#include "convert/neox_files.h"
#include "convert/neox_names.h"
#include "convert/neox_optimizer.h"
#include "convert/neox_train_state.h"
#include "model/parameters.h"
#include "tokenizer/of_config.h"
#include "torchfile/tensor.h"

namespace neox {
namespace {

using torchfile::Kind;
using torchfile::TorchFile;
using torchfile::Value;
using Parts = std::vector<std::vector<const NeoxTensor*>>;  // [rank][name of the way]

// What an editor or a Mac has left beside them is none.
bool is_config(const fs::path& file) {
  std::string name = file.filename().string(), end = file.extension().string();
  return !name.starts_with('.') && (end == ".yml" || end == ".yaml" || end == ".json");
}

// The run's own configuration files, which GPT-NeoX saves along.
std::vector<std::string> config_files(const NeoxFiles& files) {
  fs::path dir = files.dir() / "configs";
  std::vector<std::string> names;
  if (fs::is_directory(dir))
    for (const auto& entry : fs::directory_iterator(dir))
      if (entry.is_regular_file() && is_config(entry)) names.push_back(entry.path().string());
  check_io(!names.empty(), dir.string(),
           " has no configuration; put the YAML files there that the run was started with");
  std::ranges::sort(names);
  return names;
}

// Does a file mention the key, with underscores or with hyphens?
bool mentions(const std::vector<std::string>& files, std::string_view key) {
  return std::ranges::any_of(files, [&](const std::string& file) {
    std::string text = read_file(file);
    std::ranges::replace(text, '-', '_');
    return text.find(key) != std::string::npos;
  });
}

// A configuration that describes the model alone, as neox-convert writes it, gets what a run needs
// besides.
std::vector<std::string> missing_settings(const std::vector<std::string>& files) {
  std::vector<std::string> settings;
  if (!mentions(files, "train_iters")) settings.push_back("train_iters=1");
  if (!mentions(files, "train_batch_size") && !mentions(files, "train_micro_batch_size_per_gpu"))
    settings.push_back("train_micro_batch_size_per_gpu=1");
  return settings;
}

Config load_configs(const NeoxFiles& files) {
  ConfigOptions options{.files = config_files(files)};
  options.defaults = missing_settings(options.files);
  if (mentions(options.files, "train_epochs")) options.overrides = {"train_epochs=null"};
  Config config = load_config(options);
  check_neox_has(config.model);
  check_io(config.layout.tensor == files.tensor_parallel(), config.where("model_parallel_size"),
           ": model_parallel_size is ", config.layout.tensor, ", but ", files.dir().string(),
           " has files of ", files.tensor_parallel(), " tensor-parallel ranks");
  return config;
}

int64_t rows_of_embedding(const NeoxFiles& files) {
  const NeoxTensor* part = files.find(0, 0, "word_embeddings.weight");
  check_io(part && part->ref->sizes.size() == 2, files.file_of(0, 0),
           " has no word_embeddings.weight [rows, hidden]");
  return part->ref->sizes[0] * files.tensor_parallel();
}

// The parts of a parameter in the way that rank 0 names it.
Parts find_parts(const NeoxFiles& files, const NeoxPlace& place) {
  auto there = [&](const auto& way) {
    return std::ranges::all_of(
        way, [&](const std::string& name) { return files.find(place.layer, 0, name); });
  };
  auto way = std::ranges::find_if(place.names, there);
  if (way == place.names.end()) {
    std::vector<std::string> known, others;
    for (const auto& names : place.names) known.push_back(join(names, " and "));
    for (const NeoxTensor* t : files.layer(place.layer, 0)) others.push_back(t->name);
    std::string near = nearest(known[0], others);
    fail(Exit::kIo, files.file_of(place.layer, 0), " has no ", join(known, " or "),
         near.empty() ? "" : "; it has " + near);
  }
  Parts parts;
  for (int64_t rank = 0; rank < files.tensor_parallel(); ++rank) {
    parts.emplace_back();
    for (const std::string& name : *way) {
      parts.back().push_back(files.find(place.layer, rank, name));
      check_io(parts.back().back(), files.file_of(place.layer, rank), " has no ", name,
               ", which that of rank 0 has");
    }
  }
  return parts;
}

// All tensors of a way have the columns of the part, and together its rows.
void check_shapes(const NeoxFiles& files, const Parts& parts, const Dims& shape,
                  const std::string& ours) {
  for (const auto& names : parts) {
    Dims found = names[0]->ref->sizes;
    for (size_t i = 1; i < names.size() && !found.empty() && !names[i]->ref->sizes.empty(); ++i)
      found[0] += names[i]->ref->sizes[0];
    check_io(found == shape, files.file_of(names[0]->layer, names[0]->rank), ": ", names[0]->name,
             " is ", to_string(found), ", but ", to_string(shape), " by the configuration (", ours,
             ")");
  }
}

at::ScalarType type_of(const NeoxFiles& files, const Parts& parts) {
  auto type = [&](const NeoxTensor* t) { return torchfile::scalar_type(t->ref->dtype); };
  for (const auto& names : parts)
    for (const NeoxTensor* t : names) {
      check_io(parameter_type(type_words(type(t))).has_value(), files.file_of(t->layer, t->rank),
               ": ", t->name, " has the type ", type_words(type(t)),
               "; parameters are fp32, fp16, bf16 or fp64");
      check_io(type(t) == type(parts[0][0]), files.file_of(t->layer, t->rank), ": ", t->name,
               " has the type ", type_words(type(t)), ", on rank 0 ",
               type_words(type(parts[0][0])));
    }
  return type(parts[0][0]);
}

// What the readers of a parameter share.
struct Source {
  std::shared_ptr<const NeoxFiles> files;
  NeoxPlace place;
  Parts parts;
  Dims shape;
};

template <class ReadPart>
std::vector<at::Tensor> read_parts(const Source& source, const ReadPart& read) {
  std::vector<at::Tensor> parts;
  for (const auto& names : source.parts) {
    std::vector<at::Tensor> rows;
    for (const NeoxTensor* t : names) rows.push_back(read(*t));
    parts.push_back(rows.size() == 1 ? rows[0] : at::cat(rows));
  }
  return parts;
}

at::Tensor read_weight(const Source& source) {
  const NeoxFiles& files = *source.files;
  auto parts =
      read_parts(source, [&](const NeoxTensor& t) { return files.read(files.full_name(t)); });
  const NeoxTensor& first = *source.parts[0][0];
  if (source.place.form.split == TpSplit::kNone && !all_equal(parts))
    log_warning(files.dir().string(), ": the copies of ", first.layer, ".", first.name, " of the ",
                parts.size(), " tensor-parallel ranks differ; their mean is taken");
  return join_parts(source.place.form, parts);
}

at::Tensor read_state(const Source& source, const NeoxOptimizer& optimizer,
                      const std::string& state) {
  auto parts = read_parts(
      source, [&](const NeoxTensor& t) { return optimizer.read(state, t).view(t.ref->sizes); });
  return join_parts(source.place.form, parts, state == "param" ? Summands::kSum : Summands::kMean);
}

std::string note_of(const TpForm& form, int64_t ranks) {
  if (form.split == TpSplit::kSummed && ranks > 1)
    return concat("the sum over ", ranks, " ranks (moments: the mean)");
  bool permuted = form.split == TpSplit::kQkv || form.split == TpSplit::kQkvSlots ||
                  form.split == TpSplit::kGated;
  return permuted ? "rows in another order" : "";
}

ModelTensor tensor_of(const std::shared_ptr<const Source>& source, const ParamSpec& spec) {
  const NeoxFiles& files = *source->files;
  const TpForm& form = source->place.form;
  check_shapes(files, source->parts, part_shape(form, spec.shape, files.tensor_parallel()),
               spec.name);
  ModelTensor t{.info = {spec.name, type_of(files, source->parts), spec.shape},
                .from = {},
                .read = [source] { return read_weight(*source); },
                .note = note_of(form, files.tensor_parallel())};
  for (const NeoxTensor* part : source->parts[0])
    t.from.push_back(concat(part->layer, ".", part->name));
  return t;
}

using Sources = std::vector<std::shared_ptr<const Source>>;

// The formula of RMS norms does not show in the files; with small epsilons both are the same.
void check_norms(const NeoxFiles& files, const Config& config) {
  bool own = config.value("norm") == "rmsnorm" && config.value("rmsnorm_fusion") != "true";
  if (!own || config.model.norm_eps < 1e-6) return;
  log_warning(files.dir().string(), " has RMS norms with an epsilon of ", config.model.norm_eps,
              ". Until May 2025 GPT-NeoX computed x / (rms + epsilon) where rmsnorm_fusion is "
              "false; here, and there since then, it is x / sqrt(rms^2 + epsilon). If this "
              "checkpoint is of before, the converted model's logits differ by up to some percent; "
              "rms_norm_epsilon: 1e-8 in its configs/ brings them nearer");
}

constexpr const char* kState = "state of the optimizer";

// `sources` are those of the tensors.
void open_train_state(ModelFiles& model, const std::shared_ptr<const NeoxFiles>& files,
                      const Sources& sources) {
  auto optimizer = std::make_shared<const NeoxOptimizer>(files, model.config);
  if (!optimizer->absent().empty()) return model.ignored.push_back({kState, optimizer->absent()});
  for (const auto& source : sources)
    for (const auto& names : source->parts)
      for (const NeoxTensor* part : names) optimizer->check(*part);
  add_train_state(model, *files, *optimizer);
  for (size_t i = 0; i < sources.size(); ++i)
    for (const std::string& state : optimizer->states())
      model.tensors[i].states.push_back({state, [source = sources[i], optimizer, state] {
                                           return read_state(*source, *optimizer, state);
                                         }});
}

// A tensor that is there once more must not say something else.
void check_copy(const NeoxFiles& files, const NeoxTensor& copy) {
  if (copy.name != kNeoxRelative) return;
  const NeoxTensor* first = files.find(2, copy.rank, kNeoxRelative);
  check_io(
      first && same_bits(files.read(files.full_name(*first)), files.read(files.full_name(copy))),
      files.file_of(copy.layer, copy.rank), ": ", kNeoxRelative,
      " differs from that of the first block; one for all blocks is supported");
}

void account(ModelFiles& model, const NeoxFiles& files, const std::set<const NeoxTensor*>& used) {
  for (const NeoxTensor& t : files.all()) {
    if (used.contains(&t)) continue;
    std::string reason = neox_ignores(model.config.model, t.layer, t.name);
    check_io(!reason.empty(), files.file_of(t.layer, t.rank), " holds ", t.name, " ",
             to_string(t.ref->sizes), " of layer ", t.layer, ", which has no place in the model");
    check_copy(files, t);
    model.ignored.push_back({concat(t.layer, ".", t.name), reason});
  }
}

struct Reason {
  const char* key;
  const char* reason;
};
constexpr const char* kRandom = "random numbers are functions of seed and step";
constexpr Reason kReasons[] = {
    {"random_rng_state", kRandom},
    {"np_rng_state", kRandom},
    {"torch_rng_state", kRandom},
    {"cuda_rng_state", kRandom},
    {"rng_tracker_states", kRandom},
    {"lr_scheduler", "follows from configuration and step"},
    {"data_sampler", "the state of a curriculum"},
    {"random_ltd", "the state of random token dropping"},
    {"checkpoint_validation_logits", "can be computed"},
};

void name_left_out(ModelFiles& model, const TorchFile& file) {
  for (const Reason& r : kReasons)
    if (auto value = file.root().find(r.key); value && !value->is(Kind::kNone))
      model.ignored.push_back({r.key, r.reason});
}

// How a rank keeps the queries, keys and values of fewer keys than queries; else all do alike.
enum class Rows { kRuns, kSlots };

void check_rows(const NeoxFiles& files, const ModelConfig& model, Rows rows) {
  int64_t queries = model.group_queries();
  if (queries == 1) return;
  check_io(rows == Rows::kRuns || model.head_size() % queries == 0, files.dir().string(),
           ": heads of ", model.head_size(), " rows do not share out over the ", queries,
           " queries of a key, so this is no checkpoint in slots; convert with --from neox");
  if (rows == Rows::kSlots) return;
  bool old = files.find(2, 0, "mlp.w1.weight") != nullptr;
  log_warning(files.dir().string(), " has ", model.groups(), " heads of keys for ", model.heads,
              " of queries. GPT-NeoX kept their rows in another order from February to November "
              "2024, with the same names and shapes; ",
              old ? "mlp.w1 and its kind are of before September 2024, so this checkpoint is most "
                    "likely one of those: convert it with --from neox-gqa-slots"
                  : "if this checkpoint is of that time, or the converted model gives noise, "
                    "convert it with --from neox-gqa-slots");
}

// Why training cannot go on, as far as that shows without the optimizer; "" where it may.
std::string why_weights_alone(const NeoxFiles& files) {
  if (!files.has_optimizer()) return "the checkpoint has none";
  if (files.states().empty()) return "there is no mp_rank file";
  std::vector<std::string> missing = missing_settings(config_files(files));
  return missing.empty() ? "" : "configs/ does not say " + split(missing[0], '=')[0];
}

// The tensors, and how they are read.
Sources add_tensors(ModelFiles& model, const std::shared_ptr<const NeoxFiles>& files, Rows rows) {
  Sources sources;
  std::set<const NeoxTensor*> used;
  for (const ParamSpec& spec : parameters(model.config.model)) {
    NeoxPlace place = neox_place(model.config.model, spec.name);
    bool slots = rows == Rows::kSlots && place.form.split == TpSplit::kQkv;
    if (slots) place.form.split = TpSplit::kQkvSlots;
    Parts parts = find_parts(*files, place);
    for (const auto& names : parts) used.insert(names.begin(), names.end());
    sources.push_back(std::make_shared<const Source>(Source{files, place, parts, spec.shape}));
    model.tensors.push_back(tensor_of(sources.back(), spec));
  }
  account(model, *files, used);
  return sources;
}

// A value of another kind than expected says so without its file.
template <class Function>
auto naming(const NeoxFiles& files, const Function& function) {
  try {
    return function();
  } catch (const Error& error) {
    std::string where = files.dir().string(), what = error.what();
    if (what.find(where) != what.npos || error.exit() != Exit::kIo) throw;
    fail(error.exit(), where, ": ", what);
  }
}

ModelFiles open_model(const std::shared_ptr<const NeoxFiles>& files, Rows rows) {
  ModelFiles model{.where = files->dir().string(), .config = load_configs(*files), .files = files};
  model.config.model.vocab = rows_of_embedding(*files);
  check_rows(*files, model.config.model, rows);
  check_norms(*files, model.config);
  Sources sources = add_tensors(model, files, rows);
  if (!files->states().empty()) {
    const TorchFile& file = files->states()[0];
    for (const char* key : {"iteration", "total_iters", "global_steps"})
      if (model.iteration == 0) model.iteration = neox_integer(file, key).value_or(0);
    name_left_out(model, file);
  }
  std::string why = why_weights_alone(*files);
  if (why.empty())
    model.open_train_state = [files, sources](ModelFiles& opened) {
      naming(*files, [&] { open_train_state(opened, files, sources); });
    };
  else
    model.ignored.push_back({kState, why});
  follow_tokenizer(model.config.tokenizer, files->dir().parent_path() / kTokenizerDir);
  add_run_companions(model);
  return model;
}

ModelFiles open_in(const fs::path& path, Rows rows) {
  auto files = std::make_shared<const NeoxFiles>(path);
  return naming(*files, [&] { return open_model(files, rows); });
}

}  // namespace

bool is_neox(const fs::path& path) { return looks_like_neox(path); }

std::shared_ptr<const TensorSource> open_neox_tensors(const fs::path& path) {
  return std::make_shared<NeoxFiles>(path);
}

ModelFiles open_neox(const fs::path& path) { return open_in(path, Rows::kRuns); }
ModelFiles open_neox_slots(const fs::path& path) { return open_in(path, Rows::kSlots); }

void write_neox_slots(const ModelFiles&, const Target& target) {
  fail(Exit::kUsage, target.final_dir.string(),
       ": neox-gqa-slots is read, not written; --to neox writes what GPT-NeoX reads since November "
       "2024");
}

}  // namespace neox
