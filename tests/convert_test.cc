// neox-convert: safetensors, names, configurations, round trips, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include <cmath>
#include <cstring>

#include "checkpoint/checkpoint.h"
#include "config/architecture.h"
#include "convert/formats.h"
#include "convert/hf_family.h"
#include "convert/safetensors.h"
#include "convert_fixture.h"
#include "generated_text.h"
#include "model/parameters.h"

namespace neox::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(Convert, ThereAndBackIsTheSameBitForBit) {
  for (const char* type : {"F32", "F16", "BF16"}) {
    model(tiny_tensors(), tiny_config(), type);
    to_ours(concat("ours", type));
    to_hf(concat("ours", type), concat("back", type));
    EXPECT_EQ(bytes_of(dir_ / concat("back", type)), bytes_of(dir_ / "hf")) << type;
  }
}

TEST_F(Convert, ShardsAreReadAndWritten) {
  sharded();
  to_ours("ours");
  to_hf("ours", "back", {"--max-shard-size", "2kB"});
  EXPECT_TRUE(fs::exists(dir_ / "back/model.safetensors.index.json"));
  EXPECT_EQ(bytes_of(dir_ / "back"), bytes_of(dir_ / "hf"));
  for (const auto& entry : fs::directory_iterator(dir_ / "back"))
    if (entry.path().extension() == ".safetensors") {
      EXPECT_LE(fs::file_size(entry.path()), 2000u + 1500u) << entry.path();
    }
}

TEST_F(Convert, ConfigurationComesBack) {
  model();
  to_ours("ours");
  to_hf("ours", "back");
  Json config = written_config("back");
  const Json want = tiny_config();
  for (const auto& [name, value] : want.items())
    if (name != "hidden_act") { EXPECT_EQ(config[name], value) << name; }
  EXPECT_EQ(config["hidden_act"], "gelu_new");  // another name of the same formula
  EXPECT_EQ(config["use_parallel_residual"], true);
  EXPECT_EQ(config["tie_word_embeddings"], false);
}

TEST_F(Convert, KeysForARunLieBesideTheCheckpoint) {
  model();
  to_ours("ours");
  dir_.put("run.yml", "train_iters: 1\ntrain_batch_size: 1\nseq_length: 7\nprecision: fp32\n");
  Config config = load_config({.files = {dir_ / "ours/model.yml", dir_ / "run.yml"}});
  config.model.vocab = *config.tokenizer.padded_vocab_size;
  EXPECT_EQ(architecture(config.model),
            Checkpoint(dir_ / "ours/global_step0").state().architecture);
  EXPECT_THAT(read_file(dir_ / "ours/model.yml"), Not(HasSubstr("tokenizer_type")));  // none named
}

TEST_F(Convert, TiedModelsHaveNoHead) {
  Json config = tiny_config();
  config["tie_word_embeddings"] = true;
  auto tensors = tiny_tensors();
  tensors.pop_back();
  model(tensors, config);
  to_ours("ours");
  to_hf("ours", "back");
  EXPECT_EQ(bytes_of(dir_ / "back"), bytes_of(dir_ / "hf"));
  EXPECT_EQ(written_config("back")["tie_word_embeddings"], true);
}

TEST_F(Convert, TiedHeadThatDiffersIsRefused) {
  Json config = tiny_config();
  config["tie_word_embeddings"] = true;
  model(tiny_tensors(), config);
  EXPECT_THAT(error(), HasSubstr("embed_out.weight differs from the embedding"));
}

TEST_F(Convert, RowsOfTheVocabularyAreAddedAndCutOff) {
  model();
  EXPECT_THAT(to_ours("ours", {"--padded-vocab", "32"}), HasSubstr("rows 29..31 are new, zeros"));
  EXPECT_EQ(Checkpoint(dir_ / "ours/global_step0").state().padded_vocab, 32);
  to_hf("ours", "wide");
  EXPECT_EQ(written_config("wide")["vocab_size"], 32);
  to_hf("ours", "back", {"--padded-vocab", "29"});
  EXPECT_EQ(bytes_of(dir_ / "back"), bytes_of(dir_ / "hf"));
}

TEST_F(Convert, TypesAreConverted) {
  model();
  EXPECT_THAT(to_ours("half", {"--dtype", "bf16"}), HasSubstr("fp32 -> bf16"));
  auto source = open_neox_cpp_tensors(dir_ / "half");
  auto want = open_weights(dir_ / "hf");
  for (const TensorInfo& info : want->tensors()) {
    std::string ours = info.name.starts_with("gpt_neox.") ? info.name.substr(9) : info.name;
    EXPECT_TRUE(source->read("param/" + ours).equal(want->read(info.name).to(at::kBFloat16)))
        << ours;
  }
}

