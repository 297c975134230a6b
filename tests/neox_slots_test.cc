// Checkpoints of GPT-NeoX from February to November 2024 with fewer keys than queries: the slots
// that their rows lie in, and what is said where the files do not tell.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "convert/formats.h"
#include "convert/neox_files.h"
#include "convert/neox_names.h"
#include "convert/tp_parts.h"
#include "data_files.h"
#include "model/parameters.h"
#include "torchfile/tensor.h"
#include "torchfile/torch_writer.h"

namespace neox::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using torchfile::Item;
using torchfile::new_tensor;
using torchfile::write_torch_file;
using enum TpSplit;

constexpr TpForm kSlots{kQkvSlots, 4, 2};

std::string yaml_of(int64_t groups) {
  return concat("num_layers: 2\nhidden_size: 32\nnum_attention_heads: 8\nnum_kv_heads: ", groups,
                "\nseq_length: 8\npos_emb: rotary\nnorm: rmsnorm\nactivation: swiglu\n"
                "intermediate_size: 60\nuse_bias_in_mlp: false\nuse_bias_in_attn_linear: false\n"
                "no_weight_tying: true\npadded_vocab_size: 32\ntrain_iters: 20\n"
                "train_batch_size: 6\ntrain_micro_batch_size_per_gpu: 6\n");
}

ModelFiles made(int64_t groups) {
  ModelFiles model{.where = "made",
                   .config = load_config({.texts = {{"made.yml", yaml_of(groups)}}}),
                   .files = {}};
  int64_t from = 0;
  for (const ParamSpec& spec : parameters(model.config.model)) {
    int64_t n = num_elements(spec.shape);
    model.tensors.push_back({{spec.name, at::kFloat, spec.shape}, {}, [=] {
                               return at::arange(from, from + n, at::kFloat).view(spec.shape);
                             }});
    from += n;
  }
  model.iteration = 9;
  return model;
}

class NeoxSlots : public ::testing::Test {
 protected:
  fs::path write(const ModelFiles& model, int64_t tensor) {
    fs::path dir = dir_.path() / concat("neox", next_++);
    make_directories(dir);
    write_neox(model, {.dir = dir, .final_dir = dir, .tensor_parallel = tensor});
    return dir;
  }
  // The same files with the rows in slots, and w1, w2, w3 where asked for.
  fs::path in_slots(int64_t tensor, bool old_names) {
    fs::path dir = write(made(4), tensor);
    for (int layer : {2, 3})
      for (int64_t rank = 0; rank < tensor; ++rank) rewrite(dir, layer, rank, tensor, old_names);
    return dir;
  }
  static void rewrite(const fs::path& dir, int layer, int64_t rank, int64_t ranks, bool old_names) {
    NeoxFiles files(dir);
    TpForm runs{kQkv, 4 / ranks, 2}, slots{kQkvSlots, 4 / ranks, 2};
    Item::Entries entries;
    for (const NeoxTensor* t : files.layer(layer, rank)) {
      at::Tensor tensor = files.read(files.full_name(*t));
      if (t->name == "attention.query_key_value.weight")
        tensor = part_of(slots, join_parts(runs, {tensor}), 0, 1);
      if (old_names && t->name == "mlp.linear1.weight") {
        auto halves = tensor.chunk(2);
        entries.emplace_back("mlp.w3.weight", new_tensor(halves[0].clone()));
        entries.emplace_back("mlp.w1.weight", new_tensor(halves[1].clone()));
        continue;
      }
      bool second = old_names && t->name == "mlp.linear2.weight";
      entries.emplace_back(second ? "mlp.w2.weight" : t->name, new_tensor(tensor));
    }
    write_torch_file(files.file_of(layer, rank), Item::ordered_dict(entries));
  }
  // ZeRO 1 of one rank, whose masters and moments are the parameters.
  static void add_optimizer(const fs::path& dir) {
    NeoxFiles files(dir);
    Item::Items masters, paddings, shapes;
    Item::Entries states;
    for (bool decays : {true, false}) {
      std::vector<at::Tensor> all;
      Item::Entries names;
      for (const NeoxTensor& t : files.all()) {
        if (neox_decays(t.name) != decays) continue;
        all.push_back(files.read(files.full_name(t)).flatten());
        Item::Items sizes(t.ref->sizes.begin(), t.ref->sizes.end());
        names.emplace_back(concat(t.layer, ".", t.name), Item::tuple(sizes));
      }
      Item flat = new_tensor(at::cat(all));
      masters.push_back(flat), paddings.push_back(0), shapes.push_back(Item::ordered_dict(names));
      states.emplace_back(static_cast<int64_t>(states.size()),
                          Item::dict({{"exp_avg", flat}, {"exp_avg_sq", flat}}));
    }
    fs::path step = dir / "global_step9";
    write_torch_file(
        step / "zero_pp_rank_0_mp_rank_00_optim_states.pt",
        Item::dict({{"optimizer_state_dict",
                     Item::dict({{"single_partition_of_fp32_groups", Item::list(masters)},
                                 {"group_paddings", Item::list(paddings)},
                                 {"base_optimizer_state",
                                  Item::dict({{"state", Item::dict(states)}})}})}}));
    write_torch_file(step / "mp_rank_00_model_states.pt",
                     Item::dict({{"module", Item()},
                                 {"iteration", 9},
                                 {"mp_world_size", 1},
                                 {"dp_world_size", 1},
                                 {"optimizer", Item()},
                                 {"param_shapes", Item::list(shapes)},
                                 {"ds_config", Item::dict({{"train_batch_size", 6}})}}));
    std::ofstream(step / "configs/training.yml")
        << "train_iters: 20\ntrain_micro_batch_size_per_gpu: 6\n";
  }
  static std::string difference(const ModelFiles& a, const ModelFiles& b) {
    for (size_t i = 0; i < a.tensors.size(); ++i)
      if (!a.tensors[i].read().equal(b.tensors[i].read())) return a.tensors[i].info.name;
    return "";
  }
  static std::string said(const fs::path& dir) {
    ::testing::internal::CaptureStderr();
    open_neox(dir);
    return ::testing::internal::GetCapturedStderr();
  }

