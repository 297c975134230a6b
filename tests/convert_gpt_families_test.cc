// Falcon, OPT, StarCoder, Phi-3 and OLMo of transformers: layouts by construction, which of several
// models of one type a configuration is of, and what is refused.
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include "config/architecture.h"
#include "convert/formats.h"
#include "convert/hf_family.h"
#include "convert_fixture.h"
#include "convert_gpt_models.h"

namespace neox::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class GptFamilies : public Convert {
 protected:
  void put(const Model& m, const std::string& type = "F32") { model(m.tensors, m.config, type); }
  at::Tensor theirs(const std::string& name) const { return open_weights(dir_ / "hf")->read(name); }
  at::Tensor ours(const std::string& name) const {
    return open_neox_cpp_tensors(dir_ / "ours")->read("param/" + name);
  }
  static ModelConfig read(const Json& config) {
    return config_of(family_of(config, "c.json"), config, "c.json").model;
  }
  static std::string refused(Model m, const char* field, const Json& value) {
    m.config[field] = value;
    return error_of([&] { read(m.config); });
  }
};

TEST_F(GptFamilies, ComeBackBitForBitWithTheirConfiguration) {
  int number = 0;
  for (const Model& m : {falcon7(), falcon40(), falcon11(), starcoder2(), phi3(), starcoder()}) {
    put(m, number % 2 ? "BF16" : "F32");
    std::string there = concat("ours", number), back = concat("back", number++);
    to_ours(there);
    to_hf(there, back, {"--max-shard-size", "20kB"});
    EXPECT_EQ(bytes_of(dir_ / back), bytes_of(dir_ / "hf")) << m.config;
    Json config = written_config(back);
    for (const auto& [name, value] : m.config.items()) EXPECT_EQ(config[name], value) << name;
    fs::remove_all(dir_ / "hf");
  }
}

TEST_F(GptFamilies, Phi3QueriesKeysValuesGatesAndUpsAreOneBehindTheOther) {
  put(phi3());
  to_ours("ours");
  at::Tensor all = ours("layers.1.attention.query_key_value.weight"),
             rows = theirs("model.layers.1.self_attn.qkv_proj.weight"),
             mlp = ours("layers.1.mlp.dense_h_to_4h.weight"),
             halves = theirs("model.layers.1.mlp.gate_up_proj.weight");
  for (int64_t g = 0; g < kGroups; ++g)
    for (int64_t d = 0; d < kSize; ++d) {
      int64_t block = g * 4 * kSize;  // two heads of queries, keys, values
      EXPECT_TRUE(all[block + d].equal(rows[2 * g * kSize + d]));
      EXPECT_TRUE(all[block + kSize + d].equal(rows[(2 * g + 1) * kSize + d]));
      EXPECT_TRUE(all[block + 2 * kSize + d].equal(rows[(kHeads + g) * kSize + d]));
      EXPECT_TRUE(all[block + 3 * kSize + d].equal(rows[(kHeads + kGroups + g) * kSize + d]));
    }
  for (int64_t i = 0; i < kInner; ++i) {
    EXPECT_TRUE(mlp[2 * i].equal(halves[i]));
    EXPECT_TRUE(mlp[2 * i + 1].equal(halves[kInner + i]));
  }
}

// Rows that lie as ours do already.
TEST_F(GptFamilies, FalconsAndStarCodersRowsStayAsTheyAre) {
  for (const auto& [m, name] :
       {std::pair{falcon40(), "transformer.h.1.self_attention.query_key_value.weight"},
        {falcon7(), "transformer.h.1.self_attention.query_key_value.weight"},
        {starcoder(), "transformer.h.1.attn.c_attn.weight"},
        {starcoder(false), "transformer.h.1.attn.c_attn.weight"}}) {
    put(m);
    to_ours("ours");
    EXPECT_TRUE(ours("layers.1.attention.query_key_value.weight").equal(theirs(name))) << m.config;
    for (const char* made : {"hf", "ours"}) fs::remove_all(dir_ / made);
  }
}

