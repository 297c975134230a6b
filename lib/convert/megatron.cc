#include "convert/megatron.h"

#include <algorithm>

#include "base/error.h"
#include "convert/megatron_names.h"
#include "model/parameters.h"

namespace neox {
namespace {

// How a rank keeps the rows of queries, keys and values. Megatron-DeepSpeed changed it in December
// 2024 with the commit that brought the argument ds_sequence_parallel_fpdt, and nothing else tells.
TpSplit qkv_split(const MegatronFiles& files, const MegatronArgs& args, bool thirds) {
  double version = files.version;
  bool known = version == 0 || version == 1 || version == 2 || version == 3;
  check_io(known, args.where(), ": checkpoint_version is ", version,
           "; supported are 0, 1, 2 and 3");
  if (thirds || version == 0 || args.has("ds_sequence_parallel_fpdt")) return TpSplit::kQkv;
  return version == 1 ? TpSplit::kQkvLast : TpSplit::kRows;
}

Config config_of(const MegatronArgs& args) {
  // A run of one step: what a configuration must say beside the model.
  std::string yaml = megatron_yaml(args) + "train_iters: 1\ntrain_micro_batch_size_per_gpu: 1\n";
  try {
    return load_config({.texts = {{args.where() + ", args as GPT-NeoX's keys", yaml}}});
  } catch (const Error& e) { throw Error(Exit::kIo, e.what()); }
}

// Of every name that a parameter may have, and of the embedding's copies.
std::map<std::string, TpForm> forms_of(const ModelConfig& model, TpSplit qkv) {
  std::map<std::string, TpForm> forms;
  for (const ParamSpec& spec : parameters(model))
    for (const std::string& name : megatron_names(spec.name))
      forms[name] = megatron_form(spec, model, qkv);
  for (const std::string& name : megatron_copies()) forms[name] = {.split = TpSplit::kRows};
  return forms;
}

// Rows of the embedding; those that args names must be there.
int64_t rows_of(const TensorSource& files, const MegatronArgs& args) {
  std::vector<std::string> names = megatron_names("embed_in.weight");
  for (const TensorInfo& info : files.tensors()) {
    if (std::ranges::count(names, info.name) == 0 || info.shape.empty()) continue;
    int64_t rows = info.shape[0], said = args.maybe_integer("padded_vocab_size").value_or(rows);
    check_io(rows == said, args.where(), ": the embedding has ", rows,
             " rows, but args.padded_vocab_size is ", said);
    return rows;
  }
  return args.maybe_integer("padded_vocab_size").value_or(1);  // that it is missing is said later
}

// A copy of the embedding must not say something else.
void check_copies(const ModelFiles& model) {
  for (const Ignored& ignored : model.ignored) {
    if (!ignored.reason.starts_with("tied")) continue;
    at::Tensor embedding = model.tensors.at(0).read(), copy = model.files->read(ignored.name);
    check_io(same_bits(embedding, copy), model.where, ": ", ignored.name,
             " differs from the embedding, to which it is tied");
  }
}

void add_companions(ModelFiles& model, const fs::path& dir) {
  if (fs::is_directory(dir))
    for (const auto& entry : fs::directory_iterator(dir)) {
      if (entry.is_regular_file())
        model.companions.push_back({entry.path().filename().string(), entry.path()});
    }
  else
    add_tokenizer(model);
  std::ranges::sort(model.companions, {}, &Companion::name);
  choose_tokenizer(model);
}

ModelFiles model_of(MegatronFiles files, const fs::path& path, bool thirds) {
  MegatronArgs args(files.args, files.main->name());
  ModelFiles model{.where = files.dir.string(), .config = config_of(args), .files = {}};
  ModelConfig& config = model.config.model;
  TpSplit qkv = qkv_split(files, args, thirds);
  check_io(qkv == TpSplit::kRows || config.groups() == config.heads, args.where(), ": ",
           config.groups(), " heads of keys for ", config.heads,
           " of queries in the order of rows that this checkpoint has are not supported");
  model.files = std::make_shared<JoinedTensors>(std::move(files.parts), forms_of(config, qkv));
  config.vocab = rows_of(*model.files, args);
  model.iteration = files.iteration;
  map_tensors(model, megatron_names, [&](const std::string& name) {
    return megatron_ignores(name, config.tied_embedding);
  });
  check_copies(model);
  add_companions(model, path / kTokenizerDir);
  return model;
}

// Each part by itself.
std::shared_ptr<const TensorSource> parts_of(const MegatronFiles& files) {
  TensorParts single;
  for (const auto& [name, parts] : files.parts)
    for (size_t rank = 0; rank < parts.size(); ++rank)
      single[parts.size() == 1 ? name : concat("rank_", rank, "/", name)] = {parts[rank]};
  return std::make_shared<JoinedTensors>(std::move(single), std::map<std::string, TpForm>());
}

}  // namespace

bool is_megatron(const fs::path& path) {
  std::optional<fs::path> dir = megatron_step(path, "iter_%07d");
  if (!dir || !fs::is_directory(*dir)) return false;
  for (const char* rank : {"mp_rank_00", "mp_rank_00_000"})
    if (fs::is_directory(*dir / rank)) return true;
  return false;
}

ModelFiles open_megatron(const fs::path& path) {
  return model_of(open_megatron_files(path), path, false);
}
std::shared_ptr<const TensorSource> open_megatron_tensors(const fs::path& path) {
  return parts_of(open_megatron_files(path));
}

ModelFiles open_megatron_deepspeed(const fs::path& path) {
  return model_of(open_megatron_deepspeed_files(path), path, false);
}
ModelFiles open_megatron_deepspeed_thirds(const fs::path& path) {
  return model_of(open_megatron_deepspeed_files(path), path, true);
}
std::shared_ptr<const TensorSource> open_megatron_deepspeed_tensors(const fs::path& path) {
  return parts_of(open_megatron_deepspeed_files(path));
}

ModelFiles open_megatron_dist(const fs::path& path) {
  return model_of(open_megatron_dist_files(path), path, false);
}
std::shared_ptr<const TensorSource> open_megatron_dist_tensors(const fs::path& path) {
  return parts_of(open_megatron_dist_files(path));
}
void write_megatron_dist(const ModelFiles&, const Target& target) {
  fail(Exit::kUsage, target.final_dir.string(),
       ": Megatron's torch_dist is read, not written; --to megatron writes what Megatron-LM reads");
}

}  // namespace neox
