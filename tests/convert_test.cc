// neox-convert: safetensors, names, configurations, round trips, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "checkpoint/checkpoint.h"
#include "convert/commands.h"
#include "convert/convert.h"
#include "convert/gpt_neox_hf.h"
#include "convert/inspect.h"
#include "convert/safetensors.h"
#include "data_files.h"
#include "safetensors_files.h"

namespace neox::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

struct Made {
  std::string name;
  Dims shape;
};

int64_t item(const std::string& type) { return type == "F32" ? 4 : type == "F64" ? 8 : 2; }

// Numbers of the type in -1..1, as bytes.
std::string numbers(const std::string& type, int64_t n, std::mt19937& rng) {
  std::string bytes;
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits = (rng() & 0x807fffff) | 0x3f000000;  // +-[0.5, 1)
    auto half = static_cast<uint16_t>((bits >> 16 & 0x8000) | 0x3800 | (rng() & 0x3ff));
    auto brain = static_cast<uint16_t>(bits >> 16);
    const void* from = type == "F32"   ? static_cast<const void*>(&bits)
                       : type == "F16" ? static_cast<const void*>(&half)
                                       : static_cast<const void*>(&brain);
    bytes.append(static_cast<const char*>(from), static_cast<size_t>(item(type)));
  }
  return bytes;
}

std::string tensors_file(const std::vector<Made>& tensors, const std::string& type, int seed) {
  std::mt19937 rng(static_cast<unsigned>(seed));
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const Made& t : tensors) {
    auto begin = data.size();
    data += numbers(type, num_elements(t.shape), rng);
    header[t.name] = {{"dtype", type}, {"shape", t.shape}, {"data_offsets", {begin, data.size()}}};
  }
  return file_of(header.dump(), data);
}

constexpr int64_t kHidden = 12, kVocab = 29, kFfn = 20;

Json tiny_config() {
  return {{"architectures", {"GPTNeoXForCausalLM"}},
          {"model_type", "gpt_neox"},
          {"hidden_size", kHidden},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 3},
          {"intermediate_size", kFfn},
          {"max_position_embeddings", 48},
          {"vocab_size", kVocab},
          {"rotary_pct", 0.5},
          {"rotary_emb_base", 5000},
          {"layer_norm_eps", 1e-6},
          {"hidden_act", "gelu_fast"},
          {"bos_token_id", 3},
          {"eos_token_id", 4},
          {"torch_dtype", "float32"},
          {"use_cache", true}};
}

std::vector<Made> tiny_tensors() {
  const std::vector<Made> layer = {{"input_layernorm.weight", {kHidden}},
                                   {"input_layernorm.bias", {kHidden}},
                                   {"post_attention_layernorm.weight", {kHidden}},
                                   {"post_attention_layernorm.bias", {kHidden}},
                                   {"attention.query_key_value.weight", {3 * kHidden, kHidden}},
                                   {"attention.query_key_value.bias", {3 * kHidden}},
                                   {"attention.dense.weight", {kHidden, kHidden}},
                                   {"attention.dense.bias", {kHidden}},
                                   {"mlp.dense_h_to_4h.weight", {kFfn, kHidden}},
                                   {"mlp.dense_h_to_4h.bias", {kFfn}},
                                   {"mlp.dense_4h_to_h.weight", {kHidden, kFfn}},
                                   {"mlp.dense_4h_to_h.bias", {kHidden}}};
  std::vector<Made> all = {{"gpt_neox.embed_in.weight", {kVocab, kHidden}}};
  for (const char* prefix : {"gpt_neox.layers.0.", "gpt_neox.layers.1."})
    for (const Made& t : layer) all.push_back({prefix + t.name, t.shape});
  all.push_back({"gpt_neox.final_layer_norm.weight", {kHidden}});
  all.push_back({"gpt_neox.final_layer_norm.bias", {kHidden}});
  all.push_back({"embed_out.weight", {kVocab, kHidden}});
  return all;
}

using Bytes = std::map<std::string, std::string>;

// Type, shape and bytes of each tensor.
Bytes bytes_of(const fs::path& path) {
  Bytes all;
  auto source = open_safetensors(path);
  for (const TensorInfo& info : source->tensors()) {
    at::Tensor t = source->read(info.name);
    all[info.name] = concat(type_words(info.dtype), to_string(info.shape)) +
                     std::string(static_cast<const char*>(t.const_data_ptr()), t.nbytes());
  }
  return all;
}

class Convert : public ::testing::Test {
 protected:
  std::string model(const std::vector<Made>& tensors = tiny_tensors(),
                    const Json& config = tiny_config(), const std::string& type = "F32") {
    dir_.put("hf/config.json", config.dump());
    dir_.put("hf/model.safetensors", tensors_file(tensors, type, 7));
    return dir_ / "hf";
  }
  // The same in two files.
  std::string sharded() {
    auto all = tiny_tensors();
    std::vector<Made> a(all.begin(), all.begin() + 9), b(all.begin() + 9, all.end());
    Json map;
    for (const Made& t : a) map[t.name] = "a.safetensors";
    for (const Made& t : b) map[t.name] = "b.safetensors";
    dir_.put("hf/config.json", tiny_config().dump());
    dir_.put("hf/a.safetensors", tensors_file(a, "F32", 1));
    dir_.put("hf/b.safetensors", tensors_file(b, "F32", 2));
    dir_.put("hf/model.safetensors.index.json", Json{{"weight_map", map}}.dump());
    return dir_ / "hf";
  }
  std::string run(std::vector<std::string> arguments) const {
    std::ostringstream out;
    EXPECT_EQ(run_convert_command(arguments, out), 0);
    return out.str();
  }
  std::string to_ours(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"--to", "neox.cpp", dir_ / "hf", dir_ / name};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  std::string to_hf(const std::string& from, const std::string& name,
                    const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"--to", "hf", dir_ / from, dir_ / name};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  // The error of converting hf/, after which nothing but hf/ is there.
  std::string error() const {
    std::string text = error_of([&] { to_ours("out"); });
    EXPECT_THAT(dir_.list(), ::testing::ElementsAre("hf"));
    return text;
  }
  Json written_config(const std::string& name) const {
    return Json::parse(read_file(dir_ / (name + "/config.json")));
  }