TEST_F(Convert, ValuesThatATypeCannotHoldAreRefused) {
  model();
  std::string file = read_file(dir_ / "hf/model.safetensors");
  auto refusal = [&](float last, const std::string& dtype) {
    std::memcpy(file.data() + file.size() - sizeof last, &last, sizeof last);
    dir_.put("hf/model.safetensors", file);
    fs::remove_all(dir_ / "out");
    return error_of([&] { to_ours("out", {"--dtype", dtype}); });
  };
  EXPECT_THAT(refusal(1e6F, "fp16"),
              HasSubstr("embed_out.weight has values up to 1e+06, which fp16 cannot hold; convert "
                        "to bf16 or fp32"));
  EXPECT_THAT(refusal(3.4e38F, "bf16"), HasSubstr("which bf16 cannot hold; convert to fp32"));
  EXPECT_EQ(refusal(1e6F, "bf16"), "");
  EXPECT_EQ(refusal(INFINITY, "fp16"), "");
}

TEST_F(Convert, BuffersOfTransformersAreLeftOutByName) {
  auto tensors = tiny_tensors();
  tensors.push_back({"gpt_neox.layers.0.attention.rotary_emb.inv_freq", {3}});
  tensors.push_back({"gpt_neox.rotary_emb.inv_freq", {3}});
  tensors.push_back({"gpt_neox.layers.1.attention.bias", {1, 1, 2, 2}});
  model(tensors);
  std::string table = to_ours("ours");
  EXPECT_THAT(table, HasSubstr("left out: follows from the rotary base"));
  EXPECT_THAT(table, HasSubstr("left out: the causal mask, a constant"));
}

TEST_F(Convert, WrongModelsAreRefusedAndLeaveNothing) {
  auto tensors = tiny_tensors();
  tensors[5].shape = {kHidden, 3 * kHidden};
  model(tensors);
  EXPECT_THAT(error(), HasSubstr("query_key_value.weight is [12, 36], but [36, 12] by the "));
  tensors = tiny_tensors();
  tensors.push_back({"gpt_neox.layers.2.attention.dense.bias", {kHidden}});
  model(tensors);
  EXPECT_THAT(error(), HasSubstr("no place in the model: gpt_neox.layers.2.attention.dense.bias"));
  tensors = tiny_tensors();
  tensors.erase(tensors.begin() + 3);
  model(tensors);
  EXPECT_THAT(error(), HasSubstr("has no gpt_neox.layers.0.post_attention_layernorm.weight [12]"));
  model();
  fs::remove(dir_ / "hf/model.safetensors");
  EXPECT_THAT(error(), HasSubstr("has none of model.safetensors,"));
}

TEST_F(Convert, MissingOrForeignShardsAreRefused) {
  sharded();
  fs::rename(dir_ / "hf/b.safetensors", dir_ / "hf/c.safetensors");
  EXPECT_THAT(error(), HasSubstr("hf/b.safetensors is missing; "));
  fs::copy_file(dir_ / "hf/a.safetensors", dir_ / "hf/b.safetensors");
  EXPECT_THAT(error(), HasSubstr("does not say that gpt_neox.embed_in.weight is in b.safetensors"));
  dir_.put("hf/model.safetensors.index.json", R"({"weight_map": {"x": "../a.safetensors"}})");
  EXPECT_THAT(error(), HasSubstr("it must be a .safetensors file beside it"));
}

TEST_F(Convert, FieldsThatAreNotUnderstoodAreRefused) {
  auto with = [&](const char* field, const Json& value) {
    Json config = tiny_config();
    config[field] = value;
    model(tiny_tensors(), config);
    return error();
  };
  EXPECT_THAT(with("model_type", "mpt"),
              HasSubstr("model_type is mpt; supported are gpt_neox (GPTNeoXForCausalLM), gpt2"));
  EXPECT_THAT(with("architectures", {"GPTNeoXModel"}), HasSubstr("architectures is"));
  EXPECT_THAT(with("hidden_act", "quick_gelu"),
              HasSubstr("hidden_act is quick_gelu; supported are gelu"));
  EXPECT_THAT(with("attention_bias", false), HasSubstr("no place in the model: "));
  EXPECT_THAT(with("rope_scaling", {{"type", "dynamic"}, {"factor", 2}}),
              HasSubstr("rope_scaling.type is dynamic"));
  EXPECT_THAT(with("quantization_config", {{"bits", 4}}),
              HasSubstr("quantized weights are not read"));
  EXPECT_THAT(with("rope_theta", 1e6), HasSubstr("rope_theta is 1e+06, but another field gives"));
  EXPECT_THAT(with("sliding_window", 128),
              HasSubstr("the field sliding_window (128) is not known"));
  EXPECT_THAT(with("hidden_size", "twelve"),
              HasSubstr("hidden_size is \"twelve\", not an integer"));
  EXPECT_THAT(with("num_attention_heads", 5), HasSubstr("is not divisible by"));
}

