// The families of transformers: layouts by construction, configurations of all spellings, files of
// PyTorch, and what is refused.
#include <ATen/TensorOperators.h>

#include "checkpoint/checkpoint.h"
#include "convert/formats.h"
#include "convert/hf_family.h"
#include "convert_fixture.h"
#include "convert_models.h"
#include "torchfile/tensor.h"

namespace neox::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Families : public Convert {
 protected:
  std::string put(const Model& m, const std::string& type = "F32") {
    return model(m.tensors, m.config, type);
  }
  std::string refusal(const Model& m) {
    put(m);
    return error();
  }
  at::Tensor theirs(const std::string& name) const { return open_weights(dir_ / "hf")->read(name); }
  at::Tensor ours(const std::string& name) const {
    return open_neox_cpp_tensors(dir_ / "ours")->read("param/" + name);
  }
  ModelConfig read(const Json& config) const {
    return config_of(family_of(config, "c.json"), config, "c.json").model;
  }
  // Of pytorch_model.bin, from the safetensors that are there.
  void to_torch(const std::vector<std::string>& names, const std::string& file) const {
    auto from = open_weights(dir_ / "hf/model.safetensors");
    torchfile::Item::Entries entries;
    for (const std::string& name : names)
      entries.emplace_back(name, torchfile::new_tensor(from->read(name)));
    torchfile::write_torch_file(dir_ / ("hf/" + file), torchfile::Item::ordered_dict(entries));
  }
};

TEST_F(Families, LlamaRowsOfQueriesKeysAndValuesStandGroupByGroup) {
  put(llama());
  to_ours("ours");
  at::Tensor all = ours("layers.1.attention.query_key_value.weight");
  const std::string attention = "model.layers.1.self_attn.";
  at::Tensor q = theirs(attention + "q_proj.weight"), k = theirs(attention + "k_proj.weight"),
             v = theirs(attention + "v_proj.weight");
  for (int64_t g = 0; g < kGroups; ++g)
    for (int64_t d = 0; d < kSize; ++d) {
      int64_t block = g * 4 * kSize;  // two heads of queries, keys, values
      EXPECT_TRUE(all[block + d].equal(q[2 * g * kSize + d]));
      EXPECT_TRUE(all[block + kSize + d].equal(q[(2 * g + 1) * kSize + d]));
      EXPECT_TRUE(all[block + 2 * kSize + d].equal(k[g * kSize + d]));
      EXPECT_TRUE(all[block + 3 * kSize + d].equal(v[g * kSize + d]));
    }
}

TEST_F(Families, LlamaGateAndUpAlternate) {
  put(biased_llama());
  to_ours("ours");
  for (const char* part : {"weight", "bias"}) {
    at::Tensor all = ours(concat("layers.0.mlp.dense_h_to_4h.", part));
    at::Tensor gate = theirs(concat("model.layers.0.mlp.gate_proj.", part)),
               up = theirs(concat("model.layers.0.mlp.up_proj.", part));
    for (int64_t i = 0; i < kInner; ++i) {
      EXPECT_TRUE(all[2 * i].equal(gate[i])) << part << i;
      EXPECT_TRUE(all[2 * i + 1].equal(up[i])) << part << i;
    }
  }
}

TEST_F(Families, MixtralsExpertsAreStacked) {
  put(mixtral());
  to_ours("ours");
  at::Tensor in = ours("layers.1.mlp.experts.dense_h_to_4h.weight"),
             out = ours("layers.1.mlp.experts.dense_4h_to_h.weight");
  ASSERT_EQ(in.sizes(), (at::IntArrayRef{3, 2 * kInner, kWidth}));
  const std::string moe = "model.layers.1.block_sparse_moe.";
  for (int64_t e = 0; e < 3; ++e) {
    auto expert = [&](const char* w) {
      return theirs(concat(moe, "experts.", e, ".", w, ".weight"));
    };
    for (int64_t i = 0; i < kInner; ++i) {
      EXPECT_TRUE(in[e][2 * i].equal(expert("w1")[i]));
      EXPECT_TRUE(in[e][2 * i + 1].equal(expert("w3")[i]));
    }
    EXPECT_TRUE(out[e].equal(expert("w2")));
  }
  EXPECT_TRUE(ours("layers.1.mlp.router.weight").equal(theirs(moe + "gate.weight")));
}