  Directory dir_;
};

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
  auto want = open_safetensors(dir_ / "hf");
  for (const TensorInfo& info : want->tensors()) {
    std::string ours = info.name.starts_with("gpt_neox.") ? info.name.substr(9) : info.name;
    EXPECT_TRUE(source->read("param/" + ours).equal(want->read(info.name).to(at::kBFloat16)))
        << ours;
  }
}

TEST_F(Convert, ValuesThatATypeCannotHoldAreRefused) {
  model();
  std::string file = read_file(dir_ / "hf/model.safetensors");
  const float large = 1e6f;
  std::memcpy(file.data() + file.size() - sizeof large, &large, sizeof large);
  dir_.put("hf/model.safetensors", file);
  EXPECT_THAT(error_of([&] {
                to_ours("out", {"--dtype", "fp16"});
              }),
              HasSubstr("embed_out.weight has values up to 1e+06, which fp16 cannot hold"));
  to_ours("out", {"--dtype", "bf16"});
}

TEST_F(Convert, BuffersOfTransformersAreLeftOutByName) {
  auto tensors = tiny_tensors();
  tensors.push_back({"gpt_neox.layers.0.attention.rotary_emb.inv_freq", {3}});
  tensors.push_back({"gpt_neox.layers.1.attention.bias", {1, 1, 2, 2}});
  model(tensors);
  std::string table = to_ours("ours");
  EXPECT_THAT(table, HasSubstr("left out: follows from rotary_emb_base"));
  EXPECT_THAT(table, HasSubstr("left out: the causal mask, a constant"));
}

TEST_F(Convert, TokenizerGoesAlong) {
  model();
  dir_.put("hf/tokenizer.json", "{\"model\": {}}");
  dir_.put("hf/generation_config.json", "{\"eos_token_id\": 4}");
  to_ours("ours");
  EXPECT_THAT(Checkpoint(dir_ / "ours/global_step0").state().config,
              HasSubstr("vocab_file: " + dir_ / "ours/hf/tokenizer.json"));
  to_hf("ours", "back");
  for (const char* name : {"tokenizer.json", "generation_config.json"})
    EXPECT_EQ(read_file(fs::path(dir_ / "back") / name), read_file(fs::path(dir_ / "hf") / name));
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
  dir_.put("hf/pytorch_model.bin", "");
  fs::remove(dir_ / "hf/model.safetensors");
  EXPECT_THAT(error(), HasSubstr("has neither model.safetensors nor"));
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
  EXPECT_THAT(with("model_type", "llama"), HasSubstr("model_type is llama; supported is gpt_neox"));
  EXPECT_THAT(with("architectures", {"GPTNeoXModel"}), HasSubstr("architectures is"));
  EXPECT_THAT(with("hidden_act", "silu"), HasSubstr("hidden_act is silu; supported are gelu"));
  EXPECT_THAT(with("attention_bias", false), HasSubstr("attention_bias is false"));
  EXPECT_THAT(with("rope_scaling", {{"type", "linear"}, {"factor", 2}}),
              HasSubstr("rope_scaling.type is linear"));
  EXPECT_THAT(with("rope_theta", 1e6), HasSubstr("rope_theta is 1e+06, but another field gives"));
  EXPECT_THAT(with("sliding_window", 128),
              HasSubstr("the field sliding_window (128) is not known"));
  EXPECT_THAT(with("hidden_size", "twelve"),
              HasSubstr("hidden_size is \"twelve\", not an integer"));
  EXPECT_THAT(with("num_attention_heads", 5), HasSubstr("is not divisible by"));
}

TEST_F(Convert, FieldsOfNewerTransformersAreRead) {
  nlohmann::json config = {{"model_type", "gpt_neox"}, {"hidden_size", 64}};
  config["rope_parameters"] = {
      {"rope_theta", 20000.0}, {"partial_rotary_factor", 0.75}, {"rope_type", "default"}};
  std::string yaml = gpt_neox_yaml(config, "config.json");
  EXPECT_THAT(yaml, HasSubstr("rotary_emb_base: 20000.0\n"));
  EXPECT_THAT(yaml, HasSubstr("rotary_pct: 0.75\n"));
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
  std::string text = run({"diff", dir_ / "ours", dir_ / "half"});
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

TEST(CheckpointWriter, LeavesNothingThatWasNotFinished) {
  Directory dir;
  { CheckpointWriter writer({.dir = dir.path() / "run"}, 0); }
  EXPECT_TRUE(fs::is_empty(dir.path() / "run"));
}

}  // namespace
}  // namespace neox::testing