  Directory dir_;
  int next_ = 0;
};

// Two groups of two queries, head size 2: ours are q0 q0 q1 q1 k k v v, and the same again.
TEST(TpParts, SlotsHaveAQueryAndItsShareOfKeyAndValue) {
  TpForm form{kQkvSlots, 2, 2};
  at::Tensor whole = at::arange(16, at::kFloat);
  auto values = [&](int64_t rank, int64_t ranks) {
    at::Tensor part = part_of(form, whole, rank, ranks);
    return std::vector<float>(part.const_data_ptr<float>(),
                              part.const_data_ptr<float>() + part.numel());
  };
  EXPECT_THAT(values(0, 1), ElementsAre(0, 1, 4, 6, 2, 3, 5, 7, 8, 9, 12, 14, 10, 11, 13, 15));
  EXPECT_THAT(values(1, 2), ElementsAre(8, 9, 12, 14, 10, 11, 13, 15));
  for (int64_t ranks : {1, 2, 4})
    for (const Dims& shape : {Dims{64, 3}, Dims{64}}) {
      at::Tensor ours = at::arange(num_elements(shape), at::kFloat).view(shape);
      std::vector<at::Tensor> parts;
      for (int64_t rank = 0; rank < ranks; ++rank)
        parts.push_back(part_of(kSlots, ours, rank, ranks));
      EXPECT_EQ(parts[0].sizes().vec(), part_shape(kSlots, shape, ranks));
      EXPECT_TRUE(join_parts(kSlots, parts).equal(ours));
    }
}

TEST_F(NeoxSlots, AreReadWhereAskedFor) {
  for (int64_t tensor : {1, 2, 4})
    for (bool old_names : {false, true}) {
      fs::path dir = in_slots(tensor, old_names);
      EXPECT_EQ(difference(open_neox_slots(dir), made(4)), "") << tensor;
      EXPECT_EQ(difference(open_neox(dir), made(4)), "layers.0.attention.query_key_value.weight");
    }
}

TEST_F(NeoxSlots, HaveTheStatesOfTheOptimizerInThemToo) {
  fs::path dir = in_slots(1, false);
  add_optimizer(dir);
  ModelFiles model = open_neox_slots(dir);
  model.open_train_state(model);
  ASSERT_TRUE(model.train.has_value());
  for (const ModelTensor& t : model.tensors) {
    EXPECT_EQ(t.states.size(), 3u);
    for (const StateTensor& s : t.states)
      EXPECT_TRUE(s.read().equal(t.read())) << s.state << " " << t.info.name;
  }
}

TEST_F(NeoxSlots, AreWarnedOfWhereTheyMayBe) {
  EXPECT_THAT(said(write(made(4), 1)),
              AllOf(HasSubstr("has 4 heads of keys for 8 of queries"),
                    HasSubstr("if this checkpoint is of that time, or the converted model gives "
                              "noise, convert it with --from neox-gqa-slots")));
  EXPECT_THAT(said(in_slots(1, true)),
              HasSubstr("most likely one of those: convert it with --from neox-gqa-slots"));
  EXPECT_THAT(said(write(made(8), 1)), Not(HasSubstr("slots")));
}

TEST_F(NeoxSlots, AreRefusedWhereTheyCannotBe) {
  EXPECT_THAT(error_of([&] { open_neox_slots(write(made(1), 1)); }),
              HasSubstr("74: " + (dir_.path() / "neox0/global_step9").string() +
                        ": heads of 4 rows do not share out over the 8 queries of a key"));
  EXPECT_THAT(error_of([&] { write_neox_slots(made(4), {.dir = "x", .final_dir = "x"}); }),
              HasSubstr("64: x: neox-gqa-slots is read, not written"));
}

}  // namespace
}  // namespace neox::testing