TEST_F(Families, MixtralHasItsOwnDefaults) {
  Json config = mixtral().config;
  for (const char* name :
       {"num_local_experts", "num_experts_per_tok", "rms_norm_eps", "rope_theta"})
    config.erase(name);
  ModelConfig m = read(config);
  EXPECT_EQ(m.moe->experts, 8);
  EXPECT_EQ(m.moe->top_k, 2);
  EXPECT_TRUE(m.moe->normalized && m.gated && m.moe->router == Router::kTopK);
  EXPECT_EQ(m.moe->intermediate, kInner);
  EXPECT_EQ(m.norm_eps, 1e-5);
  EXPECT_EQ(m.rotary_base, 1e6);
}

// A run that goes on from it reads the keys beside it.
TEST_F(Families, MixtralsKeysForARunHaveItsExperts) {
  put(mixtral());
  to_ours("ours");
  std::string keys = read_file(dir_ / "ours/model.yml");
  for (const char* line : {"\nmoe_num_experts: 3\n", "\nmoe_top_k: 2\n",
                           "\nmoe_router_type: topk\n", "\nmoe_normalize_expert_weights: true\n"})
    EXPECT_THAT(keys, HasSubstr(line));
}

// transformers 5 reads these names of GPT-NeoX in dictionaries alone.
TEST_F(Families, NamesThatAreNotReadWhereTheyStandAreRefused) {
  auto refused = [&](const char* old, const char* name, double value = 0.5) {
    Json config = tiny_config();
    config.erase(old);
    config[name] = value;
    return error_of([&] { read(config); });
  };
  EXPECT_THAT(refused("rotary_emb_base", "rope_theta"),
              HasSubstr("rope_theta stands alone, and transformers does not read it there; write "
                        "rotary_emb_base"));
  EXPECT_THAT(refused("rotary_pct", "partial_rotary_factor"), HasSubstr("write rotary_pct"));
  EXPECT_EQ(refused("rotary_emb_base", "rope_theta", 10000), "");  // what it takes without
}

TEST_F(Families, MixtralKeepsWhatItsTrainingHas) {
  Model model = mixtral();
  const Json training = {{"router_aux_loss_coef", 0.02}, {"output_router_logits", true}};
  model.config.update(training);
  put(model);
  to_ours("ours");
  to_hf("ours", "back");
  for (const auto& [name, value] : training.items()) EXPECT_EQ(written_config("back")[name], value);
}

TEST_F(Families, MixtralsWithoutAChoiceOfExpertsAreRefusedByTheirOwnFields) {
  for (const char* field : {"num_local_experts", "num_experts_per_tok"}) {
    Json config = mixtral().config;
    config[field] = 1;
    EXPECT_THAT(error_of([&] { read(config); }),
                HasSubstr(concat(field, " is 1, which is not supported; it must be at least 2")));
  }
}

TEST_F(Families, Gpt2MatricesAreTurnedAndHeadsStandTogether) {
  put(gpt2());
  to_ours("ours");
  at::Tensor weight = ours("layers.1.attention.query_key_value.weight"),
             bias = ours("layers.1.attention.query_key_value.bias");
  at::Tensor thirds = theirs("transformer.h.1.attn.c_attn.weight").t(),
             thirds_bias = theirs("transformer.h.1.attn.c_attn.bias");
  for (int64_t head = 0; head < kHeads; ++head)
    for (int64_t part = 0; part < 3; ++part)
      for (int64_t d = 0; d < kSize; ++d) {
        int64_t here = (head * 3 + part) * kSize + d, there = part * kWidth + head * kSize + d;
        EXPECT_TRUE(weight[here].equal(thirds[there])) << here;
        EXPECT_TRUE(bias[here].equal(thirds_bias[there])) << here;
      }
  EXPECT_TRUE(ours("layers.0.mlp.dense_h_to_4h.weight")
                  .equal(theirs("transformer.h.0.mlp.c_fc.weight").t()));
  EXPECT_TRUE(ours("embed_positions.weight").equal(theirs("transformer.wpe.weight")));
}

