// The configuration of a run: NeoX's YAML dialect read into immutable, validated structs, one for
// each part of the program. Only this module knows NeoX's keys; docs/config.md lists them all.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/model_config.h"

namespace neox {

enum class Precision { kFp32, kFp16, kBf16, kFp64 };
const char* precision_name(Precision precision);  // as in a configuration
struct LayoutConfig {
  int64_t pipe = 1, tensor = 1;  // pipe_parallel_size (0 means 1), model_parallel_size
  bool splits_tokens = false;    // sequence_parallel, where tensor > 1
  int64_t zero_stage = 0;        // 0, 1, 2, 3
  int64_t shard = 0;  // mics_shard_size: ranks that share one copy of the state; 0: all data ranks
  std::string partition_method;  // pipe_partition_method
};

// Batches that are small at first, as by Megatron's option of that name: the first ones have
// `start` samples, and they grow by `increment` each time until the run has consumed `samples`.
struct BatchRampUp {
  int64_t start = 0, increment = 0, samples = 0;
};

struct BatchConfig {
  std::optional<int64_t> global, micro, accumulation;  // as given; plan_batch() completes them
  std::optional<BatchRampUp> ramp_up;                  // rampup_batch_size; none: all are `global`
};

struct TokenizerConfig {
  std::string type;  // as of Tokenizer::of_type()
  std::filesystem::path vocab_file, merge_file;
  int64_t pad_to_multiple = 128;  // make_vocab_size_divisible_by, times tensor parallel size
  std::optional<int64_t> padded_vocab_size;
};

// Whose order the samples come in, bit for bit: GPT-NeoX's, Megatron's until 2023 (and
// Megatron-DeepSpeed's), Megatron-Core's.
enum class DataOrder { kNeox, kMegatron, kMegatronCore };
enum class Packing { kPacked, kUntilOverflow, kUnpacked };

struct DataSets {
  std::vector<std::string> paths;   // prefixes of .bin/.idx
  std::vector<double> weights;      // one for each of the paths, or empty: each counts alike
                                    // (Megatron-Core: by its size)
  std::vector<std::string> labels;  // prefixes of labels, one for each of the paths, or empty
  // Of pairs: the rejected answers, document by document, where `paths` has the chosen ones.
  std::vector<std::string> rejected, rejected_labels;
  std::vector<std::string> rewards;  // prefixes of them, one for each of the paths, or empty
};

struct DataConfig {
  std::string data_path;  // prefix of .bin/.idx, split by `split`; or:
  DataSets train, valid, test;
  // Of data_path where it is Megatron's list of weights and prefixes; else empty.
  DataSets blend;
  bool pairs = false;                // samples are pairs of answers: DataSets::rejected
  bool weight_by_documents = false;  // instead of the weights
  double sampling_alpha = 1;         // weighted_sampler_alpha
  DataOrder order = DataOrder::kNeox;
  Packing packing = Packing::kPacked;
  bool allow_chopped = true;        // not packed: documents that a sample does not hold are cut
  std::filesystem::path cache_dir;  // data_cache_path; empty: beside the data, or in `fallback`
  std::filesystem::path cache_fallback;  // where the data's directory cannot be written to
  std::string split = "969, 30, 1";
  int64_t seed = 1234;
  bool eod_mask_loss = false;
  bool reset_attention_mask = false;  // attention stays within documents
  bool reset_position_ids = false;    // positions start again with each document
};

struct PrecisionConfig {
  Precision type = Precision::kFp32;
  // In what gradients are accumulated, where it is less than fp32; in what they are sent and summed
  // over data ranks, where it is not that in which they are accumulated.
  std::optional<Precision> gradients = {}, gradient_sums = {};
  double static_loss_scale = 0;       // fp16 only; 0: dynamic
  double initial_loss_scale = 65536;  // 2^initial_scale_power
  int64_t loss_scale_window = 1000;   // good steps that double it; without hysteresis one more
  int64_t hysteresis = 2;             // overflows that halve it; 0: each does (without ZeRO)
  double min_loss_scale = 1;
};

enum class OptimizerKind { kAdam, kSgd, kLion, kMuon, kOneBitAdam };
enum class DecayKind { kDecoupled, kCoupled };  // coupled: added to the gradient (Adam alone)
enum class StatePlace { kDevice, kHost };       // of master parameters and optimizer state

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kAdam;
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0.1;
  double gradient_clipping = 1.0;  // 0: none
  DecayKind decay = DecayKind::kDecoupled;
  bool bias_correction = true;         // of Adam's moments
  double momentum = 0, dampening = 0;  // of SGD; Muon has the first
  bool nesterov = false;
  StatePlace place = StatePlace::kDevice;
  int64_t freeze_step = 100000;  // of 1-bit Adam: its last step with whole gradients
  double muon_lr_factor = 1, adam_lr_factor = 1;  // of Muon's two parts
  double width = 1;                               // of muP, as of MupConfig
};

