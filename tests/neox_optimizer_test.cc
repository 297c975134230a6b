// The optimizer's state in checkpoints of GPT-NeoX: out of DeepSpeed's partitions, with what lets
// training go on.
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <numeric>

#include "checkpoint/checkpoint.h"
#include "convert/neox_files.h"
#include "convert/neox_names.h"
#include "neox_checkpoints.h"
#include "torchfile/tensor.h"
#include "torchfile/torch_writer.h"

namespace neox::testing {
namespace {

using ::testing::HasSubstr;
using torchfile::Item;
using torchfile::new_tensor;
using torchfile::write_torch_file;

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
  // piece[:size - padding] in Python.
  static int64_t kept(int64_t size, int64_t padding) {
    return size >= padding ? size - padding : std::max<int64_t>(0, 2 * size - padding);
  }
  static Item state(const NeoxFiles& files, int64_t rank, int64_t ranks) {
    Item::Items masters, paddings;
    Item::Entries states;
    for (const auto& group : groups_of(files)) {
      Item::Entries of_group;
      for (const char* key : {"master", "exp_avg", "exp_avg_sq"}) {
        at::Tensor vector = flat(key, group);
        int64_t size = (vector.numel() + 2 * ranks - 1) / (2 * ranks) * 2,
                all = ranks * size - vector.numel(), padding = rank + 1 == ranks ? all : 0;
        at::Tensor piece = at::cat({vector, at::zeros({all})}).narrow(0, rank * size, size);
        if (key == std::string("master")) {
          masters.push_back(new_tensor(piece.narrow(0, 0, kept(size, padding)).clone()));
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
    model.open_train_state(model);
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

// Of 27 the last rank has less of norms and biases than their padding.
TEST_F(NeoxOptimizerState, ComesOutOfPartitionsWhateverTheirNumber) {
  for (int64_t ranks : {1, 2, 3, 7, 27}) expect_states(zero(ranks));
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

TEST_F(NeoxOptimizerState, IsNotOpenedForWeightsAlone) {
  fs::path dir = zero(3);
  fs::remove(partition(dir, 1));
  std::ostringstream out;
  EXPECT_EQ(run_convert_command({"--to", "hf", dir.string(), dir_ / "hf"}, out), 0);
  EXPECT_THAT(out.str(), HasSubstr("left out: hf holds weights alone"));
  EXPECT_THAT(convert(dir, {"--dtype", "bf16"}), HasSubstr("left out: with --dtype the weights"));
}

TEST_F(NeoxOptimizerState, OfAnotherRunIsRefused) {
  fs::path dir = write(made(kLlama), 1, 1), other = zero(2);
  for (const char* name :
       {"mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "zero_pp_rank_1_mp_rank_00_optim_states.pt", "configs/training.yml"})
    fs::copy_file(step(other) / name, step(dir) / name, fs::copy_options::overwrite_existing);
  EXPECT_THAT(error(dir), HasSubstr("74: "));
  EXPECT_THAT(error(dir), HasSubstr("the optimizer"));
  EXPECT_FALSE(fs::exists(dir_ / "out"));
}

}  // namespace
}  // namespace neox::testing