TEST_F(Families, ComeBackBitForBitWithTheirConfiguration) {
  int number = 0;
  for (const Model& m :
       {llama(), biased_llama(), mistral(), mistral(nullptr), olmo(), mixtral(), gpt2(), bloom()}) {
    put(m, number % 2 ? "BF16" : "F32");
    std::string there = concat("ours", number), back = concat("back", number++);
    to_ours(there);
    to_hf(there, back, {"--max-shard-size", "20kB"});
    EXPECT_EQ(bytes_of(dir_ / back), bytes_of(dir_ / "hf")) << m.config;
    Json config = written_config(back);
    for (const auto& [name, value] : m.config.items())
      if (config.contains(name) && name != "torch_dtype" && name != "n_inner") {
        EXPECT_EQ(config[name], value) << name;
      }
    fs::remove_all(dir_ / "hf");
  }
}

TEST_F(Families, TiedModelsHaveNoHead) {
  Model m = llama();
  m.config["tie_word_embeddings"] = true;
  m.tensors.pop_back();
  put(m);
  to_ours("ours");
  to_hf("ours", "back");
  EXPECT_EQ(bytes_of(dir_ / "back"), bytes_of(dir_ / "hf"));
  m = gpt2();
  m.tensors.push_back({"lm_head.weight", {kVocab, kWidth}});
  put(m);
  EXPECT_THAT(error_of([&] { to_ours("out"); }),
              HasSubstr("lm_head.weight differs from the embedding"));
}

TEST_F(Families, ATiedHeadMayHoldTheNansOfTheEmbedding) {
  Model m = gpt2();
  m.tensors.push_back({"lm_head.weight", {kVocab, kWidth}});
  put(m);
  std::string file = read_file(dir_ / "hf/model.safetensors");
  size_t data = file.find("}}") + 2;
  dir_.put("hf/model.safetensors", file.replace(data, file.npos, file.size() - data, '\xff'));
  EXPECT_THAT(to_ours("ours"), HasSubstr("left out: tied"));
}

TEST_F(Families, Gpt2IsReadUnderItsOldNamesAndWithItsMask) {
  Model m = gpt2("");
  m.tensors.push_back({"h.0.attn.bias", {1, 1, 32, 32}});
  put(m);
  EXPECT_THAT(to_ours("ours"), HasSubstr("left out: the causal mask, a constant"));
  to_hf("ours", "back");
  EXPECT_TRUE(bytes_of(dir_ / "back").contains("transformer.h.1.attn.c_attn.weight"));
}

TEST_F(Families, RopeIsReadInBothSpellings) {
  Json old = llama().config, fresh = old;
  const Json scaling = {{"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 16}};
  old["rope_scaling"] = scaling;
  old["rope_scaling"]["rope_type"] = "llama3";
  fresh.erase("rope_theta");
  fresh["rope_parameters"] = old["rope_scaling"];
  fresh["rope_parameters"]["rope_theta"] = 500000.0;
  for (const Json& config : {old, fresh}) {
    ModelConfig m = read(config);
    EXPECT_EQ(m.rotary_base, 500000);
    EXPECT_EQ(m.rotary_scaling.factor, 8);
    EXPECT_EQ(m.rotary_scaling.original_positions, 16);
  }
  Json written = json_of(family_for(read(old), ""), read(old), "float32");
  EXPECT_EQ(read(written).rotary_scaling.high_freq_factor, 4);
  EXPECT_EQ(written["rope_scaling"]["rope_type"], "llama3");
}

TEST_F(Families, WindowOfNothingIsNotTheUsualWindow) {
  EXPECT_EQ(read(mistral(9).config).window, 8);
  Json config = mistral().config;
  config.erase("sliding_window");
  EXPECT_EQ(read(config).window, 4095);
  config["layer_types"] = {"full_attention", "full_attention"};
  EXPECT_EQ(read(config).window, 0);
  config["num_key_value_heads"] = nullptr;
  EXPECT_EQ(read(config).groups(), kHeads);
}

// As published: classes are found by model_type, and fields by attribute_map.
TEST_F(Families, OtherNamesThatTransformersTakes) {
  Json config = gpt2().config;
  config["num_attention_heads"] = config["n_head"], config.erase("n_head");
  EXPECT_EQ(read(config).heads, kHeads);
  config = llama().config;
  config["architectures"] = {"LLaMAForCausalLM"};
  EXPECT_EQ(family_of(config, "").type, std::string("llama"));
  config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2}, {"finetuned", true}};
  EXPECT_EQ(read(config).rotary_scaling.factor, 2);
}

