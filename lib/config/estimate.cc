#include "config/estimate.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "config/batch_schedule.h"
#include "config/estimate_state.h"

namespace neox {
namespace {

using Block = ParameterParts::Block;

int64_t data_ranks(const Config& config, int64_t world) {
  int64_t cell = config.layout.pipe * config.layout.tensor;
  check_usage(world >= 1 && world % cell == 0, "the world has ", world, " ranks, which ",
              "pipe_parallel_size ", config.layout.pipe, " (", config.where("pipe_parallel_size"),
              ") x model_parallel_size ", config.layout.tensor, " (",
              config.where("model_parallel_size"), ") does not divide; take a multiple of ", cell);
  int64_t ranks = world / cell;
  if (config.layout.shard > 0)
    check_usage(ranks % config.layout.shard == 0, config.where("zero_optimization.mics_shard_size"),
                ": zero_optimization.mics_shard_size ", config.layout.shard,
                " does not divide the ", ranks,
                " data-parallel ranks; take a divisor of them, or -1 for all");
  return ranks;
}

void count_parameters(Estimate& e, const ModelConfig& model) {
  ParameterParts parts = parameter_parts(model);
  e.embedding = parts.embedding;
  e.embedding_norm = parts.embedding_norm;
  e.positions = parts.positions;
  e.head = parts.head;
  e.final_norm = parts.final_norm;
  e.parameters = num_parameters(model);
  e.blocks = of_layers(model, model.layers, &Block::all);
  e.used = e.parameters - e.blocks + of_layers(model, model.layers, &Block::used);
}

// Where scores depend on the distance of tokens, or on documents, they have a mask, which all
// layers share and which is made of distances of 32 bits and two of what is hidden. One that is
// learned is there as bias, as mask and, in fp32, as gradient.
double mask_bytes(const Config& config, int64_t rows, int64_t size) {
  const ModelConfig& model = config.model;
  bool learned = model.position_embedding == PositionEmbedding::kRelative;
  bool by_head = learned || model.position_embedding == PositionEmbedding::kAlibi;
  bool documents = config.data.reset_attention_mask;
  if (!by_head && model.window == 0 && !documents) return 0;
  double each = static_cast<double>(model.seq) * static_cast<double>(model.seq),
         pairs = each * static_cast<double>(size),
         heads = by_head ? static_cast<double>(model.heads / config.layout.tensor) : 1,
         samples = documents ? static_cast<double>(rows) : 1;
  return samples * (heads * pairs + 2 * each) + 4 * each +
         (learned ? heads * (pairs + 4 * each) : 0);
}

// What a token has between the two matrices of an MLP, on average over the layers.
double mlp_width(const ModelConfig& model) {
  auto dense = static_cast<double>(model.mlp_inputs());
  if (!model.moe) return dense;
  int64_t inner = model.moe->top_k * model.expert_inputs();
  auto experts = static_cast<double>(model.expert_layers(model.layers)),
       layers = static_cast<double>(model.layers);
  return (static_cast<double>(inner) * experts + dense * (layers - experts)) / layers;
}

// Korthikanti et al. 2022 (arXiv 2205.05198), section 4, for attention that stores no matrix of
// scores: T B (10 h + (8 h + 4 f) / tp) bytes for each block in 16 bits, of which 2 h are dropout
// masks; f is the width of the MLP, twice that of a gated one. With sequence parallelism tp divides
// all of it, and the block that runs has its input and norms of all tokens.
void count_activations(Estimate& e, const Config& config) {
  const ModelConfig& model = config.model;
  int64_t size = element_bytes(config.precision.type);
  int64_t rows = e.batch.micro * rows_of_sample(config), tokens = rows * model.seq;
  int64_t tp = config.layout.tensor, over = config.layout.splits_tokens ? tp : 1;
  double masks = model.hidden_dropout > 0 ? 2.0 : 0.0;
  double width = mlp_width(model) / static_cast<double>(model.hidden);
  double per_value =
      static_cast<double>(size) / 2 *
          (8 / static_cast<double>(over) + (8 + 4 * width) / static_cast<double>(tp)) +
      masks / static_cast<double>(over);
  int64_t values = tokens * model.hidden, input = values / over;
  double block = static_cast<double>(values) * per_value,
         once =
             mask_bytes(config, rows, size) + static_cast<double>(over > 1 ? 3 * values * size : 0);
  int64_t layers = ceil_div(model.layers, config.layout.pipe);
  int64_t in_flight = std::min(config.layout.pipe, e.batch.accumulation);
  int64_t group = std::min(config.train.recompute_layers, layers);
  e.activation_bytes_kept =
      static_cast<int64_t>(block * static_cast<double>(layers * in_flight) + once);
  e.activation_bytes_recomputed = ceil_div(layers, group) * in_flight * input * size +
                                  static_cast<int64_t>(block * static_cast<double>(group) + once);
  e.activation_bytes =
      config.train.recompute ? e.activation_bytes_recomputed : e.activation_bytes_kept;
  if (!model.scores)
    e.logit_bytes =
        std::min(tokens * (model.vocab / config.layout.tensor), kGpuLogitElements) * size;
}

int64_t count_checkpoints(const Config& config) {
  const CheckpointConfig& checkpoint = config.checkpoint;
  if (checkpoint.save.empty()) return 0;
  int64_t last = config.train.iters, count = 0;
  std::set<int64_t> steps(checkpoint.extra_save_iters.begin(), checkpoint.extra_save_iters.end());
  steps.insert(last);  // a run ends with a checkpoint
  bool linear = checkpoint.scale == CheckpointScale::kLinear;
  auto factor = static_cast<int64_t>(checkpoint.factor);
  if (checkpoint.factor > 0 && linear) {
    count = last / factor;
    std::erase_if(steps, [&](int64_t step) { return step > 0 && step % factor == 0; });
  }
  for (double power = 1; !linear && power < static_cast<double>(last) + 1;
       power *= checkpoint.factor)
    steps.insert(static_cast<int64_t>(power));
  return count + std::count_if(steps.begin(), steps.end(), [&](int64_t s) { return s <= last; });
}

void count_disk(Estimate& e, const Config& config) {
  int64_t keep = config.checkpoint.keep_last;
  int64_t state = std::max<int64_t>(element_bytes(config.precision.type), 4);
  e.checkpoint_bytes =
      static_cast<int64_t>(static_cast<double>(e.parameters) * (1 + state_of_each(e, config))) *
      state;
  e.num_checkpoints = count_checkpoints(config);
  e.num_kept = keep > 0 ? std::min(keep, e.num_checkpoints) : e.num_checkpoints;
  // The oldest goes only after the newest is complete.
  int64_t most = std::min(e.num_kept + (keep > 0), e.num_checkpoints);
  e.disk_bytes = most * e.checkpoint_bytes;
  e.files_per_checkpoint = e.world + 3;  // index.h5, train_state.json, COMPLETE
  e.num_files = most * e.files_per_checkpoint;
  bool async = config.checkpoint.async_save && e.num_checkpoints > 1;  // the last one needs none
  int64_t shard = shards(e, config);
  int64_t writers = config.layout.zero_stage >= 1 ? e.data_ranks / shard : e.data_ranks;
  int64_t owned = e.rank_chunk;
  if (async)
    e.copy_bytes = static_cast<int64_t>(static_cast<double>(ceil_div(owned, writers)) *
                                        (1 + state_of_each(e, config))) *
                   state;
}

std::string line(const std::string& name, const std::string& value, const std::string& words = "") {
  std::string out = "  " + name;
  out.resize(28, ' ');
  out += value;
  if (!words.empty()) out.resize(std::max<size_t>(out.size(), 46), ' ');
  return out + (words.empty() ? "" : "  " + words) + '\n';
}

const char* moments_of(const OptimizerConfig& optimizer) {
  switch (optimizer.kind) {
    case OptimizerKind::kSgd:
      return "SGD's momentum";
    case OptimizerKind::kLion:
      return "Lion's moment";
    case OptimizerKind::kMuon:
      return "Muon's and Adam's moments";
    default:
      return "Adam's moments";
  }
}

std::string activation_words(const Config& config) {
  return concat("  Activations by T B ",
                config.layout.splits_tokens ? "(18 h + 4 f)/tp" : "(10 h + (8 h + 4 f)/tp)",
                " bytes a block in 16 bits (Korthikanti et al. 2022), ",
                mask_bytes(config, 1, 1) > 0 ? "and on a GPU a mask\n  of the scores"
                                             : "without a matrix of\n  scores",
                "; wider types in proportion, masks of dropout only with it.\n");
}

std::string render_memory(const Estimate& e, const Config& config) {
  std::string out = "Memory of the fullest rank\n";
  int64_t stage = config.layout.zero_stage;
  out +=
      line("parameters", human_bytes(static_cast<double>(e.parameter_bytes)),
           human_count(static_cast<double>(e.rank_parameters)) +
               (stage >= 3 ? " used by this rank: of layers its chunk and two whole ones (ZeRO 3)"
                           : " on this rank"));
  if (e.reference_bytes)
    out += line("reference", human_bytes(static_cast<double>(e.reference_bytes)),
                concat("the model that it began as",
                       config.data.pairs ? "; none with dpo_reference_free: true" : ""));
  out += line("gradients", human_bytes(static_cast<double>(e.gradient_bytes)),
              stage >= 2 ? "the owned chunk, and three layers under way (ZeRO 2 and 3)" : "");
  std::string place =
      concat(stage >= 1 ? "the owned chunk" : "",
             config.optimizer.place == StatePlace::kHost ? ", in host memory beside a GPU" : "");
  if (place.starts_with(", ")) place.erase(0, 2);
  if (e.master_bytes)
    out += line("master weights", human_bytes(static_cast<double>(e.master_bytes)), place);
  out +=
      line(moments_of(config.optimizer), human_bytes(static_cast<double>(e.moment_bytes)), place);
  bool recompute = config.train.recompute;
  out += line("activations", human_bytes(static_cast<double>(e.activation_bytes)),
              concat(recompute ? "recomputed by layer; kept they would be "
                               : "kept; with checkpoint_activations: true ",
                     human_bytes(static_cast<double>(recompute ? e.activation_bytes_kept
                                                               : e.activation_bytes_recomputed))));
  out += line("logits", human_bytes(static_cast<double>(e.logit_bytes)),
              "some 8000 tokens at a time, gradients in their place");
  out += line("together", human_bytes(static_cast<double>(e.memory_bytes)),
              "and what libraries and buffers of communication take");
  if (e.copy_bytes)
    out += line("copy while saving", human_bytes(static_cast<double>(e.copy_bytes)),
                "in host memory, beside all that; none with async_save: false");
  return out + activation_words(config);
}

std::string render_disk(const Estimate& e, const Config& config) {
  std::string out = "Disk\n";
  out += line("a checkpoint", human_bytes(static_cast<double>(e.checkpoint_bytes)),
              concat(e.files_per_checkpoint, " files; parameters and optimizer state"));
  if (config.checkpoint.save.empty()) return out + line("checkpoints", "none", "save is not set");
  out += line("checkpoints", with_commas(e.num_checkpoints),
              config.checkpoint.keep_last
                  ? concat("of which ", e.num_kept, " are kept, and one more while it is written")
                  : "all kept");
  out += line("at most", human_bytes(static_cast<double>(e.disk_bytes)),
              with_commas(e.num_files) + " files in " + config.checkpoint.save.string());
  if (!config.checkpoint.s3_path.empty())
    out += line("copies", with_commas(e.num_checkpoints), "in " + config.checkpoint.s3_path);
  if (!e.free_bytes) return out;
  if (e.present_bytes)
    out += line("there already", human_bytes(static_cast<double>(e.present_bytes)),
                "checkpoints that the run goes on from");
  bool fits = e.disk_bytes <= *e.free_bytes + e.present_bytes;
  return out + line("free there", human_bytes(static_cast<double>(*e.free_bytes)),
                    fits ? "" : "NOT ENOUGH: " + room_advice(config, e));
}

}  // namespace

std::string room_advice(const Config& config, const Estimate& e) {
  if (e.checkpoint_bytes > *e.free_bytes)
    return "there is no room for one checkpoint; free some, or let save name another disk";
  return concat("free some, ", config.checkpoint.keep_last ? "" : "set keep_last_n_checkpoints, ",
                "or raise checkpoint_factor");
}

int64_t element_bytes(Precision precision) {
  return precision == Precision::kFp32 ? 4 : precision == Precision::kFp64 ? 8 : 2;
}

int64_t gradient_bytes(const PrecisionConfig& precision) {
  int64_t size = element_bytes(precision.type);
  return precision.gradients ? size : std::max<int64_t>(size, 4);
}

Estimate estimate(const Config& config, int64_t vocab, int64_t world,
                  std::optional<int64_t> free_bytes, std::optional<FrozenBatch> frozen) {
  check_usage(vocab > 0,
              "the size of the vocabulary is not known; give vocab_file or "
              "padded_vocab_size");
  Config known = config;
  known.model.vocab = vocab;
  Estimate e;
  e.free_bytes = free_bytes;
  e.world = world;
  e.data_ranks = data_ranks(config, world);
  e.batch = plan_batch(config, e.data_ranks, frozen);
  count_parameters(e, known.model);
  const ModelConfig& model = known.model;
  e.tokens_per_step = e.batch.global * rows_of_sample(config) * model.seq;
  e.flops_per_token = train_flops_per_token(model);
  count_state(e, known);
  count_activations(e, known);
  e.memory_bytes = e.parameter_bytes + e.reference_bytes + e.gradient_bytes + e.master_bytes +
                   e.moment_bytes + e.activation_bytes + e.logit_bytes;
  count_disk(e, known);
  return e;
}

double train_flops_per_token(const ModelConfig& m) {
  int64_t parameters =
      of_layers(m, m.layers, &ParameterParts::Block::used) + (m.scores ? 1 : m.vocab) * m.hidden;
  return 6 * static_cast<double>(parameters + m.layers * m.head_columns() * m.seq);
}

int64_t fewest_ranks(const Config& config) {
  const BatchConfig& batch = config.batch;
  int64_t data = std::max<int64_t>(config.layout.shard, 1);
  if (batch.global && batch.micro && batch.accumulation)
    data = std::max(data, *batch.global / *batch.micro / *batch.accumulation);
  return config.layout.pipe * config.layout.tensor * data;
}

std::string render(const Estimate& e, const Config& config) {
  std::string out = "Parameters\n";
  out += line("embedding", with_commas(e.embedding));
  if (e.embedding_norm) out += line("its norm", with_commas(e.embedding_norm));
  if (e.positions) out += line("positions", with_commas(e.positions));
  out += line("blocks", with_commas(e.blocks), concat(config.model.layers, " layers"));
  out += line("final norm", with_commas(e.final_norm));
  out += line("head", with_commas(e.head), e.head ? "" : "shares the embedding");
  out += line("together", with_commas(e.parameters),
              with_commas(e.parameters - e.embedding - e.positions - e.head) +
                  " without embeddings and head");
  if (config.model.moe)
    out += line("used by a token", with_commas(e.used),
                concat(config.model.moe->top_k, " of ", config.model.moe->experts, " experts"));
  double flops = e.flops_per_token * static_cast<double>(e.tokens_per_step);
  auto tokens = static_cast<double>(
      tokens_of_run(config, batch_schedule(config, e.batch.global), 0, config.train.iters));
  out += concat("\nWork on ", counted(e.world, "rank"), "\n");
  out += line("a step", with_commas(e.batch.global) + " samples",
              concat(counted(e.data_ranks, "data-parallel rank"), " x ",
                     counted(e.batch.accumulation, "micro-batch"), " of ", e.batch.micro));
  out += line("tokens", with_commas(e.tokens_per_step),
              human_count(tokens) + " in " + with_commas(config.train.iters) + " steps");
  out += line("FLOPs", printed("%.3g", flops),
              concat(printed("%.3g", e.flops_per_token * tokens),
                     " in all; 6 N + 6 L h T a token, N without embedding",
                     config.model.moe ? " and idle experts" : ""));
  return out + '\n' + render_memory(e, config) + '\n' + render_disk(e, config);
}

}  // namespace neox
