// The parts of reading and writing GPT-NeoX's checkpoints: names, how tensor parallelism shares
// tensors out, copies, directories, and DeepSpeed's flat vectors.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmath>
#include <set>

#include "convert/flat_groups.h"
#include "convert/formats.h"
#include "convert/neox_files.h"
#include "convert/neox_names.h"
#include "convert/tp_parts.h"
#include "data_files.h"
#include "model/parameters.h"

// In front of the C library's: notes what is flushed, where that is asked for.
static std::set<std::filesystem::path>* g_flushed = nullptr;
extern "C" int fsync(int fd) {
  if (g_flushed)
    g_flushed->insert(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd)));
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace neox::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using enum TpSplit;

at::Tensor counting(const Dims& shape) {
  return at::arange(num_elements(shape), at::kFloat).view(shape);
}

std::vector<float> values(const at::Tensor& t) {
  at::Tensor flat = t.contiguous();
  return {flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel()};
}

std::vector<at::Tensor> all_parts(const TpForm& form, const at::Tensor& tensor, int64_t ranks) {
  std::vector<at::Tensor> parts;
  for (int64_t rank = 0; rank < ranks; ++rank) parts.push_back(part_of(form, tensor, rank, ranks));
  return parts;
}

TEST(TpParts, JoinIsTheWayBackOfEverySplit) {
  for (int64_t ranks : {1, 2, 4})
    for (const Dims& shape : {Dims{40, 8}, Dims{40}})
      for (TpForm form : {TpForm{kNone}, TpForm{kRows}, TpForm{kColumns}, TpForm{kGated},
                          TpForm{kSummed}, TpForm{kQkv, 4, 3}}) {
        if (form.split == kColumns && shape.size() == 1) continue;
        at::Tensor whole = counting(shape);
        auto parts = all_parts(form, whole, ranks);
        for (const at::Tensor& part : parts)
          EXPECT_EQ(part.sizes().vec(), part_shape(form, shape, ranks));
        EXPECT_TRUE(join_parts(form, parts).equal(whole))
            << static_cast<int>(form.split) << " over " << ranks;
      }
}

// Four experts of three rows and two columns.
TEST(TpParts, ARankHasARunOfExperts) {
  at::Tensor stack = counting({4, 3, 2});
  for (int64_t ranks : {1, 2, 4})
    for (TpForm form : {TpForm{kExperts, 4}, TpForm{kExpertsTurned, 4}}) {
      auto parts = all_parts(form, stack, ranks);
      for (const at::Tensor& part : parts)
        EXPECT_EQ(part.sizes().vec(), part_shape(form, {4, 3, 2}, ranks));
      EXPECT_TRUE(join_parts(form, parts).equal(stack));
    }
  EXPECT_THAT(values(part_of({kExperts, 4}, stack, 1, 4)), ElementsAre(6, 7, 8, 9, 10, 11));
  EXPECT_THAT(values(part_of({kExpertsTurned, 4}, stack, 1, 4)), ElementsAre(6, 8, 10, 7, 9, 11));
}

// Two groups of two queries, head size 1: ours are q0 q1 k v, q2 q3 k v.
TEST(TpParts, ARankHasItsQueriesThenKeysThenValues) {
  TpForm form{kQkv, 2, 2};
  EXPECT_THAT(values(part_of(form, counting({8}), 0, 1)), ElementsAre(0, 1, 4, 5, 2, 6, 3, 7));
  EXPECT_THAT(values(part_of(form, counting({8}), 1, 2)), ElementsAre(4, 5, 6, 7));
}

// Ours are gate0 up0 gate1 up1.
TEST(TpParts, ARankHasUpThenGate) {
  EXPECT_THAT(values(part_of({kGated}, counting({4}), 0, 1)), ElementsAre(1, 3, 0, 2));
  EXPECT_THAT(values(part_of({kGated}, counting({4}), 1, 2)), ElementsAre(3, 2));
}

TEST(TpParts, SummandsAreAddedAndTheirMomentsAreNot) {
  std::vector<at::Tensor> parts = {counting({3}), counting({3}) + 1};
  EXPECT_THAT(values(join_parts({kSummed}, parts)), ElementsAre(1, 3, 5));
  EXPECT_THAT(values(join_parts({kSummed}, parts, Summands::kMean)), ElementsAre(0.5, 1.5, 2.5));
  EXPECT_THAT(values(join_parts({kNone}, parts)), ElementsAre(0.5, 1.5, 2.5));
}