TEST_F(GptFamilies, OptsPositionsBeginBehindTwoRowsOfPadding) {
  const Model made = opt();
  put(made);
  EXPECT_THAT(to_ours("ours"), HasSubstr("without 2 rows of padding"));
  to_hf("ours", "back");
  const std::string name = "model.decoder.embed_positions.weight";
  at::Tensor rows = theirs(name), back = open_weights(dir_ / "back")->read(name);
  EXPECT_TRUE(ours("embed_positions.weight").equal(rows.narrow(0, 2, kPositions)));
  EXPECT_TRUE(back.narrow(0, 2, kPositions).equal(rows.narrow(0, 2, kPositions)));
  EXPECT_TRUE(back.narrow(0, 0, 2).equal(at::zeros({2, kWidth})));
  Bytes were = bytes_of(dir_ / "hf"), are = bytes_of(dir_ / "back");
  for (Bytes* bytes : {&were, &are}) bytes->erase(name);
  EXPECT_EQ(are, were);
  for (const auto& [field, value] : made.config.items())
    EXPECT_EQ(written_config("back")[field], value) << field;
}

TEST_F(GptFamilies, OptsTensorsMayLackTheirPrefix) {
  Model m = opt("");
  put(m);
  to_ours("ours");
  EXPECT_TRUE(
      ours("layers.1.mlp.dense_h_to_4h.weight").equal(theirs("decoder.layers.1.fc1.weight")));
}

TEST_F(GptFamilies, FieldsOfFalconTellItsNorms) {
  ModelConfig first = read(falcon7().config), large = read(falcon40().config),
              second = read(falcon11().config);
  EXPECT_TRUE(first.parallel_residual && first.tied_norms && first.groups() == 1);
  EXPECT_TRUE(large.parallel_residual && !large.tied_norms && large.groups() == kGroups);
  EXPECT_TRUE(second.parallel_residual && second.tied_norms && second.groups() == kGroups);
  Json config = falcon40().config;
  config.erase("num_ln_in_parallel_attn");
  EXPECT_EQ(architecture(read(config)), architecture(large));
  config = falcon7().config;
  for (const char* name :
       {"num_ln_in_parallel_attn", "new_decoder_architecture", "multi_query", "bias"})
    config.erase(name);
  EXPECT_EQ(architecture(read(config)), architecture(first));
  config["multi_query"] = false;
  EXPECT_EQ(read(config).groups(), kHeads);
}

TEST_F(GptFamilies, FieldsOfNoFalconAreNamed) {
  EXPECT_THAT(refused(falcon7(), "num_ln_in_parallel_attn", 2),
              AllOf(HasSubstr("new_decoder_architecture is false, num_ln_in_parallel_attn is 2; "
                              "supported are FalconForCausalLM (new_decoder_architecture: false, "),
                    HasSubstr("(new_decoder_architecture: true, num_ln_in_parallel_attn: 2), ")));
  EXPECT_THAT(refused(falcon7(), "alibi", true),
              HasSubstr("alibi is true, which is not supported"));
  EXPECT_THAT(refused(falcon40(), "parallel_attn", false), HasSubstr("parallel_attn is false"));
  EXPECT_THAT(refused(falcon7(), "bias", 1), HasSubstr("bias is 1, not true or false"));
}

TEST_F(GptFamilies, BiasesAreThoseOfAttentionAndMlp) {
  for (Model m : {falcon7(), starcoder2(), opt()}) {
    const char* field = m.config.contains("use_bias")      ? "use_bias"
                        : m.config.contains("enable_bias") ? "enable_bias"
                                                           : "bias";
    for (bool bias : {true, false}) {
      m.config[field] = bias;
      ModelConfig read_as = read(m.config);
      EXPECT_TRUE(read_as.attention_bias == bias && read_as.mlp_bias == bias) << field;
      read_as.mlp_bias = !bias;
      EXPECT_THAT(error_of([&] { family_for(read_as, ""); }),
                  HasSubstr(concat(m.config["architectures"][0].get<std::string>())));
    }
  }
}

