// Models of Hugging Face by hand, in a directory, and neox-convert on them.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "convert/commands.h"
#include "convert/weights.h"
#include "data_files.h"
#include "safetensors_files.h"

namespace neox::testing {

using Json = nlohmann::ordered_json;

struct Made {
  std::string name;
  Dims shape;
};

inline int64_t item(const std::string& type) { return type == "F32" ? 4 : type == "F64" ? 8 : 2; }

// Numbers of the type in -1..1, as bytes.
inline std::string numbers(const std::string& type, int64_t n, std::mt19937& rng) {
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

inline std::string tensors_file(const std::vector<Made>& tensors, const std::string& type,
                                int seed) {
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

inline constexpr int64_t kHidden = 12, kVocab = 29, kFfn = 20;

inline Json tiny_config() {
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

inline std::vector<Made> tiny_tensors() {
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
inline Bytes bytes_of(const fs::path& path) {
  Bytes all;
  auto source = open_weights(path);
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
  void model_of_rows(int64_t rows) {
    Json config = tiny_config();
    config["vocab_size"] = rows;
    std::vector<Made> tensors = tiny_tensors();
    for (Made& t : tensors)
      if (t.shape.front() == kVocab) t.shape.front() = rows;
    model(tensors, config);
  }
  // The same in two files.
  std::string sharded(const std::vector<Made>& all = tiny_tensors(),
                      const Json& config = tiny_config()) {
    std::vector<Made> a(all.begin(), all.begin() + 9), b(all.begin() + 9, all.end());
    Json map;
    for (const Made& t : a) map[t.name] = "a.safetensors";
    for (const Made& t : b) map[t.name] = "b.safetensors";
    dir_.put("hf/config.json", config.dump());
    dir_.put("hf/a.safetensors", tensors_file(a, "F32", 1));
    dir_.put("hf/b.safetensors", tensors_file(b, "F32", 2));
    dir_.put("hf/model.safetensors.index.json", Json{{"weight_map", map}}.dump());
    return dir_ / "hf";
  }
  std::string run(std::vector<std::string> arguments, Exit exit = Exit::kDone) const {
    std::ostringstream out;
    EXPECT_EQ(run_convert_command(arguments, out), static_cast<int>(exit));
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

}  // namespace neox::testing