TEST_F(Convert, EachKindOfScalingComesBack) {
  const Json kinds[] = {{{"rope_type", "linear"}, {"factor", 2.5}},
                        {{"rope_type", "yarn"}, {"factor", 4}, {"truncate", nullptr}},
                        {{"rope_type", "yarn"}, {"factor", 4}},
                        {{"type", "yarn"},
                         {"factor", 4},
                         {"beta_fast", 20},
                         {"beta_slow", 2},
                         {"truncate", false},
                         {"original_max_position_embeddings", 5},
                         {"mscale", 1.0},
                         {"mscale_all_dim", 0.5}}};
  auto read = [](const Json& config) {
    return config_of(family_of(config, "c.json"), config, "c.json").model;
  };
  std::vector<RotaryScaling> found;
  for (const Json& kind : kinds) {
    Json config = tiny_config();
    config["rope_scaling"] = kind;
    ModelConfig m = read(config);
    found.push_back(m.rotary_scaling);
    EXPECT_EQ(read(json_of(family_for(m, ""), m, "float32")).rotary_scaling, m.rotary_scaling);
  }
  EXPECT_EQ(found[0], (RotaryScaling{.kind = RotaryKind::kLinear, .factor = 2.5}));
  EXPECT_FALSE(found[1].truncate);  // as transformers takes null
  EXPECT_TRUE(found[2].truncate);
  EXPECT_EQ(found[2].original_positions, tiny_config().at("max_position_embeddings"));
  EXPECT_DOUBLE_EQ(found[2].attention_factor, 0.1 * std::log(4.0) + 1);
  EXPECT_DOUBLE_EQ(found[3].attention_factor,
                   (0.1 * std::log(4.0) + 1) / (0.05 * std::log(4.0) + 1));
  EXPECT_EQ(found[3].original_positions, 5);
}

TEST_F(Convert, FieldsOfNewerTransformersAreRead) {
  nlohmann::json config = tiny_config();
  for (const char* name : {"rotary_pct", "rotary_emb_base"}) config.erase(name);
  config["rope_parameters"] = {
      {"rope_theta", 20000.0}, {"partial_rotary_factor", 1.0}, {"rope_type", "default"}};
  config["attn_implementation"] = "sdpa";  // which computes the same
  ModelConfig read = config_of(family_of(config, "c.json"), config, "c.json").model;
  EXPECT_EQ(read.rotary_base, 20000);
  EXPECT_EQ(read.rotary_pct, 1);
}

TEST_F(Convert, TargetIsNotOverwritten) {
  model();
  dir_.put("out/mine", "precious");
  EXPECT_THAT(error_of([&] { to_ours("out"); }),
              HasSubstr("exists; name a directory that does not"));
  EXPECT_EQ(read_file(dir_ / "out/mine"), "precious");
}

TEST_F(Convert, InspectShowsTensorsAndStatistics) {
  dir_.put("x.safetensors", file_of(R"({"a.b":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})",
                                    std::string("\0\0\x80\x3f\0\0\0\x40\0\0\xc0\x7f", 12)));
  std::string text = run({"inspect", dir_ / "x.safetensors"});
  EXPECT_THAT(text, HasSubstr("a\n  b"));
  EXPECT_THAT(text, HasSubstr("min          1  max          2  mean        1.5  std        0.5"));
  EXPECT_THAT(text, HasSubstr("NOT FINITE: 1"));
  model();
  to_ours("ours");
  EXPECT_THAT(run({"inspect", dir_ / "ours"}), HasSubstr("\"padded_vocab\": 29"));
}

