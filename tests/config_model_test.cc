// What the model's keys make: widths, experts, other families.
#include <algorithm>
#include <cmath>
#include <string>

#include "base/text.h"
#include "config_fixture.h"

namespace neox {
namespace {

TEST_F(ConfigTest, TheWidthOfTheMlpFollowsNeoX) {
  auto widths = [&](const std::string& lines) {
    auto model = load(lines).model;
    return concat(model.mlp_inputs(), " ", model.intermediate);
  };
  EXPECT_EQ(widths("intermediate_size: 33024\nactivation: swiglu"), "22016 11008");
  EXPECT_EQ(widths("intermediate_size: 516\nactivation: relu"), "516 516");
  EXPECT_EQ(widths("hidden_size: 4096\nactivation: geglu\nmlp_multiple_of: 256"), "11264 5632");
  EXPECT_EQ(widths("intermediate_size: 512\nactivation: glu\nmlp_multiple_of: 8"), "352 176");
  EXPECT_EQ(widths("intermediate_size: 512\nmlp_multiple_of: 8"), "512 512");
  EXPECT_EQ(widths("hidden_size: 48\nnum_attention_heads: 4\nexpansion_factor: 2"), "96 96");
  EXPECT_EQ(widths("hidden_size: 72\nnum_attention_heads: 4\nexpansion_factor: 2.67"), "192 192");
  EXPECT_TRUE(has(fails("expansion_factor: 2\nintermediate_size: 512"),
                  "makes the MLP 128 wide, and intermediate_size (a.yml:"));
  Config config = load("expansion_factor: 2");  // as a checkpoint keeps it, with both
  EXPECT_EQ(load_config({.texts = {{"saved", config.text()}}}).model.intermediate, 128);
  EXPECT_TRUE(has(fails("expansion_factor: 0"), "expansion_factor is 0; it must be positive"));
  EXPECT_TRUE(has(fails("expansion_factor: 2\nmoe_num_experts: 4\nmoe_top_k: 2"),
                  "expansion_factor does not go with moe_num_experts 4"));
}

// As files of GPT-NeoX until September 2024 say it: LLaMAParallelMLP's arithmetic.
TEST_F(ConfigTest, LlamasOwnTypeOfMlpBecomesTodaysKeys) {
  auto mlp = [&](const std::string& lines) {
    Config config = load("mlp_type: llama\nactivation: silu\n" + lines);
    for (const Config& c : {config, load_config({.texts = {{"saved", config.text()}}})}) {
      EXPECT_TRUE(c.model.gated && c.model.activation == Activation::kSilu && !c.model.mlp_bias);
      EXPECT_EQ(c.model.intermediate, config.model.intermediate);
    }
    return concat(config.model.intermediate, " ", config.value("intermediate_size"));
  };
  EXPECT_EQ(mlp("hidden_size: 4096"), "11008 33024");
  EXPECT_EQ(mlp("hidden_size: 5120"), "13824 41472");
  EXPECT_EQ(mlp("hidden_size: 512"), "1536 4608");  // 1365, rounded up
  EXPECT_EQ(mlp("hidden_size: 4096\nintermediate_size: 14336"), "14336 43008");
  EXPECT_EQ(mlp("intermediate_size: 101\nmlp_multiple_of: 8"), "101 303");
  EXPECT_FALSE(load("mlp_type: regular\nactivation: silu").model.gated);
  EXPECT_TRUE(has(explain(load("mlp_type: llama\nactivation: silu\nintermediate_size: 100")),
                  "a.yml:1) is today's activation: swiglu, "
                  "intermediate_size: 300 (3 x 100) and use_bias_in_mlp: false"));
  EXPECT_TRUE(has(fails("mlp_type: llama"), "with activation: silu, and it is gelu (default)"));
  EXPECT_TRUE(has(fails("mlp_type: llama\nactivation: silu\nmoe_num_experts: 4\nmoe_top_k: 2"),
                  "mlp_type: llama does not go with moe_num_experts"));
}

TEST_F(ConfigTest, ExpertsAreTaken) {
  EXPECT_FALSE(load("moe_num_experts: 1\nmoe_top_k: 2").model.moe);
  Config plain = load("hidden_size: 72\nmoe_num_experts: 8");
  ASSERT_TRUE(plain.model.moe);
  EXPECT_EQ(plain.model.moe->experts, 8);
  EXPECT_EQ(plain.model.moe->top_k, 1);
  EXPECT_EQ(plain.model.moe->router, Router::kSinkhorn);
  EXPECT_EQ(plain.model.moe->intermediate, 512);  // 288, rounded up as NeoX does
  EXPECT_EQ(plain.model.intermediate, 288);
  EXPECT_EQ(plain.train.cuda_graph, false);
  Config some = load(
      "moe_num_experts: 4\nmoe_top_k: 2\nmoe_expert_interval: 3\n"
      "moe_router_type: topk\nintermediate_size: 100\nnum_layers: 4");
  EXPECT_EQ(some.model.moe->intermediate, 100);
  EXPECT_EQ(some.model.moe->router, Router::kTopK);
  std::string with;
  for (int64_t l = 0; l < 4; ++l) with += some.model.has_experts(l) ? '1' : '0';
  EXPECT_EQ(with, "1001");
  auto has_note = [](const Config& config, const std::string& words) {
    return std::ranges::any_of(config.notes,
                               [&](const std::string& note) { return has(note, words); });
  };
  EXPECT_FALSE(has_note(some, "GPT-NeoX loses"));
  EXPECT_TRUE(has_note(load("moe_num_experts: 2\ngpt_j_residual: true"), "GPT-NeoX loses"));
  EXPECT_TRUE(has_note(load("moe_num_experts: 2\nactivation: swiglu"), "GPT-NeoX's never are"));
}

// In GPT-NeoX only the router topk has it.
TEST_F(ConfigTest, NoiseOfARouterThatHasNoneIsNoReasonToRefuse) {
  const std::string noise = "moe_num_experts: 4\nmoe_jitter_eps: 0.1\n";
  EXPECT_EQ(fails(noise), "");
  EXPECT_TRUE(has(load(noise).notes.back(), "keys without effect here"));
  EXPECT_EQ(fails("moe_jitter_eps: 0.1"), "");
  EXPECT_TRUE(has(fails(noise + "moe_router_type: topk"),
                  "a.yml:2: moe_jitter_eps 0.1 is not supported yet (noise in the router's input"));
  EXPECT_EQ(fails("moe_num_experts: 4\nmoe_router_type: topk\nmoe_jitter_eps: 0"), "");
}

// Of tokenizers whose files are named together.
TEST_F(ConfigTest, ADirectoryOfGpt2sFilesIsTaken) {
  auto t = load("tokenizer_type: HFGPT2Tokenizer\nvocab_file: /data/gpt2").tokenizer;
  EXPECT_EQ(t.type, "GPT2BPETokenizer");
  EXPECT_EQ(t.vocab_file, "/data/gpt2/vocab.json");
  EXPECT_EQ(t.merge_file, "/data/gpt2/merges.txt");
}

TEST_F(ConfigTest, OtherFamiliesAreTaken) {
  auto m = load(
               "pos_emb: rotary\nnorm: rmsnorm\nrms_norm_epsilon: 1e-6\nactivation: swiglu\n"
               "intermediate_size: 516\nnum_kv_heads: 2\nuse_bias_in_attn_linear: false\n"
               "use_bias_in_mlp: false\nsliding_window_width: 7\nuse_qk_layernorm: true\n"
               "gpt_j_residual: true\ngpt_j_tied: true\nrope_scaling: {factor: 32}")
               .model;
  EXPECT_EQ(m.norm, Norm::kRmsNorm);
  EXPECT_EQ(m.norm_eps, 1e-6);
  EXPECT_EQ(m.activation, Activation::kSilu);
  EXPECT_TRUE(m.gated && m.qk_norm && m.tied_norms && !m.attention_bias && !m.mlp_bias);
  EXPECT_EQ(m.groups(), 2);
  EXPECT_EQ(m.window, 7);
  EXPECT_EQ(m.rotary_scaling.factor, 32);
  EXPECT_EQ(m.rotary_scaling.original_positions, 8192);
  auto linear = load("pos_emb: rotary\nrope_scaling: {rope_type: linear, factor: 2}").model;
  EXPECT_EQ(linear.rotary_scaling, (RotaryScaling{.kind = RotaryKind::kLinear, .factor = 2}));
  auto yarn = load(
                  "pos_emb: rotary\nrope_scaling: {rope_type: yarn, factor: 4, "
                  "original_max_position_embeddings: 2048, truncate: false, beta_fast: 16}")
                  .model.rotary_scaling;
  EXPECT_EQ(yarn.kind, RotaryKind::kYarn);
  EXPECT_EQ(yarn.beta_fast, 16);
  EXPECT_FALSE(yarn.truncate);
  EXPECT_EQ(yarn.attention_factor, 0.1 * std::log(4.0) + 1);
  EXPECT_EQ(load("norm: te_rmsnorm").model.norm, Norm::kRmsNorm);
  EXPECT_EQ(load("norm: te_layernorm").model.norm, Norm::kLayerNorm);
  m = load("norm: scalenorm\nscalenorm_epsilon: 1e-3").model;
  EXPECT_TRUE(m.norm == Norm::kRmsNorm && m.norm_weights == NormWeights::kOne);
  EXPECT_EQ(m.norm_epsilon(4), 1e-6 / 4);
  m = load("norm: non_parametric_layernorm\nlayernorm_epsilon: 1e-3").model;
  EXPECT_TRUE(m.norm == Norm::kLayerNorm && m.norm_weights == NormWeights::kNone);
  EXPECT_EQ(m.norm_epsilon(4), 1e-3);
  EXPECT_EQ(load("pos_emb: null").model.position_embedding, PositionEmbedding::kLearned);
  EXPECT_EQ(load("pos_emb: alibi").model.position_embedding, PositionEmbedding::kAlibi);
  EXPECT_EQ(load("bias_gelu_fusion: true\nactivation: geglu").model.activation,
            Activation::kGeluErf);
}

TEST_F(ConfigTest, LayersOfTransformerEngineAreThoseThatTheOtherKeysDescribe) {
  auto config = load("te_layernorm_mlp: true\nte_mha: true\nte_rowparallel: true");
  EXPECT_EQ(config.model.activation, Activation::kGeluTanh);
  const std::pair<const char*, const char*> wrong[] = {
      {"te_mha: true\nuse_bias_in_attn_linear: false",
       "a.yml:1: te_mha: true always has biases; change use_bias_in_attn_linear (a.yml:2), or "
       "remove te_mha"},
      {"te_mha: true\nuse_qk_layernorm: true", "norms no queries and keys"},
      {"te_mha: true\npos_emb: alibi", "knows no alibi"},
      {"te_layernorm_mlp: true\nuse_bias_in_mlp: false", "always has biases"},
      {"te_layernorm_mlp: true\ngpt_j_residual: true\ngpt_j_tied: true", "norm of its own"},
      {"te_layernorm_mlp: true\nnorm: scalenorm", "weights of its own"},
      {"te_layernorm_mlp: true\nmoe_num_experts: 4", "has no experts"},
      {"te_layernorm_mlp: true\nactivation: swiglu", "gelu and relu alone"},
      {"te_layernorm_mlp: true\nlayernorm_epsilon: 1e-6", "has an epsilon of 1e-5"}};
  for (auto [lines, message] : wrong) EXPECT_TRUE(has(fails(lines), message)) << lines;
}

}  // namespace
}  // namespace neox
