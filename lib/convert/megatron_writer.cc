// Writes weights as Megatron-LM (before Megatron-Core) and Megatron-DeepSpeed save them.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "convert/deepspeed_state.h"
#include "convert/formats.h"
#include "convert/megatron.h"
#include "convert/megatron_names.h"
#include "convert/written_parts.h"
#include "model/parameters.h"
#include "torchfile/tensor.h"
#include "torchfile/torch_writer.h"

namespace neox {
namespace {

using torchfile::Item;
using Entries = Item::Entries;

constexpr double kVersion = 3;  // checkpoint_version

// A rank's part of a parameter, under its name in the whole model.
struct Written {
  std::string name;
  const ModelTensor* from;
  TpForm form;
};

struct Plan {
  const ModelFiles& model;
  MegatronLayout layout;
  std::vector<Written> all;
  int64_t vocab_multiple = 1;
};

Plan plan_of(const ModelFiles& model, MegatronLayout layout) {
  const ModelConfig& config = model.config.model;
  check_expressible(config, layout);
  check_usage(layout.tensor > 0 && config.groups() % layout.tensor == 0, "--tensor-parallel ",
              layout.tensor, " does not divide the ", config.groups(), " heads of keys and values");
  check_usage(config.intermediate % layout.tensor == 0, "--tensor-parallel ", layout.tensor,
              " does not divide the ", config.intermediate, " columns of the MLP");
  check_usage(config.vocab % layout.tensor == 0, "--tensor-parallel ", layout.tensor,
              " does not divide the ", config.vocab,
              " rows of the embedding; --padded-vocab gives "
              "it more");
  int64_t stages = std::max<int64_t>(layout.pipeline, 1);
  check_usage(config.layers % stages == 0, "--pipeline-parallel ", stages, " does not divide the ",
              config.layers, " layers");
  Plan plan{model, layout, {}, vocab_multiple(model, layout.tensor)};
  TpSplit qkv = layout.thirds ? TpSplit::kQkv : TpSplit::kRows;
  std::map<std::string, ParamSpec> specs;
  for (const ParamSpec& spec : parameters(config)) specs[spec.name] = spec;
  for (const ModelTensor& t : model.tensors)
    plan.all.push_back(
        {megatron_names(t.info.name)[0], &t, megatron_form(specs.at(t.info.name), config, qkv)});
  return plan;
}

Item item_of(const Written& w, int64_t rank, int64_t ranks, const ReadTensor& read) {
  return part_item(*w.from, w.form, rank, ranks, read);
}

// Puts the item into dicts of dicts by its name: "embedding.word_embeddings.weight".
struct Tree {
  std::map<std::string, Tree> inner;
  Entries leaves;

