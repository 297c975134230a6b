// Checkpoints of GPT-NeoX: what is written is read back, and what is damaged or missing is named.
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "checkpoint/checkpoint.h"
#include "config/architecture.h"
#include "neox_checkpoints.h"
#include "torchfile/tensor.h"
#include "torchfile/torch_writer.h"

namespace neox::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using torchfile::Item;
using torchfile::new_tensor;
using torchfile::write_torch_file;

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

TEST_F(Neox, ATensorIsReadOnceForAllRanks) {
  for (int64_t pipe : {0, 1}) {
    ModelFiles model = made(kPythia);
    size_t reads = 0;
    for (ModelTensor& t : model.tensors)
      t.read = [read = t.read, &reads] { return ++reads, read(); };
    write(model, 4, pipe);
    EXPECT_EQ(reads, model.tensors.size());
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

TEST_F(Neox, RmsNormsOfAnotherFormulaAreWarnedOf) {
  auto said = [&](const char* epsilon, const char* more) {
    std::string yaml = concat(kLlama, "rms_norm_epsilon: ", epsilon, "\n");
    fs::path dir = write(made(yaml.c_str()), 1, 1);
    std::ofstream(step(dir) / "configs/model.yml", std::ios::app) << more;
    ::testing::internal::CaptureStderr();
    open_neox(dir);
    return ::testing::internal::GetCapturedStderr();
  };
  const char* words = "has RMS norms with an epsilon of 1e-05. Until May 2025 GPT-NeoX computed";
  EXPECT_THAT(said("1e-5", ""), HasSubstr(words));
  EXPECT_THAT(said("1e-5", "rmsnorm_fusion: true\n"), Not(HasSubstr("Until")));
  EXPECT_THAT(said("1e-8", ""), Not(HasSubstr("Until")));
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

}  // namespace
}  // namespace neox::testing