enum class LrDecay { kConstant, kLinear, kCosine, kExponential, kInverseSquareRoot, kWsd };
// kV1: as Pythia was trained (NeoX 1.0); kV2: NeoX main since May 2026; kMegatron: Megatron-Core,
// and all inverse square roots and WSD.
enum class LrFormula { kV1, kV2, kMegatron };
// The last part of WSD (warm-up, stable, decay).
enum class WsdDecay { kExponential, kLinear, kCosine, kMinusSqrt };
// Where the run that is resumed had another schedule.
enum class ScheduleOnResume { kMustAgree, kOfConfig, kOfCheckpoint };

struct ScheduleConfig {
  LrDecay decay = LrDecay::kLinear;
  LrFormula formula = LrFormula::kV2;
  double lr = 1e-3, min_lr = 0;
  // In steps of the full batch: whole ones, unless lr_decay_samples are given.
  double decay_iters = 0;
  double warmup_iters = 0;  // warmup x lr_decay_iters, not rounded
  WsdDecay wsd_decay = WsdDecay::kExponential;
  int64_t wsd_decay_iters = 0;  // the last of decay_iters
  ScheduleOnResume on_resume = ScheduleOnResume::kMustAgree;
};

enum class CheckpointScale { kLinear, kLog };
enum class Resume {
  kWhole,
  kNoOptimizer,  // no_load_optim: parameters and progress; moments, schedule and loss scale anew
  kWeights,      // finetune: parameters alone, from iteration 0
};

struct CheckpointConfig {
  std::filesystem::path save, load;  // empty: none
  std::optional<int64_t> iteration;  // load this step, not the newest
  Resume resume = Resume::kWhole;    // what of `load` counts, until `save` has a checkpoint
  double factor = 0;                 // checkpoint_factor; 0: none
  CheckpointScale scale = CheckpointScale::kLinear;
  std::vector<int64_t> extra_save_iters;
  int64_t keep_last = 0;   // 0: keep all
  bool async_save = true;  // training goes on while a copy of its state is written
  std::string s3_path;     // s3://bucket/prefix below which checkpoints are copied; empty: nowhere
  // Is the state after `iteration` steps saved? Not asked for step 0, which is saved only where it
  // is in extra_save_iters and the run starts fresh.
  bool saves_at(int64_t iteration) const;
};

// Answers are learnt as a whole, compared with the model that training began as, the reference.
struct PreferenceConfig {
  // kDpo: direct preference optimization (Rafailov et al., arXiv 2305.18290): of two answers the
  // model comes to prefer one, more than the reference does. kKto: Kahneman-Tversky optimization
  // (Ethayarajh et al., arXiv 2402.01306): each answer has a reward, above 0 where it is desirable.
  // kScores: a reward model (Ouyang et al., arXiv 2203.02155, equation 1): of two answers the model
  // comes to give one the higher number; without a reference.
  enum class Kind { kDpo, kKto, kScores } kind = Kind::kDpo;
  double beta = 0.1;                                    // of a difference of log-probabilities
  bool reference_free = false;                          // kDpo: the reference prefers neither
  double desirable_weight = 1, undesirable_weight = 1;  // kKto: of answers
  double z_loss = 0;                                    // kScores: of the squares of both numbers

  bool has_reference() const { return kind != Kind::kScores; }
};

