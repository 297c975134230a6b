// Checkpoints of GPT-NeoX: what is written is read back, the optimizer's state with it, and what is
// damaged or missing is named.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <sstream>

#include "checkpoint/checkpoint.h"
#include "config/architecture.h"
#include "convert/commands.h"
#include "convert/formats.h"
#include "convert/neox_files.h"
#include "convert/neox_names.h"
#include "data_files.h"
#include "model/parameters.h"
#include "torchfile/tensor.h"
#include "torchfile/torch_writer.h"

namespace neox::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torchfile::Item;
using torchfile::new_tensor;
using torchfile::write_torch_file;

constexpr const char* kPythia =
    "num_layers: 3\nhidden_size: 24\nnum_attention_heads: 4\nseq_length: 8\npos_emb: rotary\n"
    "no_weight_tying: true\ngpt_j_residual: true\nintermediate_size: 40\n"
    "padded_vocab_size: 32\ntrain_iters: 20\ntrain_batch_size: 6\n"
    "train_micro_batch_size_per_gpu: 6\n";
constexpr const char* kLlama =
    "num_layers: 2\nhidden_size: 32\nnum_attention_heads: 8\nnum_kv_heads: 4\nseq_length: 8\n"
    "pos_emb: rotary\nnorm: rmsnorm\nactivation: swiglu\nintermediate_size: 60\n"
    "use_bias_in_attn_linear: false\nuse_bias_in_mlp: false\n"
    "padded_vocab_size: 32\ntrain_iters: 20\ntrain_micro_batch_size_per_gpu: 6\n";
constexpr const char* kOthers =
    "num_layers: 2\nhidden_size: 24\nnum_attention_heads: 4\nseq_length: 8\npos_emb: rpe\n"
    "gpt_j_residual: true\ngpt_j_tied: true\nactivation: geglu\nintermediate_size: 60\n"
    "padded_vocab_size: 32\ntrain_iters: 20\ntrain_micro_batch_size_per_gpu: 6\n";
constexpr const char* kGpt2 =
    "num_layers: 2\nhidden_size: 24\nnum_attention_heads: 4\nseq_length: 8\npos_emb: learned\n"
    "padded_vocab_size: 32\ntrain_iters: 20\ntrain_micro_batch_size_per_gpu: 6\n";
constexpr const char* kMixture =
    "num_layers: 3\nhidden_size: 24\nnum_attention_heads: 4\nseq_length: 8\npos_emb: rotary\n"
    "intermediate_size: 40\nmoe_num_experts: 4\nmoe_top_k: 2\nmoe_expert_interval: 2\n"
    "moe_router_type: topk\npadded_vocab_size: 32\ntrain_iters: 20\n"
    "train_micro_batch_size_per_gpu: 6\n";

// Multiples of 1/64, exact in every type and when they are divided by 4.
at::Tensor numbers(const std::string& name, const Dims& shape, double from = 0) {
  double shift = from + static_cast<double>(std::hash<std::string>()(name) % 97);
  return ((at::arange(num_elements(shape), at::kFloat) + shift).remainder(251) / 64).view(shape);
}