TEST_F(GptFamilies, FieldsThatTheirClassesDoNotReadSayNothing) {
  const std::pair<Model, Json> kMore[] = {
      {falcon7(), {{"num_kv_heads", 71}, {"alibi", false}, {"parallel_attn", true}}},
      {falcon11(), {{"multi_query", true}, {"ff_factor", 4}, {"num_ln_in_parallel_attn", 1}}},
      {opt(), {{"activation_dropout", 0.0}, {"layerdrop", 0.1}, {"prefix", "</s>"}}},
      {starcoder(), {{"inference_runner", 0}, {"validate_runner_input", true}}},
      {starcoder2(), {{"activation_function", "gelu"}, {"mlp_type", "default"}}},
      {phi3(), {{"attention_bias", false}, {"original_max_position_embeddings", 4096}}}};
  for (const auto& [model, more] : kMore) {
    Json config = model.config;
    config.update(more);
    EXPECT_EQ(architecture(read(config)), architecture(read(model.config))) << more;
  }
  Model m = opt();
  m.tensors.push_back({"model.decoder.version", {1}});
  put(m);
  EXPECT_THAT(to_ours("ours"), HasSubstr("left out: fairseq's number of a format"));
}

TEST_F(GptFamilies, WhatTheyDoNotHaveIsRefused) {
  EXPECT_THAT(refused(opt(), "do_layer_norm_before", false),
              HasSubstr("do_layer_norm_before is false, which is not supported"));
  EXPECT_THAT(refused(opt(), "word_embed_proj_dim", 12),
              HasSubstr("word_embed_proj_dim is 12, but 24 by other fields"));
  EXPECT_THAT(refused(opt(), "layer_norm_elementwise_affine", false), HasSubstr("is false"));
  EXPECT_THAT(refused(phi3(), "rope_scaling", {{"type", "longrope"}}),
              HasSubstr("type is longrope; supported are default"));
  EXPECT_THAT(refused(phi3(), "rope_scaling", {{"type", "linear"}, {"factor", 2}}),
              HasSubstr("which Phi3ForCausalLM does not have"));
  EXPECT_THAT(refused(starcoder(), "num_key_value_heads", 2),
              HasSubstr("num_key_value_heads is 2, but 1 by other fields"));
  EXPECT_THAT(refused(starcoder(), "scale_attn_weights", false), HasSubstr("is false"));
  EXPECT_THAT(refused(starcoder2(), "head_dim", 8), HasSubstr("head_dim (8) is not known"));
  EXPECT_THAT(refused(olmo(), "clip_qkv", 8.0), HasSubstr("clip_qkv (8.0) is not known"));
}

TEST_F(GptFamilies, OlmosNormsLearnNothing) {
  Model model = olmo();
  model.config["clip_qkv"] = nullptr;
  ModelConfig m = read(model.config);
  EXPECT_TRUE(m.norm == Norm::kLayerNorm && m.norm_weights == NormWeights::kNone);
  EXPECT_STREQ(family_for(m, "").type, "olmo");
  m.scores = true;
  EXPECT_THAT(error_of([&] { family_for(m, ""); }),
              HasSubstr("OlmoForCausalLM has no class for scores of sequences"));
  m.scores = false;
  m.norm_weights = NormWeights::kOne;
  m.norm = Norm::kRmsNorm;
  EXPECT_THAT(error_of([&] { family_for(m, ""); }),
              HasSubstr("LlamaForCausalLM has no norm: scalenorm"));
}

TEST_F(GptFamilies, OfAConfigurationThatSeveralHaveTheFirstIsTaken) {
  EXPECT_STREQ(family_for(read(starcoder().config), "").type, "gpt_bigcode");
  EXPECT_STREQ(family_for(read(starcoder(false).config), "").type, "gpt2");
  EXPECT_STREQ(family_for(read(starcoder(false).config), "gpt_bigcode").type, "gpt_bigcode");
  EXPECT_STREQ(family_for(read(opt().config), "").type, "gpt2");
  ModelConfig m = read(phi3().config);
  EXPECT_STREQ(family_for(m, "").type, "phi3");  // rotates a part of each head
  m.rotary_pct = 1;
  EXPECT_STREQ(family_for(m, "").type, "mistral");
  m = read(falcon40().config);
  m.norm_eps = 1e-6;
  EXPECT_STREQ(family_for(m, "").type, "falcon");
  m.kv_heads = 0;
  m.attention_bias = m.mlp_bias = true;
  EXPECT_STREQ(family_for(m, "").type, "gpt_neox");
  m = read(opt().config);
  m.norm_eps = 1e-6;
  m.kv_heads = kGroups;
  EXPECT_THAT(error_of([&] { family_for(m, "opt"); }),
              HasSubstr("OPTForCausalLM has no layernorm_epsilon: 1e-06, no num_kv_heads: 2"));
}

}  // namespace
}  // namespace neox::testing
