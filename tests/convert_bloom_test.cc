// BLOOM's checkpoints, of transformers; what else is of all families is in convert_families_test.
#include "config/architecture.h"
#include "convert/formats.h"
#include "convert/hf_family.h"
#include "convert_fixture.h"
#include "convert_models.h"

namespace neox::testing {
namespace {

using ::testing::HasSubstr;

using Bloom = Convert;

ModelConfig read(const Json& config) {
  return config_of(family_of(config, "c.json"), config, "c.json").model;
}

std::string refused(const char* field, const Json& value) {
  Json config = bloom().config;
  config[field] = value;
  return error_of([&] { read(config); });
}

// As in bigscience/bloom-560m, and as transformers has them by attribute_map.
TEST_F(Bloom, FieldsHaveOtherNamesToo) {
  Json config = bloom().config;
  ModelConfig m = read(config);
  EXPECT_TRUE(m.embedding_norm && m.tied_embedding && !m.parallel_residual);
  EXPECT_EQ(m.position_embedding, PositionEmbedding::kAlibi);
  EXPECT_EQ(m.activation, Activation::kGeluTanh);
  EXPECT_EQ(m.intermediate, 4 * kWidth);
  EXPECT_EQ(m.norm_eps, 1e-6);
  for (const auto& [name, other] : {std::pair{"hidden_size", "n_embed"},
                                    {"n_head", "num_attention_heads"},
                                    {"n_layer", "num_hidden_layers"}}) {
    config[other] = config[name];
    config.erase(name);
  }
  EXPECT_EQ(architecture(read(config)), architecture(m));
  config.erase("seq_length");
  EXPECT_EQ(read(config).positions, 2048);
}

TEST_F(Bloom, TensorsMayLackTheirPrefix) {
  Model with = bloom(), without = bloom("");
  model(with.tensors, with.config);
  to_ours("with");
  fs::remove_all(dir_ / "hf");
  model(without.tensors, without.config);
  to_ours("without");
  auto a = open_neox_cpp_tensors(dir_ / "with"), b = open_neox_cpp_tensors(dir_ / "without");
  EXPECT_EQ(a->tensors().size(), with.tensors.size());
  for (const TensorInfo& info : a->tensors())
    EXPECT_TRUE(a->read(info.name).equal(b->read(info.name))) << info.name;
}

TEST_F(Bloom, WhatItDoesNotHaveIsRefused) {
  EXPECT_THAT(refused("slow_but_exact", true), HasSubstr("slow_but_exact is true"));
  EXPECT_THAT(
      refused("apply_residual_connection_post_layernorm", true),
      HasSubstr("apply_residual_connection_post_layernorm is true, which is not supported"));
  EXPECT_THAT(refused("hidden_act", "relu"), HasSubstr("hidden_act"));
  ModelConfig m = read(bloom().config);
  m.embedding_norm = false;
  EXPECT_THAT(error_of([&] { family_for(m, "bloom"); }),
              HasSubstr("BloomForCausalLM has no embed_layernorm: false"));
  m.embedding_norm = true;
  m.intermediate = kInner;
  EXPECT_THAT(error_of([&] { family_for(m, "bloom"); }), HasSubstr("intermediate 14, "));
}

}  // namespace
}  // namespace neox::testing