TEST(TpParts, RanksThatDoNotDivideAreRefused) {
  EXPECT_THAT(error_of([] {
                part_shape({kRows}, {10, 4}, 4);
              }),
              HasSubstr("64: a tensor [10, 4] of 10 rows or columns cannot be shared out over 4"));
  EXPECT_THAT(error_of([] {
                part_shape({kQkv, 2, 6}, {32, 4}, 4);
              }),
              HasSubstr("of 2 groups of heads cannot be shared out over 4"));
  EXPECT_THAT(error_of([] { part_shape({kGated}, {12, 4}, 4); }), HasSubstr("of 6 rows"));
}

constexpr const char* kRelative =
    "num_layers: 2\nhidden_size: 24\nnum_attention_heads: 4\nseq_length: 8\npos_emb: rpe\n"
    "padded_vocab_size: 32\ntrain_iters: 20\ntrain_micro_batch_size_per_gpu: 6\n";

ModelFiles of_nans() {
  ModelFiles model{
      .where = "made", .config = load_config({.texts = {{"made.yml", kRelative}}}), .files = {}};
  for (const ParamSpec& spec : parameters(model.config.model))
    model.tensors.push_back({{spec.name, at::kFloat, spec.shape}, {}, [spec] {
                               return at::full(spec.shape, NAN, at::kFloat);
                             }});
  return model;
}

// Norms are copied on every rank, the table of pos_emb: rpe in every layer.
TEST(NeoxCopies, OfNansAreEqual) {
  for (int64_t ranks : {1, 2}) {
    Directory dir;
    write_neox(of_nans(), {.dir = dir.path(), .final_dir = dir.path(), .tensor_parallel = ranks});
    ::testing::internal::CaptureStderr();
    ModelFiles read = open_neox(dir.path());
    for (const ModelTensor& t : read.tensors) t.read();
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), Not(HasSubstr("differ"))) << ranks;
  }
}

TEST(NeoxDirectories, AreFlushed) {
  Directory dir;
  std::set<fs::path> flushed;
  g_flushed = &flushed;
  write_neox(of_nans(), {.dir = dir.path(), .final_dir = dir.path()});
  g_flushed = nullptr;
  for (const auto& entry : fs::recursive_directory_iterator(dir.path()))
    if (entry.is_directory()) {
      EXPECT_TRUE(flushed.contains(fs::canonical(entry.path()))) << entry.path();
    }
}

TEST(NeoxNames, RowParallelBiasIsSummedOnlyWithTheParallelResidual) {
  for (const char* name : {"layers.1.attention.dense.bias", "layers.1.mlp.dense_4h_to_h.bias"}) {
    EXPECT_EQ(neox_place({.layers = 2, .parallel_residual = true}, name).form.split, kSummed);
    EXPECT_EQ(neox_place({.layers = 2, .parallel_residual = false}, name).form.split, kNone);
  }
}

TEST(NeoxNames, PlacesCountTheLayersWithoutParameters) {
  ModelConfig m{.layers = 3, .hidden = 8, .heads = 2};
  EXPECT_EQ(neox_place(m, "embed_in.weight").layer, 0);
  EXPECT_EQ(neox_place(m, "layers.2.input_layernorm.bias").layer, 4);
  EXPECT_EQ(neox_place(m, "final_layer_norm.weight").layer, 6);
  EXPECT_EQ(neox_place(m, "final_layer_norm.weight").names[0][0], "norm.weight");
  EXPECT_EQ(neox_place(m, "embed_out.weight").layer, 7);
}

TEST(NeoxNames, NewAndOldNamesAreKnownAndTheNewOnesWritten) {
  ModelConfig m{.layers = 3, .hidden = 8, .heads = 2};
  auto names = neox_place(m, "layers.0.mlp.dense_h_to_4h.weight").names;
  EXPECT_THAT(names, ElementsAre(ElementsAre("mlp.linear1.weight"),
                                 ElementsAre("mlp.dense_h_to_4h.weight")));
  m.gated = true;
  EXPECT_THAT(neox_place(m, "layers.0.mlp.dense_h_to_4h.weight").names.at(2),
              ElementsAre("mlp.w3.weight", "mlp.w1.weight"));
  m.norm = Norm::kRmsNorm;
  EXPECT_EQ(neox_place(m, "layers.0.input_layernorm.weight").names[0][0], "input_layernorm.scale");
}