ModelFiles made(const char* yaml, at::ScalarType type = at::kFloat) {
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

TEST_F(Neox, WhatIsWrittenIsReadBackAtAnySize) {
  for (const char* yaml : {kPythia, kLlama, kOthers, kGpt2, kMixture})
    for (at::ScalarType type : {at::kFloat, at::kHalf})
      for (auto [tensor, pipe] : {std::pair(1, 1), {2, 0}, {4, 2}, {1, 0}}) {
        ModelFiles model = made(yaml, type), back = open_neox(write(model, tensor, pipe));
        EXPECT_EQ(back.iteration, 9);
        EXPECT_EQ(architecture(back.config.model), architecture(model.config.model));
        ASSERT_EQ(back.tensors.size(), model.tensors.size());
        for (size_t i = 0; i < model.tensors.size(); ++i) {
          EXPECT_EQ(back.tensors[i].info.dtype, type);
          EXPECT_TRUE(back.tensors[i].read().equal(model.tensors[i].read()))
              << back.tensors[i].info.name << " of " << tensor << " x " << pipe;
        }
      }
}

TEST_F(Neox, TheCommandLineFindsTheFormatAndTheSizes) {
  fs::path dir = write(made(kPythia), 1, 1);
  EXPECT_THAT(convert(dir), HasSubstr("state of the optimizer"));
  EXPECT_EQ(Checkpoint(dir_ / "out/global_step0").state().padded_vocab, 32);
  std::ostringstream out;
  run_convert_command({"--to", "neox", dir_ / "out", dir_ / "back", "--tensor-parallel", "2"}, out);
  EXPECT_EQ(read_file(dir_ / "back/latest"), "global_step0");
  EXPECT_EQ(open_neox(dir_ / "back").tensors[0].info.shape, (Dims{32, 24}));
  std::vector<std::string> more = {"--to", "neox", dir_ / "out", dir_ / "x", "--tensor-parallel"};
  auto refusal = [&](const char* ranks) {
    more.resize(5), more.push_back(ranks);
    return error_of([&] { run_convert_command(more, out); });
  };
  EXPECT_THAT(refusal("3"), HasSubstr("64: the 32 rows of the embedding cannot be shared out"));
  EXPECT_THAT(refusal("8"), HasSubstr("64: --tensor-parallel 8 does not divide the 4 attention"));
  EXPECT_FALSE(fs::exists(dir_ / "x"));
}

TEST_F(Neox, MissingFilesAreNamed) {
  fs::path dir = write(made(kPythia), 2, 2);
  fs::remove(layer(dir, 3, 1));
  EXPECT_THAT(error(dir), HasSubstr("74: " + layer(dir, 3, 1).string() + " is missing; there are"));
  dir = write(made(kPythia), 2, 2);
  fs::remove(step(dir) / "mp_rank_01_model_states.pt");
  EXPECT_THAT(error(dir), HasSubstr("mp_rank_01_model_states.pt is missing; mp_rank_02"));
  dir = write(made(kPythia), 2, 2);
  fs::remove(step(dir) / "mp_rank_03_model_states.pt");
  EXPECT_THAT(error(dir), HasSubstr("has 3 mp_rank files and layers of 2 tensor-parallel ranks"));
  dir = write(made(kPythia), 1, 1);
  fs::remove(layer(dir, 3));
  EXPECT_THAT(error(dir),
              HasSubstr("layer_03-model_00-model_states.pt has no input_layernorm.weight"));
  dir = write(made(kPythia), 1, 1);
  fs::remove_all(step(dir) / "configs");
  EXPECT_THAT(error(dir), HasSubstr("configs has no configuration; put the YAML files there"));
  dir = write(made(kPythia), 1, 1);
  fs::rename(step(dir), dir / "global_step8");
  EXPECT_THAT(error(dir), HasSubstr("latest names 'global_step9', which is no directory"));
  EXPECT_FALSE(fs::exists(dir_ / "out"));
}

TEST_F(Neox, AnotherWorldThanTheFilesSayIsRefused) {
  fs::path dir = write(made(kPythia), 2, 1);
  for (const auto& entry : fs::directory_iterator(step(dir)))
    if (entry.path().filename().string().find("model_01") != std::string::npos)
      fs::remove(entry.path());
  fs::remove(step(dir) / "mp_rank_01_model_states.pt");
  EXPECT_THAT(error(dir), HasSubstr("mp_world_size is 2, but 1 mp_rank files are there"));
  fs::remove(step(dir) / "mp_rank_00_model_states.pt");
  EXPECT_THAT(error(dir), HasSubstr("model_parallel_size is 2, but "));
  dir = write(made(kPythia), 1, 1);
  fs::copy_file(step(write(made(kPythia), 2, 1)) / "mp_rank_00_model_states.pt",
                step(dir) / "mp_rank_00_model_states.pt", fs::copy_options::overwrite_existing);
  EXPECT_THAT(error(dir), HasSubstr("mp_world_size is 2"));
}

TEST_F(Neox, DamagedFilesAreNamed) {
  fs::path dir = write(made(kPythia), 1, 1);
  fs::resize_file(layer(dir, 2), fs::file_size(layer(dir, 2)) - 100);
  EXPECT_THAT(error(dir), HasSubstr("74: " + layer(dir, 2).string()));
  const std::string old =
      std::string("\x80\x02\x8a\x0a", 4) + "l\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
  dir_.put(fs::relative(layer(dir, 2), dir_.path()).string(), old);
  EXPECT_THAT(error(dir), HasSubstr("is in torch.save's format of before PyTorch 1.6"));
  write_torch_file(layer(dir, 2), Item::list({1}));
  EXPECT_THAT(error(dir), HasSubstr("is not a dict of tensors"));
  EXPECT_FALSE(fs::exists(dir_ / "out"));
}

TEST_F(Neox, TensorsThatDoNotFitTheModelAreNamed) {
  fs::path dir = write(made(kPythia), 1, 1);
  auto norm = [&](Item::Entries tensors) {
    write_torch_file(layer(dir, 6), Item::ordered_dict(tensors));
  };
  Item weight = new_tensor(at::zeros({24})), wide = new_tensor(at::zeros({25}));
  norm({{"norm.weight", weight}, {"norm.bias", wide}});
  EXPECT_THAT(error(dir), HasSubstr("norm.bias is [25], but [24] by the configuration"));
  norm({{"norm.weight", weight}, {"norm.bias", weight}, {"norm.offset", weight}});
  EXPECT_THAT(error(dir), HasSubstr("holds norm.offset [24] of layer 6, which has no place"));
  norm({{"norm.weight", weight}});
  EXPECT_THAT(error(dir), HasSubstr("layer_06-model_00-model_states.pt has no norm.bias"));
  norm({{"norm.weight", weight}, {"norm.bias", new_tensor(at::zeros({24}, at::kLong))}});
  EXPECT_THAT(error(dir), HasSubstr("norm.bias has the type Long; parameters are"));
  norm({{"norm.weight", weight}, {"norm.bias", 3}});
  EXPECT_THAT(error(dir), HasSubstr("norm.bias is an int, not a tensor"));
}

TEST_F(Neox, BuffersAndCopiesAreLeftOutByName) {
  fs::path dir = write(made(kOthers), 1, 1);
  std::string table = convert(dir);
  EXPECT_THAT(table, HasSubstr("left out: a copy of that of the first block"));
  EXPECT_THAT(table, HasSubstr("left out: not used where gpt_j_tied is true"));
}

TEST_F(Neox, WhatGptNeoxDoesNotHaveIsRefused) {
  std::string yaml = concat(kPythia, "use_qk_layernorm: true\n");
  EXPECT_THAT(error_of([&] { write(made(yaml.c_str()), 1, 1); }),
              HasSubstr("64: the model norms queries and keys head by head"));
  yaml = concat(kMixture, "gpt_j_residual: true\n");
  EXPECT_THAT(error_of([&] { write(made(yaml.c_str()), 1, 1); }),
              HasSubstr("64: GPT-NeoX loses what attention gives"));
  yaml = concat(kMixture, "moe_normalize_expert_weights: true\n");
  EXPECT_THAT(error_of([&] { write(made(yaml.c_str()), 1, 1); }),
              HasSubstr("64: GPT-NeoX does not divide the weights"));
  yaml = concat(kLlama, "moe_num_experts: 4\n");
  EXPECT_THAT(error_of([&] { write(made(yaml.c_str()), 1, 1); }),
              HasSubstr("64: the experts of GPT-NeoX are not gated"));
  EXPECT_THAT(error_of([&] { write(made(kMixture), 8, 1); }),
              HasSubstr("64: a tensor [4, 40, 24] of 4 experts cannot be shared out over 8"));
}

// ---- the optimizer's state ----------------------------------------------------------------------

// The parameters of TP 1 in GPT-NeoX's order, in its two groups.
std::array<std::vector<const NeoxTensor*>, 2> groups_of(const NeoxFiles& files) {
  std::array<std::vector<const NeoxTensor*>, 2> groups;
  for (const NeoxTensor& t : files.all()) groups[neox_decays(t.name) ? 0 : 1].push_back(&t);
  return groups;
}

at::Tensor moment(const std::string& state, const NeoxTensor& t) {
  return numbers(concat(state, t.layer, t.name), t.ref->sizes, 3);
}

at::Tensor flat(const std::string& state, const std::vector<const NeoxTensor*>& group) {
  std::vector<at::Tensor> all;
  for (const NeoxTensor* t : group) all.push_back(moment(state, *t).flatten());
  return at::cat(all);
}

class NeoxOptimizerState : public Neox {
 protected:
  // zero_pp_rank files of `ranks` data-parallel ranks, padded to a multiple of 2 x ranks.
  fs::path zero(int64_t ranks) {
    fs::path dir = write(made(kPythia), 1, 1);
    NeoxFiles files(dir);
    Item::Items shapes;
    for (const auto& group : groups_of(files)) {
      Item::Entries names;
      for (const NeoxTensor* t : group) {
        Item::Items sizes(t->ref->sizes.begin(), t->ref->sizes.end());
        names.emplace_back(concat(t->layer, ".", t->name), Item::tuple(sizes));
      }
      shapes.push_back(Item::ordered_dict(names));
    }
    for (int64_t rank = 0; rank < ranks; ++rank)
      write_torch_file(partition(dir, rank),
                       Item::dict({{"optimizer_state_dict", state(files, rank, ranks)}}));
    state_file(dir, ranks, {{"param_shapes", Item::list(shapes)}, {"optimizer", Item()}});
    std::ofstream(step(dir) / "configs/training.yml")
        << "train_iters: 20\ntrain-micro-batch-size-per-gpu: " << 6 / std::gcd(6, ranks) << "\n";
    return dir;
  }
  fs::path partition(const fs::path& dir, int64_t rank) const {
    return step(dir) / concat("zero_pp_rank_", rank, "_mp_rank_00_optim_states.pt");
  }
  void state_file(const fs::path& dir, int64_t ranks, Item::Entries more) const {
    Item::Entries all = {
        {"module", Item()},       {"iteration", 9},
        {"skipped_steps", 2},     {"mp_world_size", 1},
        {"dp_world_size", ranks}, {"ds_config", Item::dict({{"train_batch_size", 6}})}};
    all.insert(all.end(), more.begin(), more.end());
    write_torch_file(step(dir) / "mp_rank_00_model_states.pt", Item::dict(all));
  }
  static Item state(const NeoxFiles& files, int64_t rank, int64_t ranks) {
    Item::Items masters, paddings;
    Item::Entries states;
    for (const auto& group : groups_of(files)) {
      Item::Entries of_group;
      for (const char* key : {"master", "exp_avg", "exp_avg_sq"}) {
        at::Tensor vector = flat(key, group);
        int64_t size = (vector.numel() + 2 * ranks - 1) / (2 * ranks) * 2,
                padding = std::clamp<int64_t>((rank + 1) * size - vector.numel(), 0, size);
        at::Tensor padded = at::cat({vector, at::zeros({ranks * size - vector.numel()})}),
                   piece = padded.narrow(0, rank * size, size);
        if (key == std::string("master")) {
          masters.push_back(new_tensor(piece.narrow(0, 0, size - padding).clone()));
          paddings.push_back(padding);
        } else {
          of_group.emplace_back(key, new_tensor(piece.clone()));
        }
      }
      states.emplace_back(static_cast<int64_t>(states.size()), Item::dict(of_group));
    }
    return Item::dict({{"single_partition_of_fp32_groups", Item::list(masters)},
                       {"group_paddings", Item::list(paddings)},
                       {"base_optimizer_state", Item::dict({{"state", Item::dict(states)}})}});
  }
  // Each state of each tensor is that of the file, in the names of the source.
  void expect_states(const fs::path& dir) const {
    ModelFiles model = open_neox(dir);
    NeoxFiles files(dir);
    ASSERT_TRUE(model.train.has_value());
    for (const ModelTensor& t : model.tensors) {
      NeoxPlace place = neox_place(model.config.model, t.info.name);
      const NeoxTensor& source = *files.find(place.layer, 0, place.names[0][0]);
      std::map<std::string, std::string> keys = {
          {"param", "master"}, {"adam_m", "exp_avg"}, {"adam_v", "exp_avg_sq"}};
      EXPECT_EQ(t.states.size(), 3u);
      for (const StateTensor& s : t.states)
        EXPECT_TRUE(s.read().equal(moment(keys.at(s.state), source)))
            << s.state << " " << t.info.name;
    }
  }
};

TEST_F(NeoxOptimizerState, ComesOutOfPartitionsWhateverTheirNumber) {
  for (int64_t ranks : {1, 2, 3, 7}) expect_states(zero(ranks));
}

TEST_F(NeoxOptimizerState, TrainingGoesOnWhereItWas) {
  std::string table = convert(zero(2));
  EXPECT_THAT(table, HasSubstr("iteration 9, step 7, 54 samples taken"));
  Checkpoint checkpoint(dir_ / "out/global_step9");
  const TrainState& state = checkpoint.state();
  EXPECT_EQ(state.iteration, 9);
  EXPECT_EQ(state.optimizer_steps, 7);
  EXPECT_EQ(state.global_batch, 6);
  EXPECT_EQ(state.consumed_samples, 54);
  EXPECT_EQ(state.dataset_samples, 120);
  EXPECT_EQ(state.padded_vocab, 32);
  std::map<std::string, int> states;
  for (const auto& t : checkpoint.tensors()) ++states[t.state];
  EXPECT_EQ(states, (std::map<std::string, int>{{"param", 40}, {"adam_m", 40}, {"adam_v", 40}}));
  std::vector<Ignored> left_out = open_neox_cpp(dir_ / "out").ignored;
  ASSERT_EQ(left_out.size(), 1u);
  EXPECT_EQ(left_out[0].name, "adam_m/* adam_v/*");
  EXPECT_EQ(left_out[0].reason, "state of the optimizer, 80 tensors");
}

TEST_F(NeoxOptimizerState, IsLeftOutByNameWithAnotherType) {
  EXPECT_THAT(convert(zero(2), {"--dtype", "bf16"}),
              HasSubstr("left out: with --dtype the weights"));
  EXPECT_EQ(Checkpoint(dir_ / "out/global_step0").state().global_batch, 0);
}

TEST_F(NeoxOptimizerState, IsLeftOutWhereTheOrderOfSamplesIsNotKnown) {
  fs::path dir = zero(2);
  fs::remove(step(dir) / "configs/training.yml");
  EXPECT_THAT(convert(dir), HasSubstr("left out: configs/ does not say train_iters"));
}

TEST_F(NeoxOptimizerState, IsLeftOutOfARunInEpochs) {
  fs::path dir = zero(2);
  std::ofstream(step(dir) / "configs/training.yml")
      << "train-epochs: 2\ntrain-micro-batch-size-per-gpu: 3\n";
  EXPECT_THAT(convert(dir), HasSubstr("left out: configs/ does not say train_iters"));
}

TEST_F(NeoxOptimizerState, MissingPartitionsAreNamed) {
  fs::path dir = zero(3);
  fs::remove(partition(dir, 1));
  EXPECT_THAT(error(dir), HasSubstr("zero_pp_rank_1_mp_rank_00_optim_states.pt is missing"));
  dir = zero(3);
  fs::remove(partition(dir, 2));
  EXPECT_THAT(error(dir), HasSubstr("dp_world_size is 3, but zero_pp_rank files of 2 "));
  dir = zero(7);
  fs::copy_file(partition(dir, 0), partition(dir, 6), fs::copy_options::overwrite_existing);
  EXPECT_THAT(error(dir), HasSubstr("elements, of them"));
  dir = zero(2);
  write_torch_file(partition(dir, 1), Item::dict({}));
  EXPECT_THAT(error(dir), HasSubstr("74: " + partition(dir, 1).string()));
}

TEST_F(NeoxOptimizerState, OfAnotherRunIsRefused) {
  fs::path dir = write(made(kLlama), 1, 1), other = zero(2);
  for (const char* name :
       {"mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "zero_pp_rank_1_mp_rank_00_optim_states.pt"})
    fs::copy_file(step(other) / name, step(dir) / name, fs::copy_options::overwrite_existing);
  EXPECT_THAT(error(dir), HasSubstr("74: "));
  EXPECT_THAT(error(dir), HasSubstr("the optimizer"));
  EXPECT_FALSE(fs::exists(dir_ / "out"));
}

}  // namespace
}  // namespace neox::testing