// Sequences that are short at first, which steadies large batches and learning rates and makes
// first steps fast (Li et al., arXiv 2108.06084): DeepSpeed's curriculum by sequence length. A step
// takes the beginning of each of its samples.
struct CurriculumConfig {
  int64_t shortest = 0, longest = 0;  // tokens
  // The share of the way to the longest is (step / steps)^(1 / root); lengths are multiples.
  int64_t steps = 0, multiple = 1;
  double root = 1;
  // Instead, where there are any: lengths[i] up to step last_steps[i], the last one for good.
  std::vector<int64_t> lengths, last_steps;

  int64_t length_at(int64_t step) const;  // of step `step`, the first of which is 1
};

// Steps start + 1 to stop are profiled on these ranks; none where stop is 0.
struct ProfileConfig {
  int64_t start = 0, stop = 0;
  std::vector<int64_t> ranks;
};

// What is measured of single tensors, and of gradients from step to step, for metrics.
struct DiagnosticsConfig {
  // Of each parameter, at each log_interval.
  bool gradient_norms = false, gradient_zeros = false, parameter_norms = false,
       optimizer_norms = false;
  int64_t noise_steps = 0;     // of one estimate of the gradient noise scale; 0: none
  bool noise_on_host = false;  // the sum of their gradients lies there

  bool of_tensors() const {
    return gradient_norms || gradient_zeros || parameter_norms || optimizer_norms;
  }
};

// A run for Weights & Biases, kept in files for `wandb sync`.
struct WandbConfig {
  std::string project, team, group, run_name;  // empty: wandb's defaults
};

struct TrainConfig {
  int64_t iters = 0;    // 0: those of the epochs, which nobody has counted
  int64_t epochs = 0;   // train_epochs, GPT-NeoX's passes over the data; 0: none were given
  int64_t samples = 0;  // train_samples, of which `iters` are the whole steps; 0: none were given
  int64_t eval_interval = 1000, eval_iters = 100;
  int64_t log_interval = 100;
  int64_t exit_interval = 0;  // 0: none
  double exit_duration = 0;   // seconds; 0: none
  int64_t seed = 1234;
  bool recompute = false;                          // checkpoint_activations
  int64_t recompute_layers = 1;                    // checkpoint_num_layers
  std::filesystem::path log_dir, tensorboard_dir;  // empty: none
  std::optional<WandbConfig> wandb;
  bool by_character = false;  // char_level_ppl: perplexity of evaluations
  std::vector<std::string> sample_prompts;
  int64_t sample_tokens = 64;  // maximum_tokens
  ProfileConfig profile;
  bool memory_profiling = false;  // memory by part in the log
  DiagnosticsConfig diagnostics;
  double peak_flops = 0;  // FLOP/s of a rank's device, of which a share is logged; 0: none is
  // On a GPU the step is recorded once and started as a whole; not given: where one rank trains.
  std::optional<bool> cuda_graph;
  std::optional<PreferenceConfig> preference;  // none: tokens are learnt
  std::optional<CurriculumConfig> curriculum;  // none: sequences have seq_length tokens
};

struct GenerateConfig {
  int64_t max_tokens = 64, top_k = 0;
  double temperature = 0, top_p = 0;
  std::string prompt_end = "\n";  // of each in a file
};

enum class Effect {
  kUsed,
  kDerived,  // computed from other keys
  kInput,    // read only to derive another key: fp16.enabled, of which precision comes
  kNone,     // given, and without effect here
};

// One effective top-level or nested key, for --explain and for messages.
struct Setting {
  std::string key;     // "optimizer.params.lr"
  std::string value;   // as canonical YAML
  std::string source;  // "70M.yml:12", "--set", "default", "derived from train_iters"
  Effect effect = Effect::kUsed;
};

struct Config {
  ModelConfig model;
  LayoutConfig layout;
  BatchConfig batch;
  TokenizerConfig tokenizer;
  DataConfig data;
  PrecisionConfig precision;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  CheckpointConfig checkpoint;
  TrainConfig train;
  GenerateConfig generate;
  std::vector<Setting> settings;  // sorted by key
  std::vector<std::string>
      notes;  // said once by rank 0: keys without effect here, and what was read differently

  // "70M.yml:12" of a key, or "default"; for messages about values that fail later.
  std::string where(const std::string& key) const;
  // The effective value of a key as YAML; "null" where it has none.
  std::string value(const std::string& key) const;
  // The effective config as YAML text: the same text for the same run, whatever files it came from.
  std::string text() const;
  // Of text() what makes the model and its tokenizer, without defaults.
  std::string model_text() const;
};

