// Batch arithmetic, the estimate of --dry-run, and the Pythia files.
#include "config_fixture.h"

#include <cstdlib>

#include "config/batch.h"
#include "config/estimate.h"

namespace neox {
namespace {

std::string batch(const BatchPlan& plan) {
  return concat(plan.global, " = ", plan.micro, " x ", plan.accumulation);
}

TEST_F(ConfigTest, GlobalBatchIsTheInvariant) {
  auto config = load("train_batch_size: 1024\ntrain_micro_batch_size_per_gpu: 8");
  EXPECT_EQ(batch(plan_batch(config, 64)), "1024 = 8 x 2");
  EXPECT_EQ(batch(plan_batch(config, 1)), "1024 = 8 x 128");
  EXPECT_EQ(batch(plan_batch(config, 3)), "1024 = 8 x 43");
  EXPECT_EQ(batch(plan_batch(config, 1024)), "1024 = 8 x 1");
}

TEST_F(ConfigTest, WhatIsNotGivenIsDerived) {
  const std::string null = "train_batch_size: null\n";
  EXPECT_EQ(batch(plan_batch(load("train_batch_size: 64"), 4)), "64 = 16 x 1");
  EXPECT_EQ(batch(plan_batch(load("train_batch_size: 64\ngradient_accumulation_steps: 2"), 4)),
            "64 = 8 x 2");
  EXPECT_EQ(batch(plan_batch(load(null + "train_micro_batch_size_per_gpu: 4"), 3)), "12 = 4 x 1");
  EXPECT_EQ(batch(plan_batch(load(null + "train_micro_batch_size_per_gpu: 4\n"
                                         "gradient_accumulation_steps: 5"),
                             3)),
            "60 = 4 x 5");
  EXPECT_EQ(batch(plan_batch(load("train_batch_size: 64\ntrain_micro_batch_size_per_gpu: 4\n"
                                  "gradient_accumulation_steps: null"),
                             2)),
            "64 = 4 x 8");
}

// Fewer ranks must not need more memory than the run began with.
TEST_F(ConfigTest, ARunThatGoesOnKeepsItsMicroBatch) {
  Config config = load("train_batch_size: 64");
  EXPECT_EQ(batch(plan_batch(config, 2, FrozenBatch{64, 16})), "64 = 16 x 2");
  EXPECT_EQ(batch(plan_batch(config, 8, FrozenBatch{64, 16})), "64 = 8 x 1");
  EXPECT_EQ(batch(plan_batch(config, 2, FrozenBatch{64, 0})), "64 = 32 x 1");
  config = load("train_batch_size: 64\ntrain_micro_batch_size_per_gpu: 32");
  EXPECT_EQ(batch(plan_batch(config, 2, FrozenBatch{64, 16})), "64 = 32 x 1");
}

TEST(BatchPlan, IsSaidInWords) {
  EXPECT_EQ(to_string(BatchPlan{.global = 64, .micro = 4, .accumulation = 8}, 2),
            "batch of 64 samples = 4 x 2 ranks x 8 micro-batches");
  EXPECT_EQ(to_string(BatchPlan{.global = 1, .micro = 1, .accumulation = 1}, 1),
            "batch of 1 sample = 1 x 1 rank x 1 micro-batch");
}

TEST(BatchPlan, SaysWhereRanksAreBadlyUsed) {
  auto said = [](const BatchPlan& plan, int64_t ranks) { return badly_used_ranks(plan, ranks); };
  EXPECT_EQ(said({.global = 64, .micro = 4, .accumulation = 4}, 4), "");
  EXPECT_EQ(said({.global = 1024, .micro = 8, .accumulation = 43}, 3), "");
  EXPECT_TRUE(
      has(said({.global = 5, .micro = 2, .accumulation = 1}, 4),
          "5 samples in micro-batches of 2 leaves 1 of 4 data-parallel ranks without work"));
  EXPECT_TRUE(has(said({.global = 17, .micro = 2, .accumulation = 3}, 4),
                  "17 samples = 2 x 4 ranks x 3 micro-batches computes as long as one of 24"));
}

TEST_F(ConfigTest, AllThreeMustAgreeAtAFirstStart) {
  auto config = load(
      "train_batch_size: 1024\ntrain_micro_batch_size_per_gpu: 32\n"
      "gradient_accumulation_steps: 2");
  EXPECT_EQ(batch(plan_batch(config, 16)), "1024 = 32 x 2");
  try {
    plan_batch(config, 8);
    FAIL();
  } catch (const Error& e) {
    std::string text = e.what();
    EXPECT_EQ(e.exit(), Exit::kUsage);
    EXPECT_TRUE(has(text, "a.yml:1: train_batch_size is 1024, but"));
    EXPECT_TRUE(has(text, "x 8 data-parallel ranks is 512"));
    EXPECT_TRUE(has(text, "\n  train_batch_size: 512"));
    EXPECT_TRUE(has(text, "\n  gradient_accumulation_steps: 4, or remove it"));
    EXPECT_TRUE(has(text, "\n  train_micro_batch_size_per_gpu: 64"));
    EXPECT_TRUE(has(text, "\n  start on 16 data-parallel ranks (16 in all)"));
  }
}

TEST_F(ConfigTest, ResumedRunKeepsItsGlobalBatch) {
  auto config = load(
      "train_batch_size: 1024\ntrain_micro_batch_size_per_gpu: 32\n"
      "gradient_accumulation_steps: 2");
  EXPECT_EQ(batch(plan_batch(config, 8, FrozenBatch{1024})), "1024 = 32 x 4");
  EXPECT_EQ(batch(plan_batch(config, 3, FrozenBatch{1000})), "1000 = 32 x 11");
  auto micro = load("train_batch_size: null\ntrain_micro_batch_size_per_gpu: 4");
  EXPECT_EQ(batch(plan_batch(micro, 2, FrozenBatch{32})), "32 = 4 x 4");
}

TEST_F(ConfigTest, BatchesBeyondReasonAreRefused) {
  auto config = load(
      "train_batch_size: null\ntrain_micro_batch_size_per_gpu: 1000000000\n"
      "gradient_accumulation_steps: 1000000000");
  EXPECT_THROW(plan_batch(config, 4), Error);
}

struct Pythia {
  const char* name;
  int64_t parameters, padded;
  double lr;
  int64_t micro, zero, tensor, gpus;
};

// Published sizes; batch 1024 on that many GPUs with these micro-batches.
constexpr Pythia kPythia[] = {
    {"14M", 14067712, 50304, 1.0e-3, 32, 0, 1, 32},
    {"31M", 30494720, 50304, 1.0e-3, 32, 0, 1, 32},
    {"70M", 70426624, 50304, 1.0e-3, 32, 1, 1, 32},
    {"160M", 162322944, 50304, 6.0e-4, 32, 1, 1, 32},
    {"410M", 405334016, 50304, 3.0e-4, 32, 1, 1, 32},
    {"1B", 1011781632, 50304, 2.5e-4, 4, 0, 1, 64},
    {"1-4B", 1414647808, 50304, 2.0e-4, 16, 1, 1, 64},
    {"2-8B", 2775208960, 50304, 1.6e-4, 8, 1, 1, 64},
    {"6-9B", 6857302016, 50432, 1.2e-4, 8, 1, 2, 128},
    {"12B", 11846072320, 50688, 1.2e-4, 8, 1, 4, 256},
};

TEST_F(ConfigTest, PythiaFilesAreThePublishedModels) {
  for (const Pythia& pythia : kPythia) {
    SCOPED_TRACE(pythia.name);
    auto config = load_config(
        {.files = {pythia.name}, .directory = NEOX_SOURCE_DIR "/configs/pythia", .overrides = {}});
    config.model.vocab = padded_vocab(config, 50277);
    EXPECT_EQ(config.model.vocab, pythia.padded);
    EXPECT_EQ(num_parameters(config.model), pythia.parameters);
    EXPECT_EQ(config.optimizer.lr, pythia.lr);
    EXPECT_NEAR(config.schedule.min_lr, pythia.lr / 10, 1e-12);
    EXPECT_DOUBLE_EQ(config.schedule.warmup_iters, 1430.0);
    EXPECT_EQ(config.layout.zero_stage, pythia.zero);
    EXPECT_EQ(config.layout.tensor, pythia.tensor);
    auto plan = plan_batch(config, pythia.gpus / pythia.tensor);
    EXPECT_EQ(plan.global, 1024);
    EXPECT_EQ(plan.micro, pythia.micro);
    EXPECT_EQ(plan.micro * plan.accumulation * pythia.gpus / pythia.tensor, 1024);
    bool billion = std::string(pythia.name) == "1B";
    EXPECT_EQ(config.precision.type, billion ? Precision::kBf16 : Precision::kFp16);
    bool normal = config.model.init_method == InitMethod::kNormal;
    EXPECT_EQ(normal, pythia.tensor > 1);
    EXPECT_EQ(config.model.activation, Activation::kGeluTanh);
    EXPECT_TRUE(config.notes.empty()) << config.notes[0];
  }
}

TEST_F(ConfigTest, OtherFamiliesHaveTheirPublishedSizes) {
  const std::string llama =
      "num_layers: 32\nhidden_size: 4096\nnum_attention_heads: 32\nnorm: rmsnorm\n"
      "activation: swiglu\nuse_bias_in_attn_linear: false\nuse_bias_in_mlp: false\n"
      "no_weight_tying: true\n";
  auto size = [&](const std::string& lines, int64_t vocab) {
    ModelConfig model = load(lines).model;
    model.vocab = vocab;
    return num_parameters(model);
  };
  EXPECT_EQ(size("num_layers: 12\nhidden_size: 768\nnum_attention_heads: 12\n"
                 "max_position_embeddings: 1024\npos_emb: learned\nno_weight_tying: false",
                 50257),
            124439808);
  EXPECT_EQ(size(llama + "intermediate_size: 33024", 32000), 6738415616);  // LLaMA 7B
  EXPECT_EQ(size(llama + "intermediate_size: 43008\nnum_kv_heads: 8", 32000),
            7241732096);  // Mistral
  EXPECT_EQ(size(llama + "intermediate_size: 43008\nnum_kv_heads: 8\nmoe_num_experts: 8", 32000),
            46702792704);  // Mixtral 8x7B
}

TEST_F(ConfigTest, EstimateCountsWhatTensorParallelismSplits) {
  const std::string lines =
      "num_layers: 4\nhidden_size: 64\nnum_attention_heads: 4\nnum_kv_heads: 2\nnorm: rmsnorm\n"
      "activation: swiglu\nintermediate_size: 288\nuse_bias_in_mlp: false\npos_emb: learned\n"
      "max_position_embeddings: 40\nno_weight_tying: true\n";
  auto one = estimate(load(lines), 128, 1);
  // Matrices of queries, keys and values, of the output, of gate and up, and down; biases; norms.
  int64_t split = 64 * (128 + 64 + 192 + 96) + 128, whole = 64 + 2 * 64;
  EXPECT_EQ(one.positions, 40 * 64);
  EXPECT_EQ(one.blocks, 4 * (split + whole));
  EXPECT_EQ(one.parameters, one.blocks + 2 * 128 * 64 + 40 * 64 + 64);
  EXPECT_EQ(one.activation_bytes_kept, 8 * 32 * 64 * 4 * 2 * (8 + 8 + 4 * 3));
  auto two = estimate(load(lines + "model_parallel_size: 2"), 128, 2);
  EXPECT_EQ(two.rank_parameters, 4 * (split / 2 + whole) + 128 * 64 + 40 * 64 + 64);
  // What is halved, and the norms of one block and their input.
  auto tokens = estimate(load(lines + "model_parallel_size: 2\nsequence_parallel: true"), 128, 2);
  EXPECT_EQ(tokens.activation_bytes_kept, one.activation_bytes_kept / 2 + 8 * 32 * 64 * 4 * 3);
}

TEST_F(ConfigTest, EstimateCountsTheExpertsThatATokenUses) {
  const std::string lines =
      "num_layers: 3\nhidden_size: 64\nintermediate_size: 96\n"
      "moe_expert_interval: 2\nmoe_top_k: 2\nmoe_num_experts: ";
  auto one = estimate(load(lines + "1"), 128, 1), five = estimate(load(lines + "5"), 128, 1);
  int64_t mlp = 2 * 64 * 96, biases = 64 + 96, router = 5 * 64;  // layers 0 and 2 have experts
  EXPECT_EQ(five.blocks - one.blocks, 2 * (router + 5 * mlp - mlp - biases));
  EXPECT_EQ(five.flops_per_token - one.flops_per_token,
            6.0 * 2 * static_cast<double>(router + 2 * mlp - mlp - biases));
  auto two = estimate(load(lines + "5\nmodel_parallel_size: 2"), 128, 2);
  int64_t split = 2 * 5 * mlp + mlp + 96 + 3 * (4 * 64 * 64 + 3 * 64) + 128 * 64;
  EXPECT_EQ(two.rank_parameters, one.parameters + five.blocks - one.blocks - split / 2);
}

TEST_F(ConfigTest, PythiaWritesItsPublishedCheckpoints) {
  auto config = load_config(
      {.files = {"70M"}, .directory = NEOX_SOURCE_DIR "/configs/pythia", .overrides = {"save=x"}});
  auto e = estimate(config, 50304, 8);
  // Step 0 and 1, 2, 4 ... 512, and every 1000: 154 in the suite.
  EXPECT_EQ(e.num_checkpoints, 154);
  EXPECT_EQ(e.checkpoint_bytes, 12 * e.parameters);
  EXPECT_EQ(e.files_per_checkpoint, 11);
  EXPECT_EQ(e.disk_bytes, 154 * e.checkpoint_bytes);
  EXPECT_EQ(e.tokens_per_step, 2097152);
  EXPECT_NEAR(e.flops_per_token / 1e9, 0.306, 0.001);
  EXPECT_EQ(e.batch.accumulation, 4);
}

TEST_F(ConfigTest, EstimateCountsPartsAndChunks) {
  const std::string model = "num_layers: 4\nhidden_size: 64\nno_weight_tying: true\n";
  auto e = estimate(load(model), 128, 4);
  EXPECT_EQ(e.embedding, 128 * 64);
  EXPECT_EQ(e.head, 128 * 64);
  EXPECT_EQ(e.blocks, 4 * (12 * 64 * 64 + 13 * 64));
  EXPECT_EQ(e.parameters, e.embedding + e.head + e.blocks + 2 * 64);
  EXPECT_EQ(e.parameter_bytes, 4 * e.parameters);
  EXPECT_EQ(e.moment_bytes, 8 * e.parameters);
  EXPECT_EQ(e.master_bytes, 0);
  auto chunked =
      estimate(load(model + "precision: bfloat16\nzero_optimization: {stage: 2}"), 128, 4);
  EXPECT_EQ(chunked.parameter_bytes, 2 * e.parameters);
  int64_t matrices = 12 * 64 * 64 + 7 * 64;  // of a layer, with the biases that tp splits
  EXPECT_EQ(chunked.gradient_bytes, e.parameters + 3 * 4 * matrices);
  EXPECT_EQ(chunked.master_bytes, e.parameters);
  EXPECT_EQ(chunked.moment_bytes, 2 * e.parameters);
  auto layers = estimate(load(model + "zero_optimization: {stage: 3}"), 128, 4);
  EXPECT_EQ(layers.parameter_bytes, 4 * (e.parameters - 4 * matrices + (4 / 4 + 2) * matrices));
  EXPECT_EQ(layers.moment_bytes, 2 * e.parameters);
  auto mics = load(model + "zero_optimization: {stage: 1, mics_shard_size: 2}");
  EXPECT_EQ(estimate(mics, 128, 4).moment_bytes, 4 * e.parameters);
  EXPECT_THROW(estimate(mics, 128, 3), Error);
  auto lion = estimate(load(model + "optimizer: {type: lion}"), 128, 4);
  EXPECT_EQ(lion.moment_bytes, 4 * e.parameters);
  auto muon = estimate(load(model + "optimizer: {type: muon}"), 128, 4);
  EXPECT_LE(std::abs(muon.moment_bytes - 4 * (2 * e.parameters - e.blocks)), 8);
  EXPECT_EQ(estimate(load(model + "optimizer: {type: sgd}"), 128, 4).moment_bytes, 0);
}

// Muon's matrices have one owner each: QKV of 3 h^2 elements, h^2, and two of 4 h^2.
TEST_F(ConfigTest, EstimateCountsMatricesThatAreOwnedWhole) {
  auto of = [&](int stage, int64_t ranks) {
    return estimate(load(concat("num_layers: 4\nhidden_size: 64\noptimizer: {type: muon}\n",
                                "zero_optimization: {stage: ", stage, "}")),
                    128, ranks);
  };
  int64_t h2 = 64 * 64, matrices = 12 * h2 + 7 * 64, n = of(0, 4).parameters;
  // Four equal chunks are as large as the largest; more would take too much, and are not equal.
  int64_t padded = n + 4 * (16 * h2 - matrices);
  EXPECT_EQ(of(1, 4).parameter_bytes, 4 * padded);
  EXPECT_EQ(of(1, 4).gradient_bytes, 4 * padded);
  EXPECT_EQ(of(1, 4).rank_chunk, (n - 4 * matrices) / 4 + 4 * 4 * h2);
  for (int64_t ranks : {8, 64}) {
    EXPECT_EQ(of(1, ranks).parameter_bytes, 4 * n);
    int64_t chunk = of(1, ranks).rank_chunk;
    EXPECT_GE(chunk, 4 * h2);
    EXPECT_LE(chunk, n / ranks + 1 + 4 * h2);
    EXPECT_EQ(of(2, ranks).gradient_bytes, 4 * (chunk + 3 * matrices));
  }
}

TEST_F(ConfigTest, EstimateFollowsTheLayout) {
  auto split = load("num_layers: 4\npipe_parallel_size: 2\nmodel_parallel_size: 2");
  auto e = estimate(split, 256, 8);
  EXPECT_EQ(e.data_ranks, 2);
  int64_t h = 64, block = (12 * h * h + 13 * h - 6 * h) / 2 + 6 * h;
  EXPECT_EQ(e.rank_parameters, 2 * block + 256 * h / 2 + 2 * h);
  EXPECT_THROW(estimate(split, 256, 6), Error);
  EXPECT_THROW(estimate(load(""), 0, 1), Error);
}

TEST_F(ConfigTest, RecomputationSavesActivations) {
  auto e = estimate(load("num_layers: 8\ncheckpoint_activations: true"), 128, 1);
  EXPECT_EQ(e.activation_bytes, e.activation_bytes_recomputed);
  EXPECT_LT(e.activation_bytes, e.activation_bytes_kept / 4);
  // 8 samples of 32 tokens, width 64, 8 layers, 34 - 2 masks of two bytes, in fp32.
  EXPECT_EQ(e.activation_bytes_kept, 8 * 32 * 64 * 8 * 64);
}

TEST_F(ConfigTest, MasksOfScoresAreCounted) {
  auto bytes = [&](const std::string& more) {
    return estimate(load("num_layers: 8\n" + more), 128, 1).activation_bytes_kept;
  };
  // 8 samples of 32 tokens, 4 heads, fp32: masks with the distances they are made of.
  int64_t pairs = 32 * 32, plain = bytes("");
  EXPECT_EQ(bytes("sliding_window_width: 8") - plain, pairs * (4 + 2 + 4));
  EXPECT_EQ(bytes("reset_attention_mask: true") - plain, 8 * pairs * (4 + 2) + pairs * 4);
  EXPECT_EQ(bytes("attention_dropout: 0.1"), plain);
  EXPECT_EQ(bytes("pos_emb: rpe") - plain, 4 * pairs * (4 + 4 + 4) + pairs * (2 + 4));
}

TEST_F(ConfigTest, KeptCheckpointsBoundTheDisk) {
  auto config = load("save: x\ncheckpoint_factor: 10\nkeep_last_n_checkpoints: 2");
  auto e = estimate(config, 128, 1, 1000);
  EXPECT_EQ(e.num_checkpoints, 10);
  EXPECT_EQ(e.disk_bytes, 3 * e.checkpoint_bytes);
  EXPECT_TRUE(has(render(e, config), "NOT ENOUGH: there is no room for one checkpoint"));
  e = estimate(config, 128, 1, e.checkpoint_bytes);
  EXPECT_TRUE(has(render(e, config), "NOT ENOUGH: free some, or raise checkpoint_factor"));
  EXPECT_FALSE(has(render(e, config), "copies"));
  config.checkpoint.s3_path = "s3://bucket/runs";
  EXPECT_TRUE(has(render(e, config), "in s3://bucket/runs"));
  auto log = load("save: x\ncheckpoint_factor: 2\ncheckpoint_scale: log");
  EXPECT_EQ(estimate(log, 128, 1).num_checkpoints, 8);  // 1, 2, 4 ... 64, and the end
  EXPECT_EQ(estimate(load(""), 128, 1).num_checkpoints, 0);
}

TEST_F(ConfigTest, SavingInTheBackgroundTakesACopyOfWhatARankWrites) {
  const std::string saved = "save: x\ncheckpoint_factor: 10\nprecision: bfloat16\n";
  auto copy = [&](const std::string& more, int64_t ranks) {
    return estimate(load(saved + more), 128, ranks).copy_bytes;
  };
  int64_t state = estimate(load(saved), 128, 1).checkpoint_bytes;
  EXPECT_EQ(copy("", 1), state);
  EXPECT_NEAR(copy("", 4), state / 4, 48);  // copies share the work
  EXPECT_NEAR(copy("zero_optimization: {stage: 1, mics_shard_size: 2}", 4), state / 4, 48);
  EXPECT_EQ(copy("async_save: false", 1), 0);
  auto at_the_end = load("save: x\ncheckpoint_factor: 100");  // when nothing goes on
  EXPECT_EQ(estimate(at_the_end, 128, 1).copy_bytes, 0);
  EXPECT_TRUE(has(render(estimate(load(saved), 128, 1), load(saved)), "copy while saving"));
}

TEST_F(ConfigTest, DryRunTextNamesEveryPart) {
  auto config = load("save: x\ncheckpoint_factor: 10\nprecision: fp16");
  std::string text = render(estimate(config, 128, 1, int64_t{1} << 40), config);
  for (const char* part :
       {"embedding", "blocks", "head", "tokens", "FLOPs", "gradients", "master weights",
        "Adam's moments", "activations", "logits", "a checkpoint", "at most", "free there"})
    EXPECT_TRUE(has(text, part));
  EXPECT_FALSE(has(text, "experts"));
  config = load("moe_num_experts: 4\nmoe_top_k: 2");
  text = render(estimate(config, 128, 1), config);
  EXPECT_TRUE(has(text, "2 of 4 experts") && has(text, "N without embedding and idle experts"));
}

TEST_F(ConfigTest, ABlendOfMegatronIsItsDatasets) {
  auto blend = load("data_order: megatron\ndata_path: 0.3 x/a 0.7 x/b").data;
  std::string named;
  for (const NamedDataset& d : datasets_of(blend)) named += concat(d.key, ":", d.prefix, " ");
  EXPECT_EQ(named, "data_path:x/a data_path:x/b ");
  EXPECT_EQ(datasets_of(load("data_path: x/a").data).size(), 1u);
}

}  // namespace
}  // namespace neox