TEST(NeoxNames, NormsAndBiasesDoNotDecay) {
  for (const char* name : {"input_layernorm.weight", "norm.scale", "attention.dense.bias"})
    EXPECT_FALSE(neox_decays(name)) << name;
  for (const char* name : {"attention.rpe.weight", "word_embeddings.weight", "mlp.linear1.weight"})
    EXPECT_TRUE(neox_decays(name)) << name;
}

TEST(NeoxNames, LayerAndNameComeOutOfEveryWayToWriteThem) {
  EXPECT_EQ(layer_and_name("sequential.12.norm.weight"),
            std::pair(int64_t{12}, std::string("norm.weight")));
  EXPECT_EQ(layer_and_name("4.mlp.linear1.bias"),
            std::pair(int64_t{4}, std::string("mlp.linear1.bias")));
  EXPECT_EQ(layer_and_name("tied_modules.embed.word_embeddings.weight").first, 0);
  for (const char* name : {"norm.weight", "sequential.x.y", "99999999999.a", "4"})
    EXPECT_EQ(layer_and_name(name).first, -1) << name;
}

TEST(FlatGroups, PaddingIsTakenOffOnlyWhereTheFilesHaveIt) {
  EXPECT_THAT(without_padding({4, 4, 4}, {0, 0, 3}, 9, ""), ElementsAre(4, 4, 1));
  EXPECT_THAT(without_padding({4, 4, 1}, {0, 0, 3}, 9, ""), ElementsAre(4, 4, 1));
  EXPECT_THAT(error_of([] {
                without_padding({4, 4}, {0, 0}, 9, "x");
              }),
              HasSubstr("74: x: its 2 pieces hold 8 elements, of them 0 of padding, but the "));
  EXPECT_THAT(error_of([] { without_padding({4, 4}, {0, 4}, 3, "x"); }), HasSubstr("74: x"));
}

// DeepSpeed keeps pieces[:4 - 5] of such a last piece: all but one.
TEST(FlatGroups, PaddingMayBeLongerThanTheLastPiece) {
  EXPECT_THAT(without_padding({4, 4, 4}, {0, 0, 5}, 7, ""), ElementsAre(4, 3, 0));
  EXPECT_THAT(without_padding({4, 4, 3}, {0, 0, 5}, 7, ""), ElementsAre(4, 3, 0));
  EXPECT_THAT(without_padding({2, 2, 2, 2}, {0, 0, 0, 7}, 1, ""), ElementsAre(1, 0, 0, 0));
}

TEST(FlatGroups, RunsCoverPieces) {
  auto runs = runs_of({4, 0, 3, 5}, 2, 7);
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].piece, 0u);
  EXPECT_EQ(runs[0].first, 2);
  EXPECT_EQ(runs[0].count, 2);
  EXPECT_EQ(runs[1].piece, 2u);
  EXPECT_EQ(runs[1].first, 0);
  EXPECT_EQ(runs[1].count, 3);
  EXPECT_EQ(runs[2].piece, 3u);
  EXPECT_EQ(runs[2].first, 0);
  EXPECT_EQ(runs[2].count, 2);
}

TEST(FlatGroups, StagesAreFoundFromTheirSizes) {
  const std::vector<GroupSizes> layers = {{8, 0}, {0, 0}, {5, 2}, {5, 2}, {0, 0}, {0, 1}, {8, 0}};
  EXPECT_THAT(stage_starts(layers, {{26, 5}}, {}, ""), ElementsAre(0));
  EXPECT_THAT(stage_starts(layers, {{13, 2}, {13, 3}}, {}, ""), ElementsAre(0, 3));
  auto tied = layers;
  tied[6] = {0, 0};
  EXPECT_THAT(stage_starts(tied, {{13, 2}, {13, 3}}, {8, 0}, ""), ElementsAre(0, 3));
  EXPECT_THAT(error_of([&] {
                stage_starts(layers, {{12, 2}, {14, 3}}, {}, "x");
              }),
              HasSubstr("74: x: the optimizer's groups of pipeline stage 0 have 12 and 2"));
}

}  // namespace
}  // namespace neox::testing
