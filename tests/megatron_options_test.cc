// Command lines of Megatron's pretrain_gpt.py as configurations.
#include "convert/megatron_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "config/config.h"

namespace neox {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

MegatronOptions read(const std::string& line) {
  std::vector<std::string> words;
  for (const std::string& word : split(line, ' '))
    if (!word.empty()) words.push_back(word);
  return read_megatron_options(words);
}

std::string error_of(const std::string& line) {
  try {
    read(line);
  } catch (const Error& e) {
    EXPECT_EQ(e.exit(), Exit::kUsage);
    return e.what();
  }
  return "no error";
}

constexpr const char* kGpt =
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128 "
    "--max-position-embeddings 128 --micro-batch-size 2 --global-batch-size 8 --lr 1e-4 "
    "--data-path data/a --vocab-file v.json --merge-file m.txt ";

Config config_of(const MegatronOptions& made) {
  return load_config({.texts = {{"made", made.yaml}}});
}

TEST(MegatronOptionsTest, AreUtf8) {
  EXPECT_THAT(error_of(concat(kGpt, "--train-data-path a\xFF")), HasSubstr("is not UTF-8"));
}

TEST(MegatronOptionsTest, WriteMegatronsDefaultsOut) {
  MegatronOptions made = read(concat("torchrun -n 8 pretrain_gpt.py ", kGpt, "--train-iters 100"));
  EXPECT_THAT(made.warnings, IsEmpty());
  Config config = config_of(made);
  EXPECT_EQ(config.model.hidden_dropout, 0.1);
  EXPECT_EQ(config.model.attention_dropout, 0.1);
  EXPECT_EQ(config.model.intermediate, 256);
  EXPECT_TRUE(config.model.tied_embedding);
  EXPECT_EQ(config.train.iters, 100);
  EXPECT_THAT(made.yaml, HasSubstr("\nhidden_dropout: 0.1  # Megatron's default\n"));
  EXPECT_THAT(made.yaml, HasSubstr("\nbias_gelu_fusion: true  # the tanh formula of GELU\n"));
  EXPECT_THAT(made.yaml, HasSubstr("\nwarmup: 0.0  # Megatron's default\n"));
  EXPECT_THAT(made.yaml, HasSubstr("\n  params:\n    betas: [0.9,0.999]\n    eps: 1e-08\n"));
  EXPECT_THAT(made.yaml, HasSubstr("\nweight_decay: 0.01  # Megatron's default\n"));
  EXPECT_THAT(made.yaml, HasSubstr("\nlr_schedule_compat: megatron\n"));
  EXPECT_THAT(made.yaml, HasSubstr("\ndata_order: megatron-core  # "));
  EXPECT_THAT(made.yaml, HasSubstr("\nprecision: fp32  # Megatron's default\n"));
  EXPECT_THAT(made.yaml, Not(HasSubstr("torchrun")));
}

// As LLaMA's are launched: the width of a gated MLP is that of one of its matrices.
TEST(MegatronOptionsTest, OfGatedModels) {
  std::string llama = concat(kGpt,
                             "--train-samples 1000 --lr-warmup-samples 84 --swiglu --bf16 "
                             "--normalization RMSNorm --norm-epsilon 1e-6 --disable-bias-linear "
                             "--position-embedding-type rope --rotary-base 5000 "
                             "--group-query-attention --num-query-groups 2 "
                             "--untie-embeddings-and-output-weights "
                             "--use-distributed-optimizer --overlap-grad-reduce "
                             "--tensor-model-parallel-size 2 --sequence-parallel "
                             "--pipeline-model-parallel-size 4 --window-size 16,0 ");
  MegatronOptions made = read(llama);
  EXPECT_THAT(made.warnings, IsEmpty());
  Config config = config_of(made);
  EXPECT_EQ(config.model.intermediate, 128);  // int(4 x 64 x 2 / 3 / 64) x 64
  EXPECT_EQ(config.model.kv_heads, 2);
  EXPECT_EQ(config.model.norm_eps, 1e-6);
  EXPECT_FALSE(config.model.attention_bias);
  EXPECT_FALSE(config.model.tied_embedding);
  EXPECT_EQ(config.train.iters, 125);
  EXPECT_THAT(made.yaml, HasSubstr("\nwarmup: 0.084  # share of lr_decay_samples\n"));
  EXPECT_THAT(made.yaml, HasSubstr("\ntrain_samples: 1000\nlr_decay_samples: 1000\n"));
  EXPECT_THAT(made.yaml, HasSubstr("\nsliding_window_width: 16\n"));
  EXPECT_THAT(made.yaml, HasSubstr("\npipe_parallel_size: 4\nsequence_parallel: true\n"
                                   "zero_optimization:\n  stage: 1\n"));
  EXPECT_THAT(made.yaml, HasSubstr("#   --overlap-grad-reduce\n"));
  EXPECT_THAT(read(llama + "--ffn-hidden-size 100").yaml,
              HasSubstr("\nintermediate_size: 300  # both halves and the way back\n"));
  std::string heads = read(concat(kGpt, "--kv-channels 32 --disable-bias-linear --add-qkv-bias",
                                  " --train-iters 9"))
                          .yaml;
  EXPECT_THAT(heads, HasSubstr("\nkv_channels: 32\n"));
  EXPECT_THAT(heads, HasSubstr("\nadd_qkv_bias: true\n"));
  EXPECT_THAT(read(concat(kGpt, "--train-iters 9 --geglu")).yaml,
              HasSubstr("\nactivation: geglu\n"));
}

TEST(MegatronOptionsTest, GradientsReducedInBf16AreAccumulatedInIt) {
  auto gradients = [](const char* options) {
    return config_of(read(concat(kGpt, "--train-iters 9 ", options))).precision.gradients;
  };
  EXPECT_EQ(gradients("--bf16 --grad-reduce-in-bf16"), Precision::kBf16);
  EXPECT_EQ(gradients("--bf16"), std::nullopt);
  EXPECT_EQ(gradients("--grad-reduce-in-bf16"), std::nullopt);
  EXPECT_EQ(gradients("--fp16 --accumulate-allreduce-grads-in-fp32"), std::nullopt);
}

// As of bigscience, by DeepSpeed.
TEST(MegatronOptionsTest, NameWhatIsLost) {
  MegatronOptions made = read(concat(
      kGpt, "--position-embedding-type alibi --train-tokens 1_000_000 --fp16 --loss-scale 12 ",
      "--rampup-batch-size 2 2 100 --embed-layernorm --no-bias-gelu-fusion --kill-switch-path x ",
      "--zero-stage 1 --deepspeed --deepspeed_config ds.json --checkpoint-activations --what 3"));
  EXPECT_THAT(made.warnings, ElementsAre("--what 3: unknown, left out"));
  Config config = config_of(made);
  EXPECT_EQ(config.train.samples, 977 * 8);  // 1e6 / 8 / 128, upwards
  EXPECT_EQ(config.batch.ramp_up->samples, 100);
  EXPECT_THAT(made.yaml, HasSubstr("\npos_emb: alibi\n"));
  EXPECT_TRUE(config.model.embedding_norm);
  EXPECT_THAT(made.yaml, HasSubstr("\nbias_gelu_fusion: false\n"));
  EXPECT_THAT(made.yaml, HasSubstr("\ndata_order: megatron  # "));
  EXPECT_THAT(made.yaml, HasSubstr("--deepspeed-config ds.json\n"));
  EXPECT_THAT(made.yaml, HasSubstr("\n# UNKNOWN, left out:\n#   --what 3\n"));
}

// Nothing is rounded to steps of the full batch.
TEST(MegatronOptionsTest, OfABatchThatGrows) {
  MegatronOptions made =
      read(concat(kGpt,
                  "--rampup-batch-size 2 2 1_00 --train-samples 1_001 --lr-decay-samples 903 "
                  "--lr-warmup-samples 301 --lr-decay-style cosine"));
  EXPECT_THAT(made.warnings, IsEmpty());
  Config config = config_of(made);
  EXPECT_EQ(config.batch.ramp_up->increment, 2);
  EXPECT_EQ(config.train.samples, 1001);
  EXPECT_EQ(config.schedule.decay_iters, 903 / 8.0);
  EXPECT_NEAR(config.schedule.warmup_iters, 301 / 8.0, 1e-12);
  EXPECT_THAT(read(concat(kGpt, "--rampup-batch-size 2 2 100 --train-iters 50")).yaml,
              HasSubstr("\ntrain_samples: 400\nlr_decay_samples: 400\n"));
}

TEST(MegatronOptionsTest, OfDataAndExperts) {
  MegatronOptions made = read(concat(kGpt,
                                     "--train-iters 9 --num-experts 8 --moe-router-topk 2 "
                                     "--tokenizer-type HuggingFaceTokenizer --tokenizer-model tok "
                                     "--valid-data-path 1 data/b 2 data/c --split 100"));
  EXPECT_THAT(made.yaml, HasSubstr("\nmoe_num_experts: 8\nmoe_top_k: 2\n"));
  EXPECT_THAT(made.yaml, HasSubstr("\nvalid_data_paths: [\"data/b\",\"data/c\"]\n"
                                   "valid_data_weights: [1,2]\n"));
  EXPECT_THAT(made.yaml, HasSubstr("\ntokenizer_type: HFTokenizer\n"
                                   "vocab_file: tok/tokenizer.json\n"));
  EXPECT_THAT(made.yaml, HasSubstr("\nsplit: \"100\"\n"));
  MegatronOptions own = read(concat(kGpt,
                                    "--train-iters 9 --tokenizer-type JapaneseSentencePiece "
                                    "--vocab-file ja.model"));
  EXPECT_THAT(own.warnings, ElementsAre(HasSubstr("--tokenizer-type JapaneseSentencePiece: ")));
  EXPECT_THAT(own.yaml, HasSubstr("\ntokenizer_type: SPMTokenizer\nvocab_file: ja.model\n"));
  EXPECT_THAT(read(concat(kGpt, "--train-iters 9 --tokenizer-type Other")).yaml,
              Not(HasSubstr("\nvocab_file")));
  EXPECT_THAT(read(concat(kGpt, "--train-iters 9 --data-path 0.3 a 0.7 b")).yaml,
              HasSubstr("\ndata_path: \"0.3 a 0.7 b\"\n"));
}

// Megatron-LM's own examples/llama has "--split '99,1,0'" in an array, whose quotes stay.
TEST(MegatronOptionsTest, QuotesInASplitAreLeftOut) {
  MegatronOptions made = read(concat(kGpt, "--train-iters 9 --split '99,1,0'"));
  EXPECT_THAT(made.yaml, HasSubstr("\nsplit: \"99,1,0\"\n"));
  EXPECT_EQ(config_of(made).data.split, "99,1,0");
  EXPECT_THAT(read(concat(kGpt, "--split 98 2 0")).yaml, HasSubstr("\nsplit: \"98 2 0\"\n"));
}

TEST(MegatronOptionsTest, RefuseWhatSaysNothing) {
  EXPECT_THAT(error_of("pretrain_gpt.py"), HasSubstr("there are no options of pretrain_gpt.py"));
  EXPECT_THAT(error_of("what --num-layers 4"), HasSubstr("'what' is no option of pretrain_gpt.py"));
  EXPECT_THAT(error_of("--num-layers --hidden-size 64"),
              HasSubstr("--num-layers has no value; is it a variable that is not set?"));
  EXPECT_THAT(error_of("--num-layers 4"), HasSubstr("args.hidden_size is missing"));
}

}  // namespace
}  // namespace neox
