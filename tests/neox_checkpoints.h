// Models that GPT-NeoX has, made here, and their checkpoints.
#pragma once
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "convert/commands.h"
#include "convert/formats.h"
#include "data_files.h"
#include "model/parameters.h"

namespace neox::testing {

inline constexpr const char* kPythia =
    "num_layers: 3\nhidden_size: 24\nnum_attention_heads: 4\nseq_length: 8\npos_emb: rotary\n"
    "no_weight_tying: true\ngpt_j_residual: true\nintermediate_size: 40\n"
    "padded_vocab_size: 32\ntrain_iters: 20\ntrain_batch_size: 6\n"
    "train_micro_batch_size_per_gpu: 6\n";
inline constexpr const char* kLlama =
    "num_layers: 2\nhidden_size: 32\nnum_attention_heads: 8\nnum_kv_heads: 4\nseq_length: 8\n"
    "pos_emb: rotary\nnorm: rmsnorm\nactivation: swiglu\nintermediate_size: 60\n"
    "use_bias_in_attn_linear: false\nuse_bias_in_mlp: false\n"
    "padded_vocab_size: 32\ntrain_iters: 20\ntrain_micro_batch_size_per_gpu: 6\n";
inline constexpr const char* kOthers =
    "num_layers: 2\nhidden_size: 24\nnum_attention_heads: 4\nseq_length: 8\npos_emb: rpe\n"
    "gpt_j_residual: true\ngpt_j_tied: true\nactivation: geglu\nintermediate_size: 60\n"
    "padded_vocab_size: 32\ntrain_iters: 20\ntrain_micro_batch_size_per_gpu: 6\n";
inline constexpr const char* kGpt2 =
    "num_layers: 2\nhidden_size: 24\nnum_attention_heads: 4\nseq_length: 8\npos_emb: learned\n"
    "padded_vocab_size: 32\ntrain_iters: 20\ntrain_micro_batch_size_per_gpu: 6\n";
inline constexpr const char* kMixture =
    "num_layers: 3\nhidden_size: 24\nnum_attention_heads: 4\nseq_length: 8\npos_emb: rotary\n"
    "intermediate_size: 40\nmoe_num_experts: 4\nmoe_top_k: 2\nmoe_expert_interval: 2\n"
    "moe_router_type: topk\npadded_vocab_size: 32\ntrain_iters: 20\n"
    "train_micro_batch_size_per_gpu: 6\n";

// Multiples of 1/64, exact in every type and when they are divided by 4.
inline at::Tensor numbers(const std::string& name, const Dims& shape, double from = 0) {
  double shift = from + static_cast<double>(std::hash<std::string>()(name) % 97);
  return ((at::arange(num_elements(shape), at::kFloat) + shift).remainder(251) / 64).view(shape);
}

inline ModelFiles made(const char* yaml, at::ScalarType type = at::kFloat) {
  ModelFiles model{
      .where = "made", .config = load_config({.texts = {{"made.yml", yaml}}}), .files = {}};
  for (const ParamSpec& spec : parameters(model.config.model))
    model.tensors.push_back({{spec.name, type, spec.shape}, {}, [spec, type] {
                               return numbers(spec.name, spec.shape).to(type);
                             }});
  model.iteration = 9;
  return model;
}

class Neox : public ::testing::Test {
 protected:
  fs::path write(const ModelFiles& model, int64_t tensor, int64_t pipe) {
    fs::path dir = dir_.path() / concat("neox", tensor, pipe, next_++);
    make_directories(dir);
    write_neox(
        model,
        {.dir = dir, .final_dir = dir, .tensor_parallel = tensor, .pipeline_parallel = pipe});
    return dir;
  }
  fs::path step(const fs::path& dir) const { return dir / "global_step9"; }
  fs::path layer(const fs::path& dir, int n, int rank = 0) const {
    return step(dir) / concat("layer_0", n, "-model_0", rank, "-model_states.pt");
  }
  std::string error(const fs::path& dir) const {
    return error_of([&] {
      std::ostringstream out;
      run_convert_command({"--from", "neox", "--to", "neox.cpp", dir.string(), dir_ / "out"}, out);
    });
  }
  std::string convert(const fs::path& dir, const std::vector<std::string>& more = {}) const {
    std::ostringstream out;
    std::vector<std::string> arguments = {"--to", "neox.cpp", dir.string(), dir_ / "out"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(run_convert_command(arguments, out), 0);
    return out.str();
  }

  Directory dir_;
  int next_ = 0;
};

}  // namespace neox::testing