TEST_F(Convert, DiffNamesWhatDiffers) {
  model();
  to_ours("ours");
  EXPECT_EQ(run({"diff", dir_ / "hf", dir_ / "ours"}),
            "28 of 28 tensors that both have are equal bit for bit\n");
  to_ours("half", {"--dtype", "fp16"});
  std::string text = run({"diff", dir_ / "ours", dir_ / "half"}, Exit::kDiffers);
  EXPECT_THAT(text, HasSubstr("param/embed_in.weight"));
  EXPECT_THAT(text, HasSubstr("fp32 and fp16"));
  EXPECT_THAT(text, HasSubstr("0 of 28 tensors"));
}

TEST_F(Convert, CommandLineIsChecked) {
  model();
  EXPECT_THAT(error_of([&] {
                run({dir_ / "hf", dir_ / "out"});
              }),
              HasSubstr("64: to which format?"));
  EXPECT_THAT(error_of([&] {
                run({"--to", "onnx", dir_ / "hf", dir_ / "out"});
              }),
              HasSubstr("64: the format 'onnx' is not known; there are hf, neox.cpp"));
  EXPECT_THAT(error_of([&] {
                to_ours("out", {"--dtype", "int8"});
              }),
              HasSubstr("64: --dtype int8"));
  EXPECT_THAT(error_of([&] {
                to_ours("out", {"--max-shard-size", "5 parsecs"});
              }),
              HasSubstr("64: --max-shard-size 5 parsecs"));
  EXPECT_THAT(error_of([&] {
                run({"--to", "hf", dir_ / "nowhere", dir_ / "out"});
              }),
              HasSubstr("74: " + dir_ / "nowhere" + " does not exist"));
}

TEST_F(Convert, CommandsAndOptionsWithoutUseAreNamed) {
  model();
  EXPECT_THAT(error_of([&] {
                run({"inspct", dir_ / "hf"});
              }),
              HasSubstr("64: no command 'inspct'; did you mean neox-convert inspect?"));
  for (const char* option : {"--tensor-parallel", "--pipeline-parallel"})
    EXPECT_THAT(error_of([&] {
                  to_ours("out", {option, "2"});
                }),
                HasSubstr(concat("64: ", option, ": the files of neox.cpp are the same")));
}

TEST_F(Convert, RowsThatTheTokenizerUsesAreNotCutOff) {
  model();
  ::testing::internal::CaptureStderr();
  to_ours("unknown", {"--padded-vocab", "21"});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("cuts off rows 21..28 of"));
  write_tokenizer_json(dir_ / "hf/tokenizer.json",
                       train_bpe({.vocab_size = 256, .special_tokens = {}}, each({})));
  EXPECT_THAT(error_of([&] {
                to_ours("known", {"--padded-vocab", "21"});
              }),
              AllOf(HasSubstr("64: --padded-vocab 21"), HasSubstr("has 256 entries, so rows")));
  to_ours("known", {"--padded-vocab", "256"});
}

TEST_F(Convert, IncompleteCheckpointsOfOursAreNamed) {
  model();
  to_ours("ours");
  fs::remove(dir_ / "ours/global_step0/COMPLETE");
  for (const char* path : {"ours", "ours/global_step0"})
    EXPECT_THAT(error_of([&] { to_hf(path, "back"); }),
                AllOf(HasSubstr("74: "), HasSubstr("not complete: it has no COMPLETE")));
}

// Whole pages of large tensors go around the page cache, what lies before and behind them through.
TEST(SafetensorsWriter, LargeTensorsLieAtAnyOffset) {
  Directory dir;
  const int64_t large = (5 << 20) + 77;
  std::vector<TensorInfo> infos = {{"a", at::kByte, {3}},
                                   {"b", at::kByte, {large}},
                                   {"c", at::kByte, {large}},
                                   {"d", at::kByte, {5}}};
  std::map<std::string, at::Tensor> made;
  SafetensorsWriter writer(dir.path(), infos, int64_t{1} << 40);
  for (const TensorInfo& info : infos)
    made[info.name] = at::arange(info.shape[0], at::kLong).remainder(251).to(at::kByte);
  for (const auto& [name, tensor] : made) writer.write(name, tensor);
  writer.finish();
  SafetensorsFile file(dir / "model.safetensors");
  for (const auto& [name, tensor] : made) EXPECT_TRUE(file.read(name).equal(tensor)) << name;
}

TEST(CheckpointWriter, LeavesNothingThatWasNotFinished) {
  Directory dir;
  { CheckpointWriter writer({.dir = dir.path() / "run"}, 0); }
  EXPECT_TRUE(fs::is_empty(dir.path() / "run"));
}

}  // namespace
}  // namespace neox::testing
