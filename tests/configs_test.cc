// The configurations of others' training jobs (configs/neox, t9k, megatron, bloom, ascend, aws):
// each loads and dry-runs with its published size, or is refused by name; and their command lines
// are read.
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "base/program.h"
#include "base/text.h"
#include "child.h"
#include "config/estimate.h"
#include "config/flags.h"
#include "config_fixture.h"
#include "train/job.h"

namespace neox {
namespace {

namespace fs = std::filesystem;
using testing::Child;
using Strings = std::vector<std::string>;

const std::string kConfigs = NEOX_SOURCE_DIR "/configs/";

struct File {
  const char* name;
  double size;    // as its source names the model
  int64_t ranks;  // of the job
  double lr;
  int64_t batch, micro;  // on these ranks
  int64_t pipe, tensor, zero;
  int64_t vocab = 50257;
};

void PrintTo(const File& file, std::ostream* out) { *out << file.name; }

// Sizes: Brown et al. 2020, table 2.1; in the last two groups Ascend's --model_size, Pythia's names
// (Biderman et al. 2023, table 1) and those of FORGE's release, whose large model has more layers
// than its file. t9k's Megatron jobs have a tokenizer of 52,000 entries.
constexpr File kFiles[] = {
    {"neox/125M.yml", 125e6, 8, 6e-4, 32, 4, 1, 1, 1},
    {"neox/125M-dmoe.yml", 125e6, 8, 6e-4, 32, 4, 1, 1, 1},
    {"neox/350M.yml", 350e6, 8, 3e-4, 32, 4, 1, 1, 1},
    {"neox/760M.yml", 760e6, 8, 2.5e-4, 32, 4, 1, 1, 1},
    {"neox/1-3B.yml", 1.3e9, 8, 2e-4, 32, 4, 1, 1, 1},
    {"neox/2-7B.yml", 2.7e9, 8, 1.6e-4, 32, 4, 1, 1, 1},
    {"neox/6-7B.yml", 6.7e9, 8, 1.2e-4, 32, 4, 1, 1, 1},
    {"neox/13B.yml", 13e9, 8, 1e-4, 32, 4, 1, 1, 1},
    {"neox/20B.yml", 20e9, 96, 0.97e-4, 1536, 4, 4, 2, 1, 50277},
    {"neox/175B.yml", 175e9, 8, 6e-5, 32, 4, 1, 1, 1},
    {"t9k/125M_autotune.yml", 125e6, 4, 6e-4, 16, 4, 1, 1, 1},
    {"t9k/1-3B.yml", 1.3e9, 1, 2e-4, 4, 4, 1, 1, 1},
    {"t9k/1-3B_checkpoint.yml", 1.3e9, 4, 2e-4, 16, 4, 1, 1, 1},
    {"t9k/1-3B_zero0.yml", 1.3e9, 4, 2e-4, 16, 4, 1, 1, 0},
    {"t9k/1-3B_zero1.yml", 1.3e9, 4, 2e-4, 16, 4, 1, 1, 1},
    {"t9k/1-3B_zero2.yml", 1.3e9, 4, 2e-4, 16, 4, 1, 1, 2},
    {"t9k/1-3B_zero3.yml", 1.3e9, 4, 2e-4, 16, 4, 1, 1, 3},
    {"t9k/6-7B.yml", 6.7e9, 8, 1.2e-4, 32, 4, 1, 1, 1},
    {"t9k/6-7B_zero3.yml", 6.7e9, 8, 1.2e-4, 32, 4, 1, 1, 3},
    {"t9k/6-7B_zero3_offload.yml", 6.7e9, 8, 1.2e-4, 32, 4, 1, 1, 3},
    {"t9k/20B_zero3_offload.yml", 20e9, 8, 0.97e-4, 1024, 4, 1, 1, 3, 50277},
    {"t9k/13B_offload.yml", 13e9, 8, 1e-4, 32, 4, 1, 1, 1},
    {"megatron/gpt-125m.yml", 125e6, 1, 6e-4, 256, 16, 1, 1, 2, 52000},
    {"megatron/gpt-125m-2xdp.yml", 125e6, 2, 6e-4, 256, 16, 1, 1, 2, 52000},
    {"megatron/gpt-125m-4xdp.yml", 125e6, 4, 6e-4, 256, 16, 1, 1, 2, 52000},
    {"megatron/gpt-1-3b-4xdp.yml", 1.3e9, 4, 2e-4, 512, 16, 1, 1, 2, 52000},
    {"megatron/gpt-1-3b-8xdp.yml", 1.3e9, 8, 2e-4, 512, 16, 1, 1, 2, 52000},
    {"megatron/gpt-1-3b-4xdp-4xpp.yml", 1.3e9, 16, 2e-4, 512, 16, 4, 1, 1, 52000},
    {"megatron/gpt-13b-4xdp-4xpp.yml", 13e9, 16, 1e-4, 1024, 16, 4, 1, 1, 52000},
    {"megatron/gpt-13b-4xdp-8xpp.yml", 13e9, 32, 1e-4, 1024, 16, 8, 1, 1, 52000},
    {"megatron/gpt-13b-4xdp-4xpp-4xtp.yml", 13e9, 64, 1e-4, 1024, 16, 4, 4, 1, 52000},
    {"megatron/gpt-175b.yml", 175e9, 128, 6e-5, 1536, 1, 16, 8, 1},
    {"bloom/560M.yml", 559.214592e6, 8, 3e-4, 256, 1, 1, 1, 1, 250680},
    {"bloom/176B.yml", 176.247271e9, 384, 6e-5, 2048, 2, 12, 4, 1, 250680},
    {"ascend/345M.yml", 345e6, 8, 1.5e-4, 16, 4, 2, 1, 0},
    {"ascend/1-3B.yml", 1.3e9, 8, 2e-4, 32, 8, 2, 2, 0},
    {"ascend/2-7B.yml", 2.7e9, 8, 1.6e-4, 32, 8, 2, 2, 0},
    {"ascend/3-7B.yml", 3.7e9, 8, 1.2e-4, 16, 4, 2, 2, 0},
    {"ascend/345M_without_mp.yml", 345e6, 8, 1.5e-4, 64, 8, 1, 1, 0},
    {"aws/pythia-14M.yml", 14e6, 16, 1e-3, 512, 32, 1, 1, 0, 50277},
    {"aws/pythia-31M.yml", 31e6, 16, 1e-3, 512, 32, 1, 1, 0, 50277},
    {"aws/pythia-70M.yml", 70e6, 16, 1e-3, 512, 32, 1, 1, 1, 50277},
    {"aws/pythia-160M.yml", 160e6, 16, 6e-4, 512, 32, 1, 1, 1, 50277},
    {"aws/pythia-410M.yml", 410e6, 16, 3e-4, 512, 32, 1, 1, 1, 50277},
    {"aws/pythia-1B.yml", 1e9, 16, 2.5e-4, 256, 4, 1, 1, 0, 50277},
    {"aws/pythia-1-4B.yml", 1.4e9, 8, 2e-4, 32, 4, 1, 2, 1, 50277},
    {"aws/pythia-2-8B.yml", 2.8e9, 16, 1.6e-4, 256, 8, 1, 1, 1, 50277},
    {"aws/pythia-6-9B.yml", 6.9e9, 16, 1.2e-4, 128, 8, 1, 2, 1, 50277},
    {"aws/pythia-12B.yml", 12e9, 16, 1.2e-4, 64, 8, 1, 4, 1, 50277},
    {"aws/gpt2-350M.yml", 350e6, 16, 3e-4, 64, 4, 1, 1, 1, 50277},
    {"aws/forge-s.yml", 1.44e9, 16, 8e-3, 256, 16, 1, 1, 1, 52000},
    {"aws/forge-m.yml", 13e9, 16, 6e-3, 192, 12, 1, 2, 1, 52000},
    {"aws/forge-l.yml", 22.4e9, 16, 6e-3, 128, 16, 1, 2, 1, 52000},
    {"aws/forge-mat.yml", 1.44e9, 16, 1.2e-2, 256, 16, 1, 1, 1, 52000},
};

struct Refusal {
  const char* name;
  const char* says;
};

// ZeRO++, and the search that would try settings.
constexpr Refusal kRefused[] = {
    {"t9k/6-7B_zero3_plus.yml", "zero_quantized_weights: true is not supported yet"},
    {"t9k/125M_autotune.json", "is not supported yet (automatic tuning; neox-submit layouts"},
};

Config load(const std::string& name, const Strings& overrides = {}) {
  return load_config({.files = {kConfigs + name}, .directory = {}, .overrides = overrides});
}

// Narayanan et al. 2021 (arXiv 2104.04473), equation 2, and the last norm; a head of its own and no
// table of positions with rotary ones.
int64_t formula(const ModelConfig& m) {
  bool learned = m.position_embedding == PositionEmbedding::kLearned;
  int64_t rows = m.vocab * (m.tied_embedding ? 1 : 2) + (learned ? m.seq : 0);
  int64_t h = m.hidden, experts = 0;  // these have no biases
  if (m.moe) experts = m.moe->experts * (h + 8 * h * h) - 8 * h * h - 5 * h;
  return m.layers * (12 * h * h + 13 * h + experts) + rows * h + (m.embedding_norm ? 4 : 2) * h;
}

class Files : public ::testing::TestWithParam<File> {};

TEST_P(Files, LoadsAndDryRunsWithItsPublishedSize) {
  const File& file = GetParam();
  Config config = load(file.name);
  int64_t padded = padded_vocab(config, file.vocab);
  config.model.vocab = padded;
  Estimate e = estimate(config, padded, file.ranks);
  EXPECT_EQ(e.parameters, formula(config.model));
  // GPT-3's and GPT-2's sizes are those of models with one table of tokens and one of positions.
  std::string name = file.name;
  bool whole = name.starts_with("aws/pythia") || name.starts_with("aws/forge") || file.size == 20e9;
  bool has_own_head = !config.model.tied_embedding && !whole;
  int64_t counted =
      has_own_head ? e.used - e.head + config.model.seq * config.model.hidden : e.used;
  EXPECT_NEAR(static_cast<double>(counted) / file.size, 1, 0.031) << counted;
  Config padded_config = load(name, {concat("padded_vocab_size=", padded)});
  EXPECT_TRUE(has(dry_run(padded_config, fewest_ranks(config)), with_commas(e.parameters)));
}

TEST_P(Files, HasTheHyperparametersOfItsSource) {
  const File& file = GetParam();
  Config config = load(file.name);
  EXPECT_EQ(config.optimizer.lr, file.lr);
  EXPECT_EQ(config.schedule.decay, LrDecay::kCosine);
  EXPECT_EQ(config.layout.pipe, file.pipe);
  EXPECT_EQ(config.layout.tensor, file.tensor);
  EXPECT_EQ(config.layout.zero_stage, file.zero);
  BatchPlan plan = plan_batch(config, file.ranks / (file.pipe * file.tensor));
  EXPECT_EQ(plan.global, file.batch);
  EXPECT_EQ(plan.micro, file.micro);
  EXPECT_TRUE(config.notes.empty()) << config.notes[0];
}

INSTANTIATE_TEST_SUITE_P(Configs, Files, ::testing::ValuesIn(kFiles), [](const auto& info) {
  std::string name = info.param.name;
  name.resize(name.size() - 4);
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

TEST(Configs, WhatIsNotSupportedIsRefusedByName) {
  for (const Refusal& refusal : kRefused) {
    SCOPED_TRACE(refusal.name);
    try {
      load(refusal.name);
      ADD_FAILURE() << "it loads: move it to kFiles";
    } catch (const Error& e) {
      EXPECT_EQ(e.exit(), Exit::kUsage);
      EXPECT_TRUE(has(e.what(), kConfigs + refusal.name + ":"));
      EXPECT_TRUE(has(e.what(), refusal.says));
    }
  }
}

TEST(Configs, EachIsTestedAndInTheTable) {
  std::set<std::string> tested = {"aws/frontier.yml"};  // paths alone
  for (const File& file : kFiles) tested.insert(file.name);
  for (const Refusal& refusal : kRefused) tested.insert(refusal.name);
  std::ifstream stream(kConfigs + "README.md");
  std::string table(std::istreambuf_iterator<char>(stream), {});
  for (const char* group : {"neox", "t9k", "megatron", "bloom", "ascend", "aws"})
    for (const auto& entry : fs::directory_iterator(kConfigs + group)) {
      std::string name = concat(group, "/", entry.path().filename().string());
      EXPECT_TRUE(tested.contains(name)) << name;
      EXPECT_TRUE(has(table, "`" + entry.path().stem().string() + "`")) << name;
    }
}

TEST(Configs, PublishedModelsHaveTheirExactSizes) {
  auto size = [](const std::string& name, int64_t vocab) {
    ModelConfig model = load(name).model;
    model.vocab = vocab;
    return num_parameters(model);
  };
  EXPECT_EQ(size("neox/20B.yml", 50432), 20554567680);   // Black et al. 2022
  EXPECT_EQ(size("ascend/345M.yml", 50257), 354823168);  // gpt2-medium of Hugging Face
  EXPECT_EQ(size("bloom/560M.yml", 250880), 559214592);
  EXPECT_EQ(size("bloom/176B.yml", 250880), 176247271424);
  EXPECT_EQ(size("aws/pythia-14M.yml", 50304), 14067712);
  EXPECT_EQ(size("aws/pythia-410M.yml", 50304), 405334016);
  EXPECT_EQ(size("aws/pythia-6-9B.yml", 50432), 6857302016);
  EXPECT_EQ(size("aws/pythia-12B.yml", 50688), 11846072320);
}

TEST(Configs, ForgeFindsItsPathsInFrontier) {
  Config config = load_config(
      {.files = {"forge-m", "frontier"}, .directory = kConfigs + "aws", .overrides = {}});
  EXPECT_EQ(config.data.data_path, "/fsx/data/olcf/all_text_document");
  EXPECT_EQ(config.checkpoint.save, "/fsx/models/olcf");
}

class ConfigsTest : public ConfigTest {};

// Every key of t9k's, Ascend's and AWS's files that these here leave out, in their spellings.
TEST_F(ConfigsTest, KeysOfTheSourcesAreHonoured) {
  auto config = load_files({write("a.yml", complete(R"("model-parallel-size": 1
"gas": 2
train_batch_size: null
train_micro_batch_size_per_gpu: 4
output_layer_parallelism: column
scaled_upper_triang_masked_softmax_fusion: true
rope_fusion: false
layernorm_fusion: false
tensorboard: {"enabled": true, "output_path": "/t9k/mnt/tensorboard", "job_name": "1-3B.ds",}
zero_optimization: {stage: 1, allgather_partitions: True, allgather_bucket_size: 1260000000,
  overlap_comm: True, reduce_scatter: True, reduce_bucket_size: 500000000,
  contiguous_gradients: True, elastic_checkpoint: true, cpu_offload: False}
data-impl: mmap
num_workers: 0
partition-activations: true
synchronize-each-layer: true
fp16: {type: bfloat16, enabled: true, auto_cast: true, loss_scale: 0}
fp32_allreduce: true
prescale_gradients: true
distributed-backend: nccl
steps_per_print: 10
wall_clock_breakdown: true
log_grad_norm: true
world_size: 16
no_ssh_check: true
checkpoint_validation_with_forward_pass: False
use_wandb: False
hostfile: /mock_path)"))});
  EXPECT_EQ(plan_batch(config, 2).global, 16);
  EXPECT_EQ(config.train.tensorboard_dir, "/t9k/mnt/tensorboard/1-3B.ds");
  EXPECT_EQ(config.where("tensorboard_dir"), "derived from tensorboard");
  EXPECT_EQ(config.precision.type, Precision::kBf16);
}

TEST_F(ConfigsTest, GasMustAgree) {
  EXPECT_TRUE(has(fails("gas: 2\ngradient_accumulation_steps: 3"),
                  "a.yml:1: gas is 2, but gradient_accumulation_steps is 3 (a.yml:2)"));
}

TEST_F(ConfigsTest, TensorboardNeedsAPath) {
  EXPECT_TRUE(has(fails("tensorboard: {enabled: true}"), "output_path is not given"));
  EXPECT_EQ(load("tensorboard: {enabled: false}").train.tensorboard_dir, "");
}

// t9k's gpt-125m-ds-config.json with other values.
constexpr const char* kDeepspeed = R"({
  "train_batch_size": 64,
  "train_micro_batch_size_per_gpu": 2,
  "steps_per_print": 10,
  "zero_optimization": {"stage": 1, "elastic_checkpoint": true},
  "gradient_clipping": 0.5,
  "prescale_gradients": false,
  "memory_breakdown": true,
  "fp16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 500, "hysteresis": 2,
           "min_loss_scale": 1, "initial_scale_power": 11},
  "wall_clock_breakdown": false
})";

TEST_F(ConfigsTest, DeepspeedsFileWins) {
  ConfigOptions options{.files = {kConfigs + "megatron/gpt-125m.yml"},
                        .deepspeed_config = write("ds.json", kDeepspeed)};
  Config config = load_config(options);
  EXPECT_EQ(plan_batch(config, 4).accumulation, 8);
  EXPECT_EQ(config.layout.zero_stage, 1);
  EXPECT_EQ(config.optimizer.gradient_clipping, 0.5);
  EXPECT_TRUE(has(config.where("train_batch_size"), "ds.json:2"));
  options.overrides = {"train_batch_size=32"};
  EXPECT_EQ(plan_batch(load_config(options), 4).global, 32);
}

TEST_F(ConfigsTest, DeepspeedsSearchIsRefusedByName) {
  try {
    load_config({.files = {kConfigs + "t9k/125M_autotune.yml"},
                 .deepspeed_config = kConfigs + "t9k/125M_autotune.json"});
    FAIL();
  } catch (const Error& e) { EXPECT_TRUE(has(e.what(), "125M_autotune.json:2: autotuning")); }
  try {
    load_config({.files = {kConfigs + "t9k/1-3B.yml"}, .deepspeed_config = "ds_none.json"});
    FAIL();
  } catch (const Error& e) {
    EXPECT_TRUE(has(e.what(), "--deepspeed-config ds_none.json: no such file"));
  }
}

// What Program makes of a command line: its --set values and files, with spaces between.
std::string read(const Strings& arguments) {
  Program program({.name = "p"});
  namespace po = boost::program_options;
  program.options().add_options()("config", po::value<Strings>())("set", po::value<Strings>())(
      "dry-run", "");
  program.positional("config", -1);
  program.others({.option = "set", .take = take_key_flag, .suggest = suggest_key_flag});
  try {
    program.parse(arguments);
  } catch (const Error& e) { return e.what(); }
  Strings all;
  for (const char* option : {"set", "config"})
    for (const std::string& value : program.list(option)) all.push_back(value);
  if (program.has("dry-run")) all.push_back("dry");
  return join(all, " ");
}

TEST(KeyFlags, AreSettings) {
  EXPECT_EQ(read({"--num-layers", "12", "a.yml"}), "num_layers=12 a.yml");
  EXPECT_EQ(read({"--save-interval", "9", "a.yml"}), "checkpoint_factor=9 a.yml");
  EXPECT_EQ(read({"a.yml", "--num_layers=12", "--split", "949,50,1", "b.yml"}),
            "num_layers=12 split=949,50,1 a.yml b.yml");
  EXPECT_EQ(read({"--optimizer.params.lr", "1e-4"}), "optimizer.params.lr=1e-4");
  EXPECT_EQ(read({"--zero-optimization.mics-shard-size", "-1", "--set", "seed=1"}),
            "zero_optimization.mics_shard_size=-1 seed=1");
}

TEST(KeyFlags, TruthValuesMayBeLeftOut) {
  EXPECT_EQ(read({"--checkpoint-activations", "a.yml"}), "checkpoint_activations=true a.yml");
  EXPECT_EQ(read({"--checkpoint-activations", "false", "a.yml"}),
            "checkpoint_activations=false a.yml");
  EXPECT_EQ(read({"--fp16", "--deepspeed"}), "fp16.enabled=true deepspeed=true");
  EXPECT_EQ(read({"--deepspeed", "--dry_run"}), "deepspeed=true dry");
  EXPECT_EQ(read({"--no-bias-gelu-fusion", "a.yml"}), "bias_gelu_fusion=false a.yml");
  EXPECT_EQ(read({"--no-weight-tying"}), "no_weight_tying=true");
  EXPECT_EQ(read({"--gpt-j-residual", "no", "a"}), "gpt_j_residual=no a");
  EXPECT_TRUE(has(read({"-H", "hosts", "a.yml"}), "-H; leave it out: Slurm or mpirun know"));
  EXPECT_TRUE(has(read({"-i", "in.txt", "a.yml"}), "-i; prompts are answered by neox-generate"));
}

TEST(KeyFlags, AllUnknownOnesAreNamedAtOnce) {
  EXPECT_EQ(read({"--micro-batch-size", "4", "--seed", "3", "--use-mpi", "--no-such", "1", "a"}),
            "3 options are unknown:\n"
            "  --micro-batch-size; here it is train_micro_batch_size_per_gpu.\n"
            "  --use-mpi; remove it: how ranks find each other is read from the environment.\n"
            "  --no-such; docs/config.md lists all keys.\n"
            "See p --help.");
}

TEST(KeyFlags, UnknownOnesNameTheNearest) {
  EXPECT_TRUE(has(read({"--num-layer", "12"}), "--num-layer; did you mean --num-layers?"));
  EXPECT_TRUE(has(read({"--micro-batch-size", "4"}), "here it is train_micro_batch_size_per_gpu"));
  EXPECT_TRUE(has(read({"--conf_dir", "configs"}), "here it is -d or --directory"));
  EXPECT_TRUE(has(read({"--tp=2"}), "here it is model_parallel_size"));
  EXPECT_TRUE(has(read({"--dry-runn"}), "did you mean --dry-run?"));
  EXPECT_TRUE(has(read({"--seed"}), "--seed: the value is missing, an integer"));
  EXPECT_TRUE(has(read({"--seed", "--fp16"}), "--seed: the value is missing"));
}

std::string train(Strings arguments, int code) {
  arguments.insert(arguments.begin(), NEOX_BUILD_DIR "/bin/neox-train");
  auto ended = Child(arguments).end();
  EXPECT_EQ(ended.code, code) << ended.err;
  return ended.out + ended.err;
}

TEST_F(ConfigsTest, CommandLinesOfDeepspeedJobsAreRead) {
  std::string json = write("ds.json", kDeepspeed);
  std::string text = train({kConfigs + "t9k/1-3B_checkpoint.yml", "--local_rank=0", "--deepspeed",
                            "--deepspeed_config", json, "--vocab_file", "v.json", "--merge_file",
                            "m.txt", "--data_path", "enwik8/enwik8_text_document",
                            "--checkpoint_dir", "/c: k", "--seq-length=1024", "--explain"},
                           0);
  for (const char* line : {"vocab_file", "v.json", "m.txt", "enwik8/enwik8_text_document", "save",
                           "load", "\"/c: k\"", "seq_length", "1024", "ds.json:2"})
    EXPECT_TRUE(has(text, line));
}

TEST_F(ConfigsTest, DryRunTakesTheFewestRanks) {
  std::string file = kConfigs + "megatron/gpt-13b-4xdp-4xpp-4xtp.yml";
  EXPECT_TRUE(has(train({file, "--dry-run"}, 0), "Work on 16 ranks"));
  EXPECT_TRUE(has(train({file, "--dry-run", "--spawn", "64"}, 0), "4 data-parallel ranks x 16"));
  EXPECT_TRUE(has(train({file, "--dry-run", "--spawn", "3"}, 64), "take a multiple of 16"));
}

TEST_F(ConfigsTest, DryRunSaysWhatIsNotThere) {
  std::string file = kConfigs + "megatron/gpt-13b-4xdp-4xpp-4xtp.yml";
  std::string text = train({file, "--dry-run", "--vocab-file", "no/v.json", "--merge-file", "m",
                            "--data-path", "no/data"},
                           0);
  for (const char* file : {"no/v.json", "m", "no/data.idx", "no/data.bin"})
    EXPECT_TRUE(has(text, "\n" + std::string(file) + " is not there")) << text;
}

}  // namespace
}  // namespace neox