TEST_F(Families, FieldsThatHaveNoPlaceAreRefused) {
  auto with = [&](Model m, const char* field, const Json& value) {
    m.config[field] = value;
    return refusal(m);
  };
  EXPECT_THAT(with(llama(), "head_dim", 8), HasSubstr("q_proj.weight"));
  EXPECT_THAT(with(llama(), "num_key_value_heads", 3),
              AllOf(HasSubstr("num_kv_heads 3 does not divide"),
                    HasSubstr("num_kv_heads is its num_key_value_heads")));
  EXPECT_THAT(with(llama(), "sliding_window", 8), HasSubstr("sliding_window (8) is not known"));
  EXPECT_THAT(with(llama(), "partial_rotary_factor", 0.5),
              HasSubstr("partial_rotary_factor is 0.5, but all of each head is rotated"));
  EXPECT_THAT(with(llama(), "rope_scaling", {{"rope_type", "longrope"}, {"factor", 2}}),
              HasSubstr("rope_scaling.rope_type is longrope; supported are default, linear"));
  EXPECT_THAT(
      with(llama(), "rope_scaling", {{"rope_type", "default"}, {"type", "linear"}, {"factor", 2}}),
      HasSubstr("rope_type is default, but type is linear; remove the one"));
  Model both = llama();
  both.config.erase("rope_theta");
  both.config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 300.0}};
  EXPECT_THAT(
      with(both, "rope_scaling", {{"type", "linear"}, {"factor", 2}}),
      HasSubstr("rope_parameters gives rope_theta, but transformers does not read it beside"));
  EXPECT_THAT(with(llama(), "rope_scaling", {{"rope_type", "linear"}}),
              HasSubstr("rope_scaling lacks factor"));
  EXPECT_THAT(with(llama(), "rope_scaling", {{"rope_type", "linear"}, {"factor", 2}, {"beta", 1}}),
              HasSubstr("beta (1) is not known"));
  EXPECT_THAT(with(llama(), "rope_scaling", {{"rope_type", "llama3"}, {"factor", 2}}),
              HasSubstr("rope_scaling lacks low_freq_factor"));
  EXPECT_THAT(with(llama(), "hidden_act", "gelu_new"), HasSubstr("hidden_act is gelu_new"));
  EXPECT_THAT(with(mistral(), "attention_bias", true), HasSubstr("attention_bias (true) is not"));
  EXPECT_THAT(with(mistral(), "sliding_window", 1), HasSubstr("it must be at least 2"));
  Json two = {"full_attention", "sliding_attention"};
  EXPECT_THAT(with(mistral(), "layer_types", two), HasSubstr("layers of both kinds are not"));
  EXPECT_THAT(with(gpt2(), "scale_attn_weights", false), HasSubstr("scale_attn_weights is false"));
  EXPECT_THAT(with(gpt2(), "scale_attn_by_inverse_layer_idx", true),
              HasSubstr("divided by the layer's number are not supported"));
  EXPECT_THAT(with(gpt2(), "num_attention_heads", 1),
              HasSubstr("num_attention_heads is 1, and n_head, which is the same field, "));
  EXPECT_THAT(with(gpt2(), "embd_pdrop", 0.2), HasSubstr("embd_pdrop is 0.2, but 0.1 by other"));
  EXPECT_THAT(with(gpt2(), "architectures", {"GPT2Model"}), HasSubstr("architectures is"));
}

TEST_F(Families, WrongTensorsAreRefused) {
  Model m = llama();
  m.tensors.erase(m.tensors.begin() + 4);
  EXPECT_THAT(refusal(m), HasSubstr("has no model.layers.0.self_attn.k_proj.weight [12, 24]"));
  m = llama();
  m.tensors[5].shape = {kWidth, kWidth};
  EXPECT_THAT(refusal(m),
              HasSubstr("v_proj.weight is [24, 24], but [12, 24] by the configuration"));
  m = biased_llama();
  m.config["mlp_bias"] = false;
  EXPECT_THAT(refusal(m), HasSubstr("no place in the model: model.layers.0.mlp.down_proj.bias"));
  m = gpt2();
  m.tensors[4].shape = {3 * kWidth, kWidth};
  EXPECT_THAT(refusal(m), HasSubstr("c_attn.weight is [72, 24], but [24, 72] by"));
  m = gpt2();
  m.config = llama().config;
  EXPECT_THAT(refusal(m), HasSubstr("has no model.embed_tokens.weight [29, 24]"));
}