  void put(const std::string& name, Item item) {
    size_t dot = name.find('.');
    if (dot == std::string::npos)
      leaves.emplace_back(name, std::move(item));
    else
      inner[name.substr(0, dot)].put(name.substr(dot + 1), std::move(item));
  }
  Item item() const {
    Entries entries = leaves;
    for (const auto& [name, tree] : inner) entries.emplace_back(name, tree.item());
    return Item::ordered_dict(std::move(entries));
  }
};

struct Stage {
  int64_t number = 0, count = 1;
};

constexpr std::string_view kModelPrefix = "language_model.",
                           kEncoderPrefix = "language_model.encoder.";
constexpr std::string_view kLayersPrefix = "layers.";

// Is it on that stage?
bool is_on(const Stage& stage, const std::string& ours, const ModelConfig& config) {
  int64_t layers = config.layers / stage.count;
  if (ours.starts_with(kLayersPrefix))
    return std::stoll(ours.substr(kLayersPrefix.size())) / layers == stage.number;
  bool at_end = ours.starts_with("final_layer_norm.") || ours.starts_with("embed_out.");
  return stage.number == (at_end ? stage.count - 1 : 0);
}

// In the encoder of a stage, whose layers count from 0.
std::string stage_name(const std::string& name, int64_t layers) {
  if (!name.starts_with(kLayersPrefix)) return name;
  int64_t layer = std::stoll(name.substr(kLayersPrefix.size()));
  return concat(kLayersPrefix, layer % layers, name.substr(name.find('.', kLayersPrefix.size())));
}

// The model of one rank: the encoder's tensors in one dict, all others in dicts of dicts.
Item model_of(const Plan& plan, int64_t rank, Stage stage, const ReadTensor& read) {
  const ModelConfig& config = plan.model.config.model;
  Entries encoder, model;
  Tree tree;
  for (const Written& w : plan.all) {
    Item item = item_of(w, rank, plan.layout.tensor, read);
    bool copied = config.tied_embedding && w.from->info.name == "embed_in.weight";
    if (copied && stage.number > 0 && stage.number == stage.count - 1)
      model.emplace_back("word_embeddings_for_head", Item::ordered_dict({{"weight", item}}));
    if (!is_on(stage, w.from->info.name, config)) continue;
    if (w.name.starts_with(kEncoderPrefix))
      encoder.emplace_back(
          stage_name(w.name.substr(kEncoderPrefix.size()), config.layers / stage.count), item);
    else
      tree.put(w.name.substr(kModelPrefix.size()), item);
  }
  if (!encoder.empty()) tree.leaves.emplace_back("encoder", Item::ordered_dict(encoder));
  model.emplace_back("language_model", tree.item());
  return Item::dict(std::move(model));
}

Entries header_of(const Plan& plan) {
  return {{"args", megatron_args(plan.model.config, plan.layout, plan.vocab_multiple,
                                 plan.model.iteration)},
          {"checkpoint_version", kVersion},
          {"iteration", plan.model.iteration}};
}

// Megatron-LM's directories of a stage, one for each rank.
void write_stage(const Plan& plan, Stage stage, const fs::path& dir) {
  auto rank_dir = [&](int64_t t) {
    return dir / (stage.count > 1 ? numbered("mp_rank_%02d_%03d", t, stage.number)
                                  : numbered("mp_rank_%02d", t));
  };
  for (int64_t t = 0; t < plan.layout.tensor; ++t) make_directories(rank_dir(t));
  write_ranks(
      plan.layout.tensor, [&](int64_t t) { return rank_dir(t) / "model_optim_rng.pt"; },
      [&](int64_t t, const ReadTensor& read) {
        Entries entries = header_of(plan);
        entries.emplace_back("model", model_of(plan, t, stage, read));
        return Item::dict(std::move(entries));
      });
  for (int64_t t = 0; t < plan.layout.tensor; ++t) sync_directory(rank_dir(t));
}

PipelineNumbers numbers_of(const Plan& plan) {
  return {.layers = plan.model.config.model.layers,
          .turns = plan.layout.kind == MegatronKind::kBigScience};
}

// A pipeline's layer, as its own file names its tensors.
std::pair<int64_t, std::string> place_of(const Plan& plan, const Written& w) {
  PipelineNumbers numbers = numbers_of(plan);
  const std::string& ours = w.from->info.name;
  std::string last = ours.substr(ours.find_last_of('.') + 1);
  if (ours.starts_with("embed_in.")) return {1, "word_embeddings." + last};
  if (ours.starts_with("embed_layernorm.")) return {1, "word_embeddings.norm." + last};
  if (ours.starts_with("embed_positions.")) return {1, "position_embeddings." + last};
  if (ours.starts_with("final_layer_norm.")) return {numbers.norm(), last};
  if (ours.starts_with("embed_out.")) return {numbers.head(), "lm_head." + last};
  std::string name = w.name.substr(kEncoderPrefix.size() + kLayersPrefix.size());
  return {std::stoll(name) + numbers.first(), name.substr(name.find('.') + 1)};
}

void write_layers(const Plan& plan, const fs::path& dir) {
  int64_t ranks = plan.layout.tensor;
  for (int64_t layer = 1; layer <= numbers_of(plan).head(); ++layer)
    write_layer(dir, layer, ranks, [&](int64_t rank, const ReadTensor& read) {
      Entries entries;
      for (const Written& w : plan.all)
        if (auto [at, name] = place_of(plan, w); at == layer)
          entries.emplace_back(name, item_of(w, rank, ranks, read));
      return entries;
    });
}

void write_deepspeed(const ModelFiles& model, const Target& target, bool thirds) {
  MegatronKind kind = deepspeed_kind(model.config.model);
  check_usage(
      kind == MegatronKind::kDeepSpeed || (!thirds && target.pipeline_parallel > 0),
      "ALiBi and a norm of embeddings are of BigScience's fork of Megatron-DeepSpeed, which "
      "has pipelines alone, and no rows in thirds; give --to megatron-deepspeed and "
      "--pipeline-parallel 1 or more");
  Plan plan = plan_of(model, {.kind = kind,
                              .thirds = thirds,
                              .tensor = target.tensor_parallel,
                              .pipeline = target.pipeline_parallel});
  std::string step = numbered("global_step%d", model.iteration);
  fs::path dir = target.dir / step;
  make_directories(dir);
  bool pipeline = plan.layout.pipeline > 0;
  if (pipeline) write_layers(plan, dir);
  int64_t ranks = plan.layout.tensor, stages = std::max<int64_t>(plan.layout.pipeline, 1);
  for (int64_t stage = 0; stage < stages; ++stage)
    write_ranks(
        ranks, [&](int64_t rank) { return dir / numbered(kStateName, stage * ranks + rank); },
        [&](int64_t rank, const ReadTensor& read) {
          Item module = pipeline ? Item() : model_of(plan, rank, {}, read);
          Entries entries =
              deepspeed_state(std::move(module), plan.model.iteration, ranks * stages);
          for (auto& entry : header_of(plan)) entries.push_back(std::move(entry));
          return Item::dict(std::move(entries));
        });
  if (!model.companions.empty()) copy_companions(model, target.dir / kTokenizerDir);
  sync_directory(dir);
  write_file_atomically(target.dir / "latest_checkpointed_iteration.txt", concat(model.iteration));
  write_file_atomically(target.dir / "latest", step);
}

}  // namespace

void write_megatron(const ModelFiles& model, const Target& target) {
  int64_t stages = std::max<int64_t>(target.pipeline_parallel, 1);
  Plan plan = plan_of(
      model,
      {.kind = MegatronKind::kMegatron, .tensor = target.tensor_parallel, .pipeline = stages});
  bool released = model.iteration == 0;
  fs::path dir = target.dir / (released ? "release" : numbered("iter_%07d", model.iteration));
  for (int64_t p = 0; p < stages; ++p) write_stage(plan, {p, stages}, dir);
  if (!model.companions.empty()) copy_companions(model, target.dir / kTokenizerDir);
  sync_directory(dir);
  write_file_atomically(target.dir / "latest_checkpointed_iteration.txt",
                        released ? "release" : concat(model.iteration));
}

void write_megatron_deepspeed(const ModelFiles& model, const Target& target) {
  write_deepspeed(model, target, false);
}
void write_megatron_deepspeed_thirds(const ModelFiles& model, const Target& target) {
  write_deepspeed(model, target, true);
}

}  // namespace neox