// The keys that make the model and have not the same value in both, a line each:
// "\n  hidden_size: 512, not 768".
std::string model_difference(const Config& a, const Config& b);
// The keys that have not the same value in both, but for what is derived from others in `now`:
// "train_iters 1000 (before: 500), optimizer.type OneBitAdam (before: Adam)".
std::string changed_keys(const Config& before, const Config& now);

// All datasets that it names, of labels too.
struct NamedDataset {
  std::string key, prefix;  // of .bin and .idx
};
std::vector<NamedDataset> datasets_of(const DataConfig& data);

// A configuration that is not a file: the one that a checkpoint keeps.
struct ConfigText {
  std::string name, yaml;  // name: for messages
};

struct ConfigOptions {
  std::vector<ConfigText> texts;       // merged before the files
  std::vector<std::string> files;      // "70M", "70M.yml", "local.json": merged left to right
  std::filesystem::path directory;     // -d
  std::string deepspeed_config;        // a file of DeepSpeed's, which wins over those of the run
  std::vector<std::string> overrides;  // "key=value", "optimizer.params.lr=1e-4"
  // "key=value" of a top-level key that neither files nor overrides mention, not even as null. Keys
  // that belong together (save and load; data_path and train_data_paths ...) count as one.
  std::vector<std::string> defaults;
  // Samples that one of train_epochs has, of the configuration as far as it is read (model, batch,
  // data). Without it train_epochs is not counted.
  std::function<int64_t(const Config&)> samples_of_epoch;
};

// Reads, merges, validates. Throws Error (64) with file:line, what was found, what is allowed, the
// nearest key.
Config load_config(const ConfigOptions& options);

// A key of the learning rate's schedule whose effective value is not the same in both; "" where
// the schedules are the same.
std::string schedule_difference(const Config& a, const Config& b);
// The run's length in steps of the full batch, as learning rates count it: train_iters, or not
// rounded train_samples.
double length_of_run(const Config& config);
// Whether the learning rate rises once more before the run ends: NeoX's cosine does behind its end.
// length: as of length_of_run().
bool rises_again(const ScheduleConfig& schedule, double length);
// Puts the schedule of `saved` into `config`.
void take_schedule(Config& config, const Config& saved);

// The batch of a run on `data_ranks` ranks that hold different samples.
struct BatchPlan {
  int64_t global = 0, micro = 0;
  int64_t accumulation =
      0;  // micro-batches of each data rank in a step; the last may be filled up with weight 0
};

// Of a resumed run: the global batch, which wins over the config, and the micro-batch, which one
// that is not given does not exceed, so that fewer ranks need no more memory; 0: not known.
struct FrozenBatch {
  int64_t global = 0, micro = 0;
};
// For a resumed run accumulation is computed anew.
BatchPlan plan_batch(const Config& config, int64_t data_ranks,
                     std::optional<FrozenBatch> frozen = std::nullopt);

// The vocabulary that the embedding has: padded_vocab_size, or `vocab` rounded up to a multiple of
// make_vocab_size_divisible_by x model_parallel_size.
int64_t padded_vocab(const Config& config, int64_t vocab);

// Rows of tokens that a sample has: 2 where samples are pairs.
inline int64_t rows_of_sample(const Config& config) { return config.data.pairs ? 2 : 1; }

// Tokens of one sequence in each of the steps after + 1 to until, together.
int64_t tokens_of_steps(const Config& config, int64_t after, int64_t until);
// The first step is 1.
inline int64_t length_of_step(const Config& config, int64_t step) {
  return tokens_of_steps(config, step - 1, step);
}

// Elements of optimizer state for each parameter: Adam's two moments, SGD's momentum ...
// share_in_layers: of the parameters, those in matrices of layers.
double state_per_parameter(const OptimizerConfig& optimizer, double share_in_layers);

// The table of --explain: every effective key, its value and where it comes from, in the groups
// used, derived, without effect; then the notes.
std::string explain(const Config& config);

// Every key with type, default and fate, as the Markdown tables of docs/config.md.
std::string key_table_markdown();

}  // namespace neox
