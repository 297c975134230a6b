// Writes checkpoints that GPT-NeoX loads with finetune: true: weights, without an optimizer.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/pow.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/raw_file.h"
#include "convert/deepspeed_state.h"
#include "convert/formats.h"
#include "convert/json.h"
#include "convert/neox_names.h"
#include "convert/neox_yaml.h"
#include "convert/written_parts.h"
#include "model/parameters.h"
#include "tokenizer/tokenizer.h"
#include "torchfile/tensor.h"
#include "torchfile/torch_writer.h"

namespace neox {
namespace {

using torchfile::Item;
using torchfile::new_tensor;
using Entries = Item::Entries;

// A tensor of a layer of the pipeline: a rank's part of a parameter, or a constant.
struct Written {
  int64_t layer = 0;
  std::string name;
  const ModelTensor* from = nullptr;  // null: a constant
  TpForm form = {};
  std::function<at::Tensor(int64_t rank, int64_t ranks)> constant = {};
};

at::Tensor slopes(const ModelConfig& m, int64_t rank, int64_t ranks) {
  int64_t n = m.heads / ranks;
  return alibi_slopes(m.heads).narrow(0, rank * n, n).to(at::kFloat);
}

at::Tensor frequencies(const ModelConfig& m) {
  at::Tensor exponents = at::arange(0, m.hidden, 2, at::kFloat) / static_cast<double>(m.hidden);
  return at::pow(10000.0, exponents).reciprocal();
}

// What GPT-NeoX's modules have besides the parameters: buffers, copies.
void add_others(std::vector<Written>& all, const ModelFiles& model) {
  const ModelConfig& m = model.config.model;
  if (m.position_embedding == PositionEmbedding::kSinusoidal)
    all.push_back({.name = "position_embeddings.inv_freq",
                   .constant = [&m](int64_t, int64_t) { return frequencies(m); }});
  std::vector<Written> copies;
  for (int64_t layer = 2; layer < m.layers + 2; ++layer) {
    if (m.position_embedding == PositionEmbedding::kAlibi)
      all.push_back({.layer = layer,
                     .name = "attention.alibi_embed.slopes",
                     .constant = [&m](int64_t rank, int64_t n) { return slopes(m, rank, n); }});
    for (const Written& w : all) {
      bool relative = w.name == kNeoxRelative && w.layer == 2 && layer > 2;
      if (relative) copies.push_back({layer, w.name, w.from, w.form});
      constexpr std::string_view kNorm = "input_layernorm.";
      if (m.tied_norms && w.layer == layer && w.name.starts_with(kNorm))
        copies.push_back(
            {layer, "post_attention_layernorm." + w.name.substr(kNorm.size()), w.from, w.form});
    }
  }
  all.insert(all.end(), copies.begin(), copies.end());
}

std::vector<Written> all_written(const ModelFiles& model) {
  std::vector<Written> all;
  for (const ModelTensor& t : model.tensors) {
    NeoxPlace place = neox_place(model.config.model, t.info.name);
    all.push_back({place.layer, place.names[0][0], &t, place.form});
  }
  add_others(all, model);
  return all;
}

Item item_of(const Written& w, int64_t rank, int64_t ranks, const ReadTensor& read) {
  if (!w.from) return new_tensor(w.constant(rank, ranks));
  return part_item(*w.from, w.form, rank, ranks, read);
}

void write_layers(const ModelFiles& model, const std::vector<Written>& all, const fs::path& dir,
                  int64_t ranks) {
  for (int64_t layer = 0; layer < neox_layers(model.config.model); ++layer)
    write_layer(dir, layer, ranks, [&](int64_t rank, const ReadTensor& read) {
      Entries entries;
      for (const Written& w : all)
        if (w.layer == layer) entries.emplace_back(w.name, item_of(w, rank, ranks, read));
      return entries;
    });
  const ModelConfig& m = model.config.model;
  if (m.norm_weights != NormWeights::kNone) return;
  for (int64_t rank = 0; rank < ranks; ++rank)  // DeepSpeed reads a file of each module
    torchfile::write_torch_file(dir / numbered(kLayerName, m.layers + 3, rank),
                                Item::ordered_dict({}));
}

Item module_of(const std::vector<Written>& all, int64_t rank, int64_t ranks,
               const ReadTensor& read) {
  Entries entries;
  for (const Written& w : all)
    entries.emplace_back(concat("sequential.", w.layer, ".", w.name),
                         item_of(w, rank, ranks, read));
  return Item::ordered_dict(std::move(entries));
}

// By the names that GPT-NeoX knows: it has none for texts behind <s>.
std::string tokenizer_type(const ModelFiles& model) {
  const auto& found = model.tokenizer;
  std::string type = found ? found->type : model.config.tokenizer.type;
  return Tokenizer::is_sentencepiece(type) ? "SPMTokenizer" : type;
}

Item arguments(const ModelFiles& model, const NeoxLayout& layout, int64_t multiple) {
  const ModelConfig& m = model.config.model;
  return Item::dict({{"num_layers", m.layers},
                     {"hidden_size", m.hidden},
                     {"num_attention_heads", m.heads},
                     {"max_position_embeddings", m.positions},
                     {"make_vocab_size_divisible_by", multiple},
                     {"padded_vocab_size", m.vocab},
                     {"tokenizer_type", tokenizer_type(model)},
                     {"model_parallel_size", layout.tensor}});
}

// What DeepSpeed's engine and GPT-NeoX look for when they load the weights.
Item state_of(const ModelFiles& model, Item module, const NeoxLayout& layout, int64_t multiple) {
  Entries entries = deepspeed_state(std::move(module), model.iteration,
                                    layout.tensor * std::max<int64_t>(layout.pipe, 1));
  entries.push_back({"iteration", model.iteration});
  entries.push_back({"args", arguments(model, layout, multiple)});
  return Item::dict(std::move(entries));
}

// The keys of the tokenizer where it will be.
std::string tokenizer_yaml(const ModelFiles& model, const fs::path& dir) {
  std::string yaml = concat("tokenizer_type: ", tokenizer_type(model), "\n");
  auto add = [&](const char* key, const std::string& name) {
    if (!name.empty()) yaml += concat(key, ": ", quoted(dir / name), "\n");
  };
  if (const auto& found = model.tokenizer)
    add("vocab_file", found->vocab), add("merge_file", found->merges);
  return yaml;
}

}  // namespace

void write_neox(const ModelFiles& model, const Target& target) {
  NeoxLayout layout{target.tensor_parallel, target.pipeline_parallel};
  check_usage(layout.pipe <= model.config.model.layers, "--pipeline-parallel ", layout.pipe,
              " of a model of ", counted(model.config.model.layers, "layer"));
  int64_t multiple = vocab_multiple(model, layout.tensor);
  std::string yaml = neox_yaml(model.config, layout, multiple);
  std::string tag = concat("global_step", model.iteration);
  fs::path dir = target.dir / tag;
  make_directories(dir / "configs");
  std::vector<Written> all = all_written(model);
  for (const Written& w : all)
    if (w.from) part_shape(w.form, w.from->info.shape, layout.tensor);
  check_usage(model.config.model.heads % layout.tensor == 0, "--tensor-parallel ", layout.tensor,
              " does not divide the ", model.config.model.heads, " attention heads");
  if (layout.pipe > 0) write_layers(model, all, dir, layout.tensor);
  for (int64_t stage = 0; stage < std::max<int64_t>(layout.pipe, 1); ++stage)
    write_ranks(
        layout.tensor,
        [&](int64_t rank) { return dir / numbered(kStateName, stage * layout.tensor + rank); },
        [&](int64_t rank, const ReadTensor& read) {
          Item module = layout.pipe > 0 ? Item() : module_of(all, rank, layout.tensor, read);
          return state_of(model, module, layout, multiple);
        });
  if (!model.companions.empty()) copy_companions(model, target.dir / kTokenizerDir);
  yaml += tokenizer_yaml(model, fs::absolute(target.final_dir) / kTokenizerDir);
  write_flushed(dir / "configs" / "model.yml", yaml);
  sync_directory(dir / "configs");
  write_flushed(target.dir / "latest", tag);
  sync_directory(dir);
}

}  // namespace neox
