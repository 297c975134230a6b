// The table of keys: complete, documented, and enforced.
#include "config_fixture.h"

#include <map>

#include "base/file.h"
#include "base/text.h"
#include "config/keys.h"
#include "config/value.h"

namespace neox {
namespace {

std::map<std::string, std::string> declared_keys() {
  std::map<std::string, std::string> keys;
  for (const std::string& line :
       split(read_file(NEOX_SOURCE_DIR "/tests/golden/neox_keys.txt"), '\n'))
    if (size_t at = line.find(" = "); at != line.npos)
      keys[line.substr(0, at)] = line.substr(at + 3);
  return keys;
}

// Python's way to write a value, as YAML.
std::string from_python(std::string text) {
  if (text == "None") return "null";
  if (text == "True" || text == "False") return text;
  if (text.size() > 1 && text[0] == '\'') return '"' + text.substr(1, text.size() - 2) + '"';
  return text;
}

TEST(ConfigKeys, TableHasExactlyTheKeysOfNeox) {
  auto declared = declared_keys();
  EXPECT_EQ(declared.size(), 318u);
  size_t rows = 0;
  for (const KeyGroup& group : neox_keys())
    for (const KeyRow& row : group.rows) {
      EXPECT_TRUE(declared.contains(row.name)) << row.name;
      ++rows;
    }
  EXPECT_EQ(rows, 318u);
  for (const auto& [name, value] : declared) EXPECT_NE(find_key(name), nullptr) << name;
}

TEST(ConfigKeys, DefaultsAreThoseOfNeox) {
  for (const auto& [name, text] : declared_keys()) {
    if (name == "git_hash") continue;  // computed
    Value theirs = parse_yaml(from_python(text), name);
    Value ours = parse_yaml(find_key(name)->fallback, name);
    if (find_key(name)->type == KeyType::kText) ours.kind = theirs.kind;  // quotes or none
    EXPECT_TRUE(same(ours, theirs)) << name << ": " << ours.show() << ", not " << theirs.show();
  }
}

TEST(ConfigKeys, EveryRowHasWords) {
  for (const KeyGroup& group : neox_keys())
    for (const KeyRow& row : group.rows)
      EXPECT_TRUE(*row.words || !row.children.empty()) << row.name;
}

TEST(ConfigKeys, DocumentationHasTheTable) {
  std::string text = read_file(NEOX_SOURCE_DIR "/docs/config.md");
  size_t from = text.find("<!-- keys -->\n"), to = text.find("<!-- end of keys -->");
  ASSERT_TRUE(from != text.npos && to != text.npos);
  from += 14;
  bool equal = text.substr(from, to - from) == key_table_markdown();
  std::string fresh = NEOX_BUILD_DIR "/config_keys.md";
  if (!equal) write_file_atomically(fresh, key_table_markdown());
  EXPECT_TRUE(equal) << "put the text of " << fresh << " between the marks of docs/config.md";
}

TEST_F(ConfigTest, UnknownKeysNameTheNearest) {
  EXPECT_EQ(fails("num_layer: 6"), "a.yml:1: unknown key 'num_layer'; did you mean 'num_layers'?");
  EXPECT_EQ(fails("optimizer:\n  type: Adam\n  params:\n    beta_s: [0.9, 0.95]"),
            "a.yml:4: unknown key 'optimizer.params.beta_s'; did you mean 'betas'?");
  EXPECT_TRUE(has(fails("zzz_unheard_of: 1"), "docs/config.md lists all keys"));
  EXPECT_TRUE(has(fails("bf16: {what_is_this: 1}"), "bf16 may hold bf16, check_grad_overflow"));
}

TEST_F(ConfigTest, ForeignKeysNameTheOneThatIsMeant) {
  EXPECT_TRUE(
      has(fails("gradient_accumulation: 1"),
          "a.yml:1: unknown key 'gradient_accumulation'; here it is gradient_accumulation_"));
  EXPECT_TRUE(has(fails("num_heads: 9"), "here it is num_attention_heads"));
  EXPECT_TRUE(has(fails("moe_type: dmoe"), "'moe_type'; remove it: no token is dropped"));
  EXPECT_TRUE(has(fails("warmup_iters: 9"), "here it is warmup, a share"));
  EXPECT_TRUE(has(fails("betas: [0.9, 0.95]"), "did you mean optimizer.params.betas?"));
  EXPECT_TRUE(has(fails("fp16: {num_layers: 3}"), "the key num_layers outside of fp16?"));
  EXPECT_TRUE(has(fails("optimizer.params.lr: 3"), "unknown key 'optimizer.params.lr'"));
}

TEST_F(ConfigTest, KeysOfOlderVersionsAreThoseOfToday) {
  EXPECT_EQ(load("save: s\nsave-interval: 9").checkpoint.factor, 9);
  EXPECT_EQ(load("save: s", {"save_interval=9"}).checkpoint.factor, 9);
  EXPECT_TRUE(has(fails("save: s\nsave_interval: 9\ncheckpoint_factor: 9"),
                  "a.yml:2: unknown key 'save_interval'; here it is checkpoint_factor"));
}

TEST_F(ConfigTest, AllUnknownKeysAndWrongTypesAreNamedAtOnce) {
  EXPECT_EQ(fails("zzz_unheard_of: 1\nseed: 1\ntrain_iters: x\nonnx_safe: 3\ndata_impl: cached"),
            "a.yml:1: unknown key 'zzz_unheard_of'; docs/config.md lists all keys\n"
            "a.yml:3: train_iters is \"x\" (text); allowed is an integer\n"
            "a.yml:4: onnx_safe is 3 (a number); allowed is true or false\n"
            "a.yml:5: data_impl: \"cached\" is not supported yet (data other than .bin and .idx); "
            "supported is infer, mmap");
  std::string many;
  for (int i = 0; i < 30; ++i) many += concat("zzz_unheard_of_", i, ": 1\n");
  EXPECT_TRUE(fails(many).ends_with("\nand 10 more"));
}

TEST_F(ConfigTest, WrongTypesSayWhatWasFoundAndWhatIsAllowed) {
  EXPECT_EQ(fails("num_layers: six"),
            "a.yml:1: num_layers is \"six\" (text); allowed is an integer");
  EXPECT_TRUE(
      has(fails("num_layers: 6.5"), "6.5 (a number); allowed is an integer; it has a frac"));
  EXPECT_TRUE(has(fails("num_layers: \"6\""), "write it without quotes"));
  EXPECT_TRUE(has(fails("num_layers: 010"), "without the leading 0"));
  EXPECT_EQ(load("train_iters: 1_000").train.iters, 1000);  // as PyYAML
  EXPECT_EQ(load("train_iters: 1_0.00_0").value("train_iters"), "10");
  EXPECT_TRUE(has(fails("num_layers: _1"), "allowed is an integer"));
  EXPECT_EQ(load("wandb_group: 2026_11").value("wandb_group"), "\"2026_11\"");
  EXPECT_TRUE(has(fails("num_layers: auto"), "is for transformers' Trainer to fill in"));
  for (const char* text : {"NUM_LAYERS", "$LAYERS", "\"{{layers}}\""})
    EXPECT_TRUE(has(fails(concat("num_layers: ", text)), "looks like a placeholder")) << text;
  EXPECT_TRUE(has(fails("num_layers: 0x10"), "allowed is an integer; write it in decimal"));
  EXPECT_TRUE(has(fails("num_layers: 99999999999999999999"), "too large"));
  EXPECT_TRUE(has(fails("num_layers: None"), "write null"));
  EXPECT_TRUE(has(fails("num_layers: [6]"), "[6] (a list)"));
  EXPECT_TRUE(has(fails("min_lr: 1e999"), "out of range"));
  EXPECT_TRUE(has(fails("min_lr: .nan"), "allowed is a number"));
  EXPECT_TRUE(has(fails("optimizer: {params: {eps: \"1.0e_8\"}}"),
                  "optimizer.params.eps is \"1.0e_8\" (text); allowed is a number"));
  EXPECT_TRUE(has(fails("gpt_j_residual: 1"), "1 (a number); allowed is true or false"));
  EXPECT_TRUE(has(fails("save: true"), "put it in quotes"));
  EXPECT_TRUE(has(fails("load: None"), "write null"));
  EXPECT_TRUE(has(fails("optimizer: Adam"),
                  "allowed is a dictionary, such as optimizer: {type: Adam, params: {lr: 6e-4}}"));
  EXPECT_TRUE(has(fails("fp16: true"), "a dictionary, such as fp16: {enabled: true}"));
  EXPECT_TRUE(has(fails("train_data_paths: data/x"), "write [data/x]"));
  EXPECT_TRUE(has(fails("optimizer: {params: {betas: [0.9, x]}}"), "a list of numbers"));
  EXPECT_TRUE(has(fails("extra_save_iters: [1, 2.5]"), "a list of integers"));
  EXPECT_TRUE(has(fails("zero_optimization: {stage: [1, 3]}"), "[1, 3] (a list)"));
  EXPECT_TRUE(has(fails("attention_config: flash"), "[[[\"flash\"], 6]]"));
}

TEST_F(ConfigTest, NumbersAreReadAsPeopleWriteThem) {
  auto config = load("min_lr: 1e-5\ntrain_iters: 1E3\nlr_decay_iters: 500.0\nwarmup: +.1");
  EXPECT_EQ(config.schedule.min_lr, 1e-5);
  EXPECT_EQ(config.train.iters, 1000);
  EXPECT_EQ(config.schedule.decay_iters, 500);
  EXPECT_DOUBLE_EQ(config.schedule.warmup_iters, 50.0);
}

TEST_F(ConfigTest, WordsAreReadInAnyCase) {
  auto config = load("lr_decay_style: Cosine\npos_emb: ROTARY\noptimizer: {type: ADAM}");
  EXPECT_EQ(config.schedule.decay, LrDecay::kCosine);
  EXPECT_EQ(fails("lr_decay_style: cosin"),
            "a.yml:1: lr_decay_style is \"cosin\"; allowed is one of constant, linear, cosine, "
            "exponential, inverse-square-root, WSD");
}

struct Refused {
  const char* text;
  const char* reason;
};

TEST_F(ConfigTest, WhatIsNotSupportedYetIsRefusedWithTheReason) {
  const Refused cases[] = {
      {"opt_pos_emb_offset: 2", "unused rows"},
      {"optimizer: {type: SM3}", "supported is adam"},
      {"optimizer: {params: {amsgrad: true}}", "AMSGrad"},
      {"te_fp8_mha: true", "8 bits"},
      {"train_impl: reinforce", "supported is normal, dpo, kto, rm"},
      {"dataset_impl: online", "supported is gpt2, pairwise"},
      {"data_impl: cached", "supported is infer, mmap"},
      {"zero_optimization: {cpu_offload_params: true}", "host memory"},
      {"zero_optimization: {stage: 1, offload_optimizer: {device: nvme}}", "supported is none"},
      {"zero_optimization: {zero_quantized_weights: true}", "quantized"},
      {"coord_check: true", "muP"},
      {"use_bnb_optimizer: true", "8-bit"},
      {"autotuning: {enabled: true}", "tuning"},
  };
  for (const Refused& refused : cases) {
    std::string text = fails(refused.text);
    EXPECT_TRUE(starts(text, "a.yml:1: ")) << refused.text;
    EXPECT_TRUE(has(text, "is not supported yet")) << refused.text;
    EXPECT_TRUE(has(text, refused.reason)) << refused.text;
  }
}

TEST_F(ConfigTest, S3PathIsAPlaceForTheCheckpointsOfSave) {
  const std::string saves = "save: x\ncheckpoint_factor: 1\n";
  EXPECT_EQ(load(saves + "s3_path: s3://bucket/runs").checkpoint.s3_path, "s3://bucket/runs");
  EXPECT_TRUE(has(fails(saves + "s3_path: /fsx/copies"), "a.yml:3: s3_path is /fsx/copies"));
  EXPECT_TRUE(has(fails(saves + "s3_path: s3:///runs"), "s3://bucket/prefix"));
  EXPECT_TRUE(has(fails("s3_path: s3://bucket"), "save is not"));
}

TEST_F(ConfigTest, HarmlessValuesOfUnsupportedKeysPass) {
  EXPECT_EQ(fails("norm: LayerNorm\ngpt_j_tied: false\nuse_bias_in_mlp: true\nmoe_num_experts: 1\n"
                  "curriculum_learning: {enabled: false}\nautotuning: {}\namp: null\n"
                  "zero_optimization: {cpu_offload: false, stage: 1}\ndata_impl: mmap\n"
                  "data_types: {grad_accum_dtype: fp32}\ns3_path: \"\"\nhostfile: "
                  "None\ntrain_impl: normal"),
            "");
  EXPECT_EQ(fails("data_types: {grad_accum_dtype: float32}"), "");
  const std::string routing = "data_efficiency: {enabled: true, seed: 1, data_routing: {enabled: ";
  EXPECT_EQ(fails(routing + "false, random_ltd: {enabled: true}}, data_sampling: {num_epochs: 1}}"),
            "");
  EXPECT_EQ(fails(routing + "true, random_ltd: {enabled: false}}}"), "");
  EXPECT_TRUE(has(fails(routing + "true, random_ltd: {enabled: true}}}"), "data efficiency"));
  EXPECT_TRUE(has(fails("data_efficiency: {enabled: true}"), "data efficiency"));
  EXPECT_TRUE(has(fails("data_efficiency: {seed: 1}"), "data efficiency"));
}

TEST_F(ConfigTest, KeysWithoutEffectAreSaidOnceInOneLine) {
  auto config = load(
      "steps_per_print: 10\nlauncher: slurm\nfp16: {fp16: true}\nseed: 1\n"
      "zero_optimization: {stage: 1, overlap_comm: true}\nnorm: layernorm");
  ASSERT_EQ(config.notes.size(), 1u);
  EXPECT_EQ(config.notes[0],
            "keys without effect here (--explain says why): fp16.fp16, launcher, steps_per_print, "
            "zero_optimization.overlap_comm");
}

}  // namespace
}  // namespace neox
