// What the keys mean: precision, model, data, checkpoints.
#include "base/text.h"
#include "config_fixture.h"

namespace neox {
namespace {

TEST_F(ConfigTest, PrecisionIsAskedForInFourWays) {
  EXPECT_EQ(load("").precision.type, Precision::kFp32);
  EXPECT_EQ(load("precision: fp16").precision.type, Precision::kFp16);
  EXPECT_EQ(load("precision: bfloat16").precision.type, Precision::kBf16);
  EXPECT_EQ(load("precision: fp64").precision.type, Precision::kFp64);
  EXPECT_EQ(load("fp16: {enabled: true}").precision.type, Precision::kFp16);
  EXPECT_EQ(load("fp16: {enabled: false}").precision.type, Precision::kFp32);
  EXPECT_EQ(load("bf16: {enabled: true}").precision.type, Precision::kBf16);
  EXPECT_EQ(load("fp16: {enabled: true, type: fp16}\nprecision: fp16").precision.type,
            Precision::kFp16);
}

TEST_F(ConfigTest, Fp16TypeBfloat16IsHonouredAndSaid) {
  auto config = load("fp16: {enabled: true, type: bfloat16, loss_scale: 0, hysteresis: 2}");
  EXPECT_EQ(config.precision.type, Precision::kBf16);
  EXPECT_TRUE(has(config.notes.at(0), "fp16.type: bfloat16 is honoured"));
  EXPECT_TRUE(has(config.notes.at(1), "fp16.hysteresis, fp16.loss_scale"));
  EXPECT_TRUE(has(config.where("precision"), "derived from fp16.type: bfloat16"));
}

TEST_F(ConfigTest, ContradictingPrecisionsNameBothPlaces) {
  EXPECT_EQ(fails("precision: bfloat16\nfp16: {enabled: true}"),
            "a.yml:2: fp16.enabled: true contradicts precision: bfloat16 (a.yml:1); keep one of "
            "them, or decide with --set precision=fp16");
  EXPECT_TRUE(starts(fails("fp16: {enabled: true}\nbf16: {enabled: true}"), "a.yml:2: bf16.en"));
  EXPECT_TRUE(has(fails("precision: fp32\nbf16: {enabled: true}"), "contradicts precision: fp32"));
  EXPECT_TRUE(has(fails("precision: fp16\nfp16: {enabled: false}"), "fp16.enabled: false contrad"));
  EXPECT_TRUE(has(fails("fp16: {enabled: true}", {"bf16.enabled=true"}), "--set: bf16.enabled"));
}

TEST_F(ConfigTest, PrecisionOnTheCommandLineWins) {
  auto config = load("fp16: {enabled: true, initial_scale_power: 12}", {"precision=bfloat16"});
  EXPECT_EQ(config.precision.type, Precision::kBf16);
  EXPECT_TRUE(has(config.notes.at(0), "--set precision=bfloat16 wins over fp16.enabled: true"));
  EXPECT_EQ(load("precision: fp16\nbf16: {enabled: true}", {"precision=fp32"}).precision.type,
            Precision::kFp32);
}

TEST_F(ConfigTest, LossScaleIsReadFromTheDictionary) {
  auto scale = load(
                   "fp16: {enabled: true, loss_scale: 0, initial_scale_power: 12, hysteresis: 3,"
                   " loss_scale_window: 500, min_loss_scale: 2}\nzero_optimization: {stage: 1}")
                   .precision;
  EXPECT_EQ(scale.static_loss_scale, 0);
  EXPECT_EQ(scale.initial_loss_scale, 4096);
  EXPECT_EQ(scale.hysteresis, 3);
  EXPECT_EQ(scale.loss_scale_window, 500);
  EXPECT_EQ(scale.min_loss_scale, 2);
  EXPECT_EQ(load("precision: fp16").precision.initial_loss_scale, 65536);
  EXPECT_EQ(load("precision: fp16").precision.hysteresis, 0);  // without ZeRO
  EXPECT_EQ(load("fp16: {enabled: true, loss_scale: 128}").precision.static_loss_scale, 128);
  EXPECT_TRUE(has(fails("fp16: {enabled: true, loss_scale: -1}"), "0 means dynamic"));
  EXPECT_TRUE(has(fails("fp16: {enabled: true, initial_scale_power: 99}"), "at most 32"));
}

TEST_F(ConfigTest, CopiesMustAgreeWithTheirOriginal) {
  EXPECT_EQ(fails("lr: 1e-3\noptimizer_type: adam\nzero_stage: 0\nbatch_size: 4\n"
                  "train_micro_batch_size_per_gpu: 4"),
            "");
  EXPECT_TRUE(
      has(fails("lr: 2e-3"), "a.yml:1: lr is a copy of optimizer.params.lr, which is 0.001"));
  EXPECT_TRUE(has(fails("zero_stage: 1"), "zero_optimization.stage, which is 0 (default)"));
  EXPECT_TRUE(has(fails("optimizer_type: lion"), "optimizer.type, which is adam (default)"));
  EXPECT_EQ(fails("optimizer_type: Lion\noptimizer: {type: lion}"), "");
  EXPECT_TRUE(has(fails("batch_size: 4"), "set that one"));
  EXPECT_TRUE(has(fails("weight_decay: 0.1\noptimizer: {params: {weight_decay: 0.2}}"), "copy"));
  EXPECT_EQ(load("optimizer: {params: {weight_decay: 0.2}}").optimizer.weight_decay, 0.2);
}

TEST_F(ConfigTest, GeluFormulaFollowsTheFusionKey) {
  EXPECT_EQ(load("bias_gelu_fusion: true").model.activation, Activation::kGeluTanh);
  EXPECT_EQ(load("").model.activation, Activation::kGeluErf);
  EXPECT_TRUE(has(fails("bias_gelu_fusion: true\nonnx_safe: true"), "exclude each other"));
}

TEST_F(ConfigTest, AGatedWidthThatIsNotGivenIsSaid) {
  const std::string gated = "hidden_size: 96\nactivation: swiglu";
  EXPECT_TRUE(has(load(gated).notes.at(0), "the gated MLP is 128 wide"));
  EXPECT_TRUE(load(gated + "\nintermediate_size: 384").notes.empty());
}

TEST_F(ConfigTest, AttentionConfigMustDescribeEveryLayer) {
  const std::string ok[] = {"[[[\"flash\"], 4]]", "[[[\"global\"], \"all\"]]",
                            "[[[flash, global], 2]]", "[[[flash], 1], [[global], 3]]",
                            "[flash, flash, global, flash]"};
  for (const auto& text : ok)
    EXPECT_EQ(fails("num_layers: 4\nattention_config: " + text), "") << text;
  const std::string layers = "num_layers: 4\nattention_config: ";
  EXPECT_TRUE(has(fails(layers + "[[[flash], 3]]"), "describes 3 layers, but num_layers is 4"));
  EXPECT_TRUE(has(fails(layers + "[[[flash], 6]]"), "describes 6 layers, but num_layers is 4"));
  EXPECT_TRUE(has(fails(layers + "[[[gmlp], all]]"), "\"gmlp\" attention, which is not supported"));
  EXPECT_TRUE(
      has(fails(layers + "[[[flash, flash, flash], all]]"), "does not divide num_layers 4"));
  EXPECT_TRUE(has(fails(layers + "[[[flash], -1]]"), "the count -1"));
  EXPECT_TRUE(has(fails(layers + "[[[flash], 9e15]]"), "the count"));
  EXPECT_TRUE(has(fails(layers + "[[[flash]]]"), "has the entry"));
  EXPECT_TRUE(has(fails(layers + "[flash]"), "describes 1 layers"));
  EXPECT_TRUE(has(fails(layers + "[]"), "describes 0 layers"));
  // GPT-NeoX's Mamba has heads that divide nothing: that is not what is to be mended.
  EXPECT_TRUE(has(fails(layers + "[[[mamba], all]]\nhidden_size: 32\nnum_attention_heads: 12"),
                  "\"mamba\" attention, which is not supported"));
}

struct Impossible {
  std::string text;
  const char* message;
};

TEST_F(ConfigTest, ImpossibleValuesNamePlaceAndCure) {
  const std::string yarn =
      "rope_scaling: {rope_type: yarn, original_max_position_embeddings: 9, factor: ";
  const Impossible cases[] = {
      {"hidden_size: 65", "hidden_size 65 is not divisible by num_attention_heads 4 ("},
      {"num_layers: 0", "must be at least 1"},
      {"num_layers: 1000000000000", "must be at most 65536"},
      {"seq_length: -3", "must be at least 1"},
      {"max_position_embeddings: 16", "max_position_embeddings is 16, less than seq_length 32"},
      {"num_kv_heads: 3", "num_kv_heads 3 does not divide num_attention_heads 4"},
      {"num_kv_heads: 0", "must be at least 1"},
      {"model_parallel_size: 2\nnum_kv_heads: 1", "does not divide num_kv_heads 1"},
      {"model_parallel_size: 2\npipe_parallel_size: 2\nhidden_size: 63\nkv_channels: 16",
       "model_parallel_size 2 does not divide hidden_size 63"},
      {"sliding_window_width: 0", "must be at least 1"},
      {"gpt_j_tied: true", "set gpt_j_residual to true"},
      {"rms_norm_epsilon: 0\nnorm: rmsnorm", "rms_norm_epsilon is 0"},
      {"intermediate_size: 512\nactivation: swiglu", "three times the width that is meant"},
      {"intermediate_size: 100\nmlp_multiple_of: 8", "do not share out; write a multiple of 16"},
      {"hidden_size: 56\nactivation: swiglu", "intermediate_size 224 (of hidden_size) with"},
      {"expansion_factor: 0.001", "expansion_factor makes the MLP 0.064 wide"},
      {"expansion_factor: 1e30", "it may be 1 to 16777216"},
      {"moe_num_experts: 0", "must be at least 1"},
      {"moe_top_k: 3\nmoe_num_experts: 2", "moe_top_k is 3, more than moe_num_experts 2 ("},
      {"model_parallel_size: 4\nmoe_num_experts: 2\nintermediate_size: 102", "does not divide"},
      {"moe_normalize_expert_weights: true\nmoe_num_experts: 2", "set moe_top_k to more than 1"},
      {"enable_cuda_graph: true\nmoe_num_experts: 2", "cannot be recorded"},
      {"moe_num_experts: 2\nuse_mup: true\nmup_base_hidden_size: 32", "does not go with use_mup ("},
      {"rpe_max_distance: 16\npos_emb: rpe", "more than half of rpe_num_buckets 32"},
      {"rope_scaling: {factor: 0.5}", "must be at least 1"},
      {"rope_scaling: {high_freq_factor: 1}", "less than high_freq_factor 1"},
      {"rope_scaling: {rope_type: dynamic}", "allowed is one of llama3, linear, yarn"},
      {"rope_scaling: {rope_type: linear}", "linear needs factor"},
      {"rope_scaling: {rope_type: yarn, factor: 2}", "yarn needs original_max_position_embeddings"},
      {yarn + "2, beta_slow: 40}", "beta_slow 40 must be positive and less than beta_fast 32"},
      {yarn + "2, attention_factor: 0}", "attention_factor is 0; it must be positive"},
      {yarn + "1, attention_factor: 2}", "attention_factor is 2, but factor is 1"},
      {"rope_scaling: {rope_type: yarn, low_freq_factor: 1}",
       "low_freq_factor is of rope_type llama3, not of yarn"},
      {"rope_scaling: {rope_type: linear, truncate: true}",
       "truncate is of rope_type yarn, not of linear"},
      {"rope_scaling: {rope_type: linear, original_max_position_embeddings: 9}",
       "original_max_position_embeddings is not of rope_type linear"},
      {"rotary_pct: 0.2", "rotates 3 dimensions; their number must be even and positive"},
      {"rotary_pct: 0.01", "rotates 0 dimensions"},
      {"rotary_pct: 1.5", "must lie between 0 and 1"},
      {"rotary_emb_base: 0", "must be greater than 1"},
      {"layernorm_epsilon: 0", "must be positive (usual: 1e-5)"},
      {"hidden_dropout: 1", "at least 0 and less than 1"},
      {"attention_dropout: -0.1", "at least 0 and less than 1"},
      {"init_method_std: 0", "must be positive"},
      {"pipe_parallel_size: 3", "more than the 2 layers"},
      {"model_parallel_size: 3", "does not divide num_attention_heads 4"},
      {"sequence_parallel: true\nmodel_parallel_size: 4\nseq_length: 30",
       "model_parallel_size 4 (a.yml:2) does not divide seq_length 30 (a.yml:3)"},
      {"intermediate_size: 0", "must be at least 1"},
      {"pipe_partition_method: type:mamba", "supported are \"type:transformer|mlp\""},
      {"zero_optimization: {stage: 7}", "stage: 7 is unknown; supported are 0, 1, 2 and 3"},
      {"enable_cuda_graph: true\nzero_optimization: {stage: 3}", "cannot be recorded"},
      {"zero_optimization: {stage: 1, mics_shard_size: 0}", "a number of ranks, or -1"},
      {"zero_optimization: {stage: 0, mics_shard_size: 4}", "stage 0 shares nothing"},
      {"make_vocab_size_divisible_by: 0", "must be at least 1"},
      {"optimizer: {params: {lr: 0}}", "must be positive"},
      {"optimizer: {params: {betas: [0.9]}}", "two numbers"},
      {"optimizer: {params: {betas: [0.9, 1.0]}}", "less than 1"},
      {"optimizer: {params: {eps: 0}}", "must be positive"},
      {"weight_decay: -1", "must not be negative"},
      {"gradient_clipping: -1", "must not be negative"},
      {"min_lr: 1", "must lie between 0 and 0.001"},
      {"warmup: 1.01", "a share of lr_decay_iters"},
      {"lr_decay_iters: 0", "must be positive"},
      {"lr_decay_fraction: 0.001", "is less than a step"},
      {"train_iters: -1", "must be at least 0"},
      {"eval_interval: 0", "must be at least 1"},
      {"eval_iters: -1", "must be at least 0"},
      {"log_interval: 0", "must be at least 1"},
      {"checkpoint_num_layers: 0", "must be at least 1"},
      {"seed: -1", "must be at least 0"},
      {"seed: 4294967296", "takes seeds up to 4294967295"},
      {"save: out", "neither checkpoint_factor nor extra_save_iters says when"},
      {"checkpoint_factor: 0", "whole number of steps"},
      {"checkpoint_factor: 1.5", "whole number of steps"},
      {"checkpoint_factor: 9223372036854775807", "whole number of steps"},
      {"checkpoint_factor: 1\ncheckpoint_scale: log", "must be at least 1.001, such as 2"},
      {"checkpoint_factor: 1.000000001\ncheckpoint_scale: log", "must be at least 1.001"},
      {"extra_save_iters: [-1]", "not negative"},
      {"split: 1, 2, 3, 4", "with 4 shares"},
      {"split: nine", "\"nine\" is no share"},
      {"split: 1,-1", "\"-1\" is no share"},
      {"split: 0,0,0", "with a sum of 0"},
      {"split: \"\"", "is no share"},
      {"data_path: a\n", ""},
      {"train_data_paths: [a]\ndata_path: b", "exclude each other"},
      {"valid_data_paths: [a]", "without train_data_paths"},
      {"train_data_weights: [1, 2]\ntrain_data_paths: [a]", "2 weights for the 1 data set"},
      {"train_data_weights: [1, -2]\ntrain_data_paths: [a, b]", "weights are not negative"},
      {"train_data_weights: [0, 0]\ntrain_data_paths: [a, b]", "zeros alone"},
      {"train_data_weights: [0, 1]\ntrain_data_paths: [a, b]\ndata_order: megatron-core",
       "leave that data set out"},
      {"train_label_data_paths: [a]\ntrain_data_paths: [a, b]", "1 data set for the 2"},
      {"train_label_data_paths: [a]", "1 data set for the 0"},
      {"train_label_data_paths: [la]\ntrain_data_paths: [a]\nvalid_data_paths: [b]",
       "train_label_data_paths is given, but valid_label_data_paths is not"},
      {"test_label_data_paths: [lb]\ntrain_data_paths: [a]\ntest_data_paths: [b]",
       "test_label_data_paths is given, but train_label_data_paths is not"},
      {"data_path: a b\ndata_order: megatron", "weights and prefixes in turn"},
      {"data_path: 0 a 0 b\ndata_order: megatron", "zeros alone"},
      {"pack_impl: unpacked\ndata_order: megatron", "GPT-NeoX's"},
      {"weight_by_num_documents: true", "needs train_data_paths"},
      {"weight_by_num_documents: true\ntrain_data_paths: [a]\ndata_order: megatron", "GPT-NeoX's"},
      {"weighted_sampler_alpha: -1", "must not be negative"},
      {"vocab_file: tokenizer.json", "write tokenizer_type: HFTokenizer"},
      {"train_micro_batch_size_per_gpu: 0", "must be at least 1"},
      {"top_p: 2", "must lie between 0 and 1"},
      {"temperature: -1", "must not be negative"},
      {"save: ~/runs\ncheckpoint_factor: 5", "save is ~/runs, and neither ~ nor $NAME stands for"},
      {"save: ./~/runs\ncheckpoint_factor: 5", ""},
      {"load: $HOME/runs", "write the whole path"},
      {"log_dir: ${RUNS}/first", "write the whole path"},
      {"tensorboard_dir: ~/tb", "write the whole path"},
      {"tensorboard: {enabled: true, output_path: ~/tb}", "write the whole path"},
      {"data_cache_path: ~/cache", "write the whole path"},
  };
  for (const Impossible& impossible : cases) {
    std::string text = fails(impossible.text);
    if (!*impossible.message) {
      EXPECT_EQ(text, "");
      continue;
    }
    EXPECT_TRUE(starts(text, "a.yml:1: ")) << impossible.text;
    EXPECT_TRUE(has(text, impossible.message)) << impossible.text;
  }
  EXPECT_TRUE(
      has(fails("padded_vocab_size: 129\nmodel_parallel_size: 2"), "multiple of model_par"));
}

TEST_F(ConfigTest, TheDirectoriesOfARunBeforeAreTaken) {
  std::string before = complete("save: ~/runs\ncheckpoint_factor: 5");
  EXPECT_EQ(load_config({.texts = {{"global_step5", before}}}).checkpoint.save, "~/runs");
}

TEST_F(ConfigTest, MissingKeysAreNamed) {
  EXPECT_TRUE(has(fails("num_layers: null"), "num_layers is missing"));
  EXPECT_TRUE(has(fails("train_iters: null"), "train_iters is missing"));
  EXPECT_TRUE(has(fails("train_batch_size: null"), "neither train_batch_size nor"));
}

TEST_F(ConfigTest, OtherWidthsAndPathsAreTaken) {
  auto config = load(
      "intermediate_size: 100\ntrain_data_paths: [a]\nvalid_data_paths: [b]\n"
      "pipe_parallel_size: 0\nkeep_last_n_checkpoints: 3\neod_mask_loss: true\n"
      "sample_prompts: [\"Once\"]\nmaximum_tokens: 9\nuse_wandb: true");
  EXPECT_EQ(config.model.intermediate, 100);
  EXPECT_EQ(config.model.positions, 32);
  EXPECT_EQ(config.data.train.paths, Strings{"a"});
  EXPECT_EQ(config.layout.pipe, 1);
  EXPECT_EQ(config.checkpoint.keep_last, 3);
  EXPECT_TRUE(config.data.eod_mask_loss);
  EXPECT_EQ(config.train.sample_tokens, 9);
  EXPECT_TRUE(has(config.notes.at(0), "use_wandb: nothing is written"));
  EXPECT_EQ(load("").model.intermediate, 256);
}

TEST_F(ConfigTest, ARunForWeightsAndBiasesIsNamedAsInNeox) {
  EXPECT_FALSE(load("wandb_group: g").train.wandb);
  auto config = load("use_wandb: true\nwandb_group: g\nwandb_team: t\nlog_dir: logs");
  EXPECT_EQ(config.train.wandb->project, "neox");
  EXPECT_EQ(config.train.wandb->team, "t");
  EXPECT_EQ(config.train.wandb->group, "g");
  EXPECT_EQ(config.train.wandb->run_name, "");
  for (const std::string& note : config.notes) EXPECT_FALSE(has(note, "use_wandb")) << note;
}

TEST_F(ConfigTest, DataMayBeBlended) {
  auto data = load(
                  "train_data_paths: [a, b]\ntrain_data_weights: [1, 2.5]\nvalid_data_paths: [c]\n"
                  "train_label_data_paths: [la, lb]\nvalid_label_data_paths: [lc]\n"
                  "pack_impl: unpacked\nallow_chopped: false")
                  .data;
  EXPECT_EQ(data.train.paths, (Strings{"a", "b"}));
  EXPECT_EQ(data.train.weights, (std::vector<double>{1, 2.5}));
  EXPECT_EQ(data.train.labels, (Strings{"la", "lb"}));
  EXPECT_EQ(data.packing, Packing::kUnpacked);
  EXPECT_FALSE(data.allow_chopped);
  data = load("save: s\ncheckpoint_factor: 1\ndata_cache_path: c").data;
  EXPECT_EQ(data.cache_dir, "c");
  EXPECT_EQ(data.cache_fallback, "s/index-cache");
}

TEST_F(ConfigTest, MegatronsListOfWeightsAndPrefixesIsTaken) {
  auto data = load("data_path: 30 a 0.7e2 b\ndata_order: megatron").data;
  EXPECT_EQ(data.blend.paths, (Strings{"a", "b"}));
  EXPECT_EQ(data.blend.weights, (std::vector<double>{30, 70}));
  data = load("data_path: a b c\ndata_order: megatron-core").data;
  EXPECT_EQ(data.blend.paths, (Strings{"a", "b", "c"}));
  EXPECT_TRUE(data.blend.weights.empty());
  data = load("data_path: 1 a").data;  // GPT-NeoX's is one prefix
  EXPECT_TRUE(data.blend.paths.empty());
}

TEST_F(ConfigTest, TooManyDataSetsAreRefused) {
  std::string list = "train_data_paths: [a";
  for (int i = 1; i < 255; ++i) list += ", a";
  list += "]";
  EXPECT_TRUE(has(fails(list), "at most 254"));
  EXPECT_EQ(fails(list + "\ndata_order: megatron-core"), "");
}

TEST_F(ConfigTest, PaddedVocabularyIsAMultiple) {
  EXPECT_EQ(padded_vocab(load(""), 50277), 50304);
  EXPECT_EQ(padded_vocab(load("model_parallel_size: 4"), 50277), 50688);
  EXPECT_EQ(padded_vocab(load("padded_vocab_size: 600"), 500), 600);
  try {
    padded_vocab(load("padded_vocab_size: 400"), 500);
    FAIL();
  } catch (const Error& e) {
    EXPECT_TRUE(has(e.what(), "a.yml:1: padded_vocab_size is 400, less than the 500 tokens"));
  }
}

TEST_F(ConfigTest, ARunMayBeginFromAnothersWeights) {
  const std::string two = "save: a\nload: b\ncheckpoint_factor: 10\n";
  EXPECT_EQ(load(two).checkpoint.resume, Resume::kWhole);
  EXPECT_EQ(load(two + "no_load_optim: true").checkpoint.resume, Resume::kNoOptimizer);
  EXPECT_EQ(load(two + "finetune: true\nno_load_optim: true").checkpoint.resume, Resume::kWeights);
  EXPECT_TRUE(has(fails("finetune: true"), "a.yml:1: finetune is true, but load is not given"));
  EXPECT_TRUE(has(fails("no_load_optim: true\nsave: a\nload: a\ncheckpoint_factor: 10"),
                  "give save another directory"));
}

TEST_F(ConfigTest, CheckpointsAreSavedAtTheStepsOfNeox) {
  auto linear = load("save: x\ncheckpoint_factor: 1000\nextra_save_iters: [0, 1, 512]").checkpoint;
  for (int64_t step : {0, 1, 512, 1000, 143000}) EXPECT_TRUE(linear.saves_at(step)) << step;
  for (int64_t step : {2, 999, 1001}) EXPECT_FALSE(linear.saves_at(step)) << step;
  auto log = load("save: x\ncheckpoint_scale: log\ncheckpoint_factor: 1.5").checkpoint;
  for (int64_t step : {1, 2, 3, 5, 7, 11, 17}) EXPECT_TRUE(log.saves_at(step)) << step;
  for (int64_t step : {4, 6, 8, 16, 18}) EXPECT_FALSE(log.saves_at(step)) << step;
  EXPECT_EQ(fails("checkpoint_scale: log\ncheckpoint_factor: 1.001"), "");
}

TEST_F(ConfigTest, ProfiledStepsAreAskedForByTheirNumbers) {
  auto profile = load("profile: true\nprofile_step_stop: 20\nprofile_ranks: [0, 8]").train.profile;
  EXPECT_EQ(profile.start, 10);
  EXPECT_EQ(profile.stop, 20);
  EXPECT_EQ(profile.ranks, (std::vector<int64_t>{0, 8}));
  EXPECT_EQ(load("profile_step_stop: 20").train.profile.stop, 0);
  EXPECT_TRUE(has(fails("profile: true\nprofile_step_start: 12"), "more than profile_step_start"));
}

}  // namespace
}  // namespace neox