TEST_F(Families, MissingShardsAndTruncatedFilesAreRefused) {
  Model m = mistral();
  sharded(m.tensors, m.config);
  fs::resize_file(dir_ / "hf/b.safetensors", fs::file_size(dir_ / "hf/b.safetensors") - 1);
  EXPECT_THAT(error(), HasSubstr("b.safetensors is truncated"));
  fs::remove(dir_ / "hf/b.safetensors");
  EXPECT_THAT(error(), HasSubstr("hf/b.safetensors is missing; "));
}

TEST_F(Families, FilesOfPyTorchAreRead) {
  Model m = gpt2();
  put(m);
  Bytes want = bytes_of(dir_ / "hf");
  std::vector<std::string> names;
  for (const Made& t : m.tensors) names.push_back(t.name);
  to_torch(names, "pytorch_model.bin");
  fs::rename(dir_ / "hf/model.safetensors", dir_ / "kept");
  to_ours("ours");
  to_hf("ours", "back");
  EXPECT_EQ(bytes_of(dir_ / "back"), want);
  EXPECT_THAT(run({"inspect", dir_ / "hf/pytorch_model.bin"}), HasSubstr("wpe"));
}

TEST_F(Families, ShardsOfPyTorchAreReadAndTheirIndexIsChecked) {
  Model m = gpt2();
  put(m);
  Bytes want = bytes_of(dir_ / "hf");
  std::vector<std::string> a, b;
  Json map;
  for (const Made& t : m.tensors) (a.size() < 9 ? a : b).push_back(t.name);
  for (const std::string& name : a) map[name] = "a.bin";
  for (const std::string& name : b) map[name] = "b.bin";
  to_torch(a, "a.bin");
  to_torch(b, "b.bin");
  dir_.put("hf/pytorch_model.bin.index.json", Json{{"weight_map", map}}.dump());
  fs::remove(dir_ / "hf/model.safetensors");
  to_ours("ours");
  to_hf("ours", "back");
  EXPECT_EQ(bytes_of(dir_ / "back"), want);
  for (const char* name : {"ours", "back"}) fs::remove_all(dir_ / name);
  fs::resize_file(dir_ / "hf/b.bin", fs::file_size(dir_ / "hf/b.bin") / 2);
  EXPECT_THAT(error(), HasSubstr("b.bin"));
  fs::remove(dir_ / "hf/b.bin");
  EXPECT_THAT(error(), HasSubstr("b.bin is missing"));
}

TEST_F(Families, OptionsWithoutAPlaceAreNamed) {
  ModelConfig m = read(llama().config);
  EXPECT_STREQ(family_for(m, "").type, "llama");
  m.window = 7;
  EXPECT_STREQ(family_for(m, "llama").type, "mistral");
  m.attention_bias = true;
  std::string text = error_of([&] { family_for(m, ""); });
  EXPECT_THAT(text, HasSubstr("64: transformers has no architecture for this model: "));
  EXPECT_THAT(text, HasSubstr("LlamaForCausalLM has no sliding_window_width: 7;"));
  EXPECT_THAT(text, HasSubstr("MistralForCausalLM has no use_bias_in_attn_linear: true"));
  m = read(mixtral().config);
  EXPECT_STREQ(family_for(m, "llama").type, "mixtral");
  m.moe->interval = 2;
  EXPECT_THAT(error_of([&] { family_for(m, ""); }),
              HasSubstr("MixtralForCausalLM has no moe_expert_interval: 2"));
  m = read(gpt2().config);
  m.position_embedding = PositionEmbedding::kAlibi;
  EXPECT_THAT(error_of([&] { family_for(m, ""); }),
              HasSubstr("GPT2LMHeadModel has no pos_emb: alibi"));
}

}  // namespace
}  // namespace neox::testing
