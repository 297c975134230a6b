// Checkpoints of Megatron-DeepSpeed: layouts there and back, what DeepSpeed's files say, and what
// is refused.
#include <gmock/gmock.h>

#include <sstream>

#include "convert/commands.h"
#include "convert/written_parts.h"
#include "megatron_files.h"

namespace neox::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(MegatronDeepSpeed, ReadsWhatItWrites) {
  for (auto write : {write_megatron_deepspeed, write_megatron_deepspeed_thirds})
    for (auto [tensor, pipeline] : {std::pair{1, 0}, {2, 0}, {1, 1}, {2, 2}}) {
      Directory dir;
      ModelFiles model = model_of(kGpt2);
      write(model, target_of(dir.path(), tensor, pipeline));
      EXPECT_EQ(detect_format(dir.path()).name, std::string("megatron-deepspeed"));
      EXPECT_EQ(difference(open_megatron_deepspeed(dir.path()), model), "");
    }
}

TEST(MegatronDeepSpeed, HasThirdsWhereAskedFor) {
  Directory dir;
  ModelFiles model = model_of(kGpt2);
  write_megatron_deepspeed(model, target_of(dir.path(), 2, 0));
  EXPECT_EQ(difference(open_megatron_deepspeed_thirds(dir.path()), model),
            "layers.0.attention.query_key_value.weight");
}

TEST(Megatron, ReadsFilesOfDeepSpeedInItsDirectories) {
  Directory dir;
  ModelFiles model = model_of(kGpt2);
  write_megatron_deepspeed(model, target_of(dir.path() / "in", 2, 0));
  for (const char* rank : {"mp_rank_00", "mp_rank_01"}) {
    fs::path to = dir.path() / "iter_0000003" / rank;
    fs::create_directories(to);
    fs::rename(dir.path() / "in/global_step3" / (rank + std::string("_model_states.pt")),
               to / "model_optim_rng.pt");
  }
  EXPECT_EQ(difference(open_megatron(dir.path() / "iter_0000003"), model), "");
}

TEST(Megatron, WritesNoGroupsInThirds) {
  Directory dir;
  std::string error = error_of(
      [&] { write_megatron_deepspeed_thirds(model_of(kLlama), target_of(dir.path(), 1, 1)); });
  EXPECT_THAT(error, AllOf(StartsWith("64"), HasSubstr("fewer heads of keys")));
}

TEST(MegatronDeepSpeed, NamesWhatIsMissing) {
  for (auto [pipeline, file, words] :
       {std::tuple{1, "layer_03-model_01-model_states.pt", "tensor-parallel rank 1 of 2"},
        {0, "mp_rank_01_model_states.pt", "lacks mp_rank_01_model_states.pt"},
        {1, "mp_rank_00_model_states.pt", "has no mp_rank_00_model_states.pt"}}) {
    Directory dir;
    write_megatron_deepspeed(model_of(kGpt2), target_of(dir.path() / "in", 2, pipeline));
    fs::remove(dir.path() / "in/global_step3" / file);
    EXPECT_THAT(converting(dir, "megatron-deepspeed", dir.path() / "in"),
                AllOf(StartsWith("74"), HasSubstr(words), Not(HasSubstr("LEFT"))));
  }
}

TEST(MegatronDeepSpeed, RefusesFilesOfTwoSteps) {
  for (auto [tensor, pipeline] : {std::pair{2, 0}, {1, 2}}) {
    Directory dir;
    ModelFiles model = model_of(kGpt2);
    write_megatron_deepspeed(model, target_of(dir.path() / "in", tensor, pipeline));
    model.iteration = 4;
    write_megatron_deepspeed(model, target_of(dir.path() / "other", tensor, pipeline));
    const char* file = "mp_rank_01_model_states.pt";
    fs::rename(dir.path() / "other/global_step4" / file, dir.path() / "in/global_step3" / file);
    EXPECT_THAT(converting(dir, "megatron-deepspeed", dir.path() / "in"),
                AllOf(StartsWith("74"), HasSubstr("has iteration 4, but"), HasSubstr("has 3")));
  }
}

// DeepSpeed counts the stages of a pipeline too; Megatron-DeepSpeed has one where it has none.
TEST(MegatronDeepSpeed, NamesItsSizesAsDeepSpeedDoes) {
  for (auto [tensor, pipeline] : {std::pair{2, 0}, {2, 1}, {2, 2}, {1, 4}}) {
    Directory dir;
    write_megatron_deepspeed(model_of(kGpt2), target_of(dir.path(), tensor, pipeline));
    torchfile::TorchFile last(dir.path() / numbered("global_step3/mp_rank_%02d_model_states.pt",
                                                    tensor * std::max(pipeline, 1) - 1));
    EXPECT_EQ(last.at("mp_world_size").as_int(), tensor * std::max(pipeline, 1));
    EXPECT_EQ(last.at("args.tensor_model_parallel_size").as_int(), tensor);
    EXPECT_EQ(last.at("args.pipeline_model_parallel_size").as_int(), std::max(pipeline, 1));
  }
}

TEST(MegatronDeepSpeed, NamesTheStageThatIsMissing) {
  Directory dir;
  write_megatron_deepspeed(model_of(kGpt2), target_of(dir.path(), 2, 2));
  fs::remove(dir.path() / "global_step3/mp_rank_03_model_states.pt");
  EXPECT_THAT(
      error_of([&] { open_megatron_deepspeed(dir.path()); }),
      AllOf(StartsWith("74"), HasSubstr("mp_world_size is 4, but 3 mp_rank files are there")));
}

TEST(MegatronDeepSpeed, RefusesZero3AndExperts) {
  for (auto [file, words] : {std::pair{"zero_pp_rank_0_mp_rank_00_model_states.pt", "ZeRO 3"},
                             {"layer_02_expert_0_mp_rank_00_model_states.pt", "experts"}}) {
    Directory dir;
    write_megatron_deepspeed(model_of(kGpt2), target_of(dir.path(), 1, 0));
    std::ofstream(dir.path() / "global_step3" / file) << "x";
    EXPECT_THAT(error_of([&] { open_megatron_deepspeed(dir.path()); }),
                AllOf(StartsWith("74"), HasSubstr(words)));
  }
}

TEST(Formats, AreFoundWhateverLatestNames) {
  Directory run, trainer, folder;
  write_neox_cpp(model_of(kGpt2), target_of(run.path(), 1, 1));
  run.put("latest", "global_step4");
  trainer.put("config.json", "{}");
  trainer.put("latest", "global_step4\n");
  folder.put("config.json", "{}");
  folder.put("latest/config.json", "{}");
  EXPECT_EQ(detect_format(run.path()).name, std::string("neox.cpp"));
  EXPECT_EQ(detect_format(trainer.path()).name, std::string("hf"));
  EXPECT_EQ(detect_format(folder.path()).name, std::string("hf"));
}

TEST(Formats, SayThatLatestNamesNothing) {
  for (const char* tag : {"global_step4", ""}) {
    Directory dir;
    dir.put("latest", tag);
    auto named = HasSubstr(concat("latest names '", tag, "', which is no directory beside it"));
    EXPECT_THAT(error_of([&] { detect_format(dir.path()); }), named);
    for (auto open : {open_neox, open_megatron_deepspeed})
      EXPECT_THAT(error_of([&] { open(dir.path()); }), named);
  }
}

// As transformers' Trainer saves with DeepSpeed.
TEST(Formats, AreSaidWhereTwoAreThere) {
  Directory dir;
  write_hf(model_of(kGpt2), target_of(dir.path() / "hf", 1, 1));
  write_neox_cpp(model_of(kGpt2), target_of(dir.path() / "ours", 1, 1));
  dir.put("hf/latest", "global_step3");
  for (const char* name : {"layer_00-model_00-model_states.pt", "mp_rank_00_model_states.pt"})
    dir.put(concat("hf/global_step3/", name), "x");
  auto run = [](const std::vector<std::string>& arguments) {
    std::ostringstream out;
    std::string error = error_of([&] { run_convert_command(arguments, out); });
    return out.str() + error;
  };
  std::string hf = dir / "hf", ours = dir / "ours";
  EXPECT_THAT(run({"inspect", hf}), HasSubstr("looks like hf and like neox; say with --from"));
  EXPECT_THAT(run({"inspect", "--from", "hf", hf}), HasSubstr(" tensors, "));
  EXPECT_THAT(run({"diff", "--from", "hf", hf, hf}), HasSubstr("are equal bit for bit"));
  EXPECT_THAT(run({"diff", hf, ours, "--from", "hf", "--from", "neox.cpp"}),
              HasSubstr("are equal bit for bit"));
  EXPECT_THAT(run({"diff", "--from=hf", "--from=hf", "--from=hf", hf, hf}), StartsWith("64: "));
}

}  // namespace
}  // namespace neox::testing
