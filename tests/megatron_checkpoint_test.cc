// Checkpoints of Megatron-LM: orders of rows, layouts there and back, what
// args say, and what is refused.
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <cmath>

#include "convert/megatron_names.h"
#include "megatron_files.h"

namespace neox::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using enum TpSplit;

// What opening the files says.
std::string opening(const fs::path& path) {
  return error_of([&] { open_megatron(path); });
}

const char* name_of(const char* ours) {
  static std::string name;
  name = megatron_names(ours)[0];
  return name.c_str();
}

// ---- orders of rows -----------------------------------------------------------------------------

// Rows [group, {q ..., k, v}, D] of as many heads, each with its number.
at::Tensor numbered_rows(int64_t heads, int64_t size) {
  return at::arange(heads * 3 * size, at::kFloat).view({heads, 3, size});
}

TEST(MegatronRows, OfVersion0AreThirdsOfARank) {
  at::Tensor ours = numbered_rows(4, 5);
  std::vector<at::Tensor> ranks;
  for (int64_t rank : {0, 1})
    ranks.push_back(ours.narrow(0, 2 * rank, 2).transpose(0, 1).reshape({30}));
  EXPECT_TRUE(join_parts({kQkv, 4, 1}, ranks).equal(ours.view({60})));
}

TEST(MegatronRows, OfVersion1HaveThePartsLast) {
  at::Tensor ours = numbered_rows(4, 5);
  std::vector<at::Tensor> ranks;
  for (int64_t rank : {0, 1})
    ranks.push_back(ours.narrow(0, 2 * rank, 2).transpose(1, 2).reshape({30}));
  EXPECT_TRUE(join_parts({kQkvLast, 4, 1}, ranks).equal(ours.view({60})));
}

TEST(MegatronRows, OfGatedMlpsAreGateThenUpOfARank) {
  at::Tensor gate = at::arange(0, 6, at::kFloat), up = at::arange(10, 16, at::kFloat);
  std::vector<at::Tensor> ranks;
  for (int64_t rank : {0, 1})
    ranks.push_back(at::cat({gate.narrow(0, 3 * rank, 3), up.narrow(0, 3 * rank, 3)}));
  EXPECT_TRUE(join_parts({kGateUp}, ranks).equal(at::stack({gate, up}, 1).view({12})));
}

TEST(MegatronRows, AreCutTheWayTheyAreJoined) {
  at::Tensor whole = at::arange(60 * 7, at::kFloat).view({60, 7});
  for (TpForm form : {TpForm{kQkvLast, 4, 1}, TpForm{kGateUp}}) {
    std::vector<at::Tensor> parts;
    for (int64_t rank : {0, 1}) parts.push_back(part_of(form, whole, rank, 2));
    EXPECT_EQ(parts[0].sizes().vec(), part_shape(form, {60, 7}, 2));
    EXPECT_TRUE(join_parts(form, parts).equal(whole));
  }
}

// ---- there and back -----------------------------------------------------------------------------

TEST(Megatron, ReadsWhatItWrites) {
  for (const char* yaml : {kGpt2, kLlama})
    for (auto [tensor, pipeline] : {std::pair{1, 1}, {2, 1}, {1, 4}, {2, 2}}) {
      Directory dir;
      ModelFiles model = model_of(yaml);
      write_megatron(model, target_of(dir.path(), tensor, pipeline));
      EXPECT_EQ(detect_format(dir.path()).name, std::string("megatron"));
      ModelFiles read = open_megatron(dir.path());
      EXPECT_EQ(difference(read, model), "") << tensor << " x " << pipeline;
      EXPECT_EQ(read.iteration, 3);
    }
}

TEST(Megatron, ReadsATensorOnceForAllRanks) {
  for (auto write : {write_megatron, write_megatron_deepspeed}) {
    Directory dir;
    ModelFiles model = model_of(kGpt2);
    size_t reads = 0;
    for (ModelTensor& t : model.tensors)
      t.read = [read = t.read, &reads] { return ++reads, read(); };
    int64_t pipeline = write == write_megatron ? 1 : 0;
    write(model, target_of(dir.path(), 2, pipeline));
    EXPECT_EQ(reads, model.tensors.size());
  }
}

TEST(Megatron, IsReadFromItsIterationDirectoryToo) {
  Directory dir;
  write_megatron(model_of(kGpt2), target_of(dir.path(), 1, 1));
  EXPECT_EQ(difference(open_megatron(dir.path() / "iter_0000003"), model_of(kGpt2)), "");
}

TEST(Megatron, IsCutOnlyWhereItDivides) {
  Directory dir;
  auto writing = [&](int64_t tensor, int64_t pipeline) {
    return error_of(
        [&] { write_megatron(model_of(kLlama), target_of(dir.path(), tensor, pipeline)); });
  };
  EXPECT_THAT(writing(4, 1), AllOf(StartsWith("64"), HasSubstr("2 heads of keys")));
  EXPECT_THAT(writing(1, 3), AllOf(StartsWith("64"), HasSubstr("4 layers")));
}

TEST(Megatron, RefusesModelsThatItDoesNotHave) {
  Directory dir;
  for (auto [key, words] : {std::pair{"gpt_j_residual: true\n", "parallel residual"},
                            {"activation: relu\n", "activation"},
                            {"use_bias_in_mlp: false\n", "biases in attention"},
                            {"sliding_window_width: 3\n", "sliding window"}}) {
    ModelFiles model = model_of(kGpt2 + std::string(key));
    EXPECT_THAT(error_of([&] { write_megatron(model, target_of(dir.path(), 1, 1)); }),
                AllOf(StartsWith("64"), HasSubstr(words)));
  }
}

TEST(Megatron, RefusesScalingThatItDoesNotHave) {
  for (const char* words : {"{rope_type: linear, factor: 1.5}", "{low_freq_factor: 2}",
                            "{rope_type: yarn, factor: 2, original_max_position_embeddings: 4}"}) {
    Directory dir;
    ModelFiles model = model_of(concat(kLlama, "rope_scaling: ", words, "\n"));
    EXPECT_THAT(error_of([&] { write_megatron(model, target_of(dir.path(), 1, 1)); }),
                AllOf(StartsWith("64"), HasSubstr("this scaling of rotary frequencies")));
  }
}

// ---- what args say ------------------------------------------------------------------------------

TEST(MegatronArgs, RefuseByNameWhatIsNotSupported) {
  for (auto [name, value, shown] : {std::tuple{"num_experts", Item(8), "8"},
                                    {"squared_relu", Item(true), "True"},
                                    {"apply_layernorm_1p", Item(true), "True"},
                                    {"rotary_interleaved", Item(true), "True"},
                                    {"glu_activation", Item("swiglu"), "swiglu"},
                                    {"prefixlm", Item(true), "True"},
                                    {"use_alibi_position_embeddings", Item(true), "True"},
                                    {"rope_type", Item("yarn"), "yarn"},
                                    {"position_embedding_type", Item("relative"), "relative"},
                                    {"normalization", Item("Other"), "Other"},
                                    {"window_size", Item::list({4, 4}), "[4, 4]"},
                                    {"hidden_size", Item("20"), "20"}}) {
    Directory dir;
    Rank rank(model_of(kGpt2));
    rank.args[name] = value;
    EXPECT_THAT(opening(rank.write(dir.path())),
                AllOf(StartsWith("74"), HasSubstr(concat("args.", name, " is ", shown))));
  }
}

TEST(MegatronArgs, OfFeaturesThatAreOffSayNothing) {
  Directory dir;
  Rank rank(model_of(kGpt2));
  rank.args["num_experts"] = Item::list({1});
  rank.args["mtp_num_layers"] = 0;
  rank.args["softmax_type"] = "vanilla";
  rank.args["no_such_field"] = Item::dict({{"a", 1}});
  EXPECT_EQ(opening(rank.write(dir.path())), "");
}

TEST(MegatronArgs, TellHowRotaryFrequenciesAreScaled) {
  for (auto [words, kind] : {std::pair{"{rope_type: linear, factor: 3}", RotaryKind::kLinear},
                             {"{rope_type: llama3, factor: 3}", RotaryKind::kLlama3}}) {
    Directory dir;
    ModelFiles model = model_of(concat(kLlama, "rope_scaling: ", words, "\n"));
    write_megatron(model, target_of(dir.path(), 1, 1));
    EXPECT_EQ(open_megatron(dir.path()).config.model.rotary_scaling,
              (RotaryScaling{.kind = kind, .factor = 3}));
  }
  Directory dir;
  Rank rank(model_of(kLlama));
  rank.args["rotary_seq_len_interpolation_factor"] = 2;
  rank.args["use_rope_scaling"] = true;
  EXPECT_THAT(opening(rank.write(dir.path())), HasSubstr("together are not supported"));
}

TEST(MegatronArgs, TellTheFormulaOfGelu) {
  for (auto [fused, activation] :
       {std::pair{true, Activation::kGeluTanh}, {false, Activation::kGeluErf}}) {
    Directory dir;
    Rank rank(model_of(kGpt2));
    rank.args["bias_gelu_fusion"] = fused;
    EXPECT_EQ(open_megatron(rank.write(dir.path())).config.model.activation, activation);
  }
}

TEST(MegatronArgs, MustAgreeWithTheEmbedding) {
  Directory dir;
  Rank rank(model_of(kGpt2));
  rank.args["padded_vocab_size"] = kVocabRows + 4;
  EXPECT_THAT(opening(rank.write(dir.path())),
              AllOf(StartsWith("74"), HasSubstr("28 rows"), HasSubstr("is 32")));
}

TEST(MegatronArgs, AreNeeded) {
  Directory dir;
  Rank rank(model_of(kGpt2));
  rank.args.erase("num_attention_heads");
  EXPECT_THAT(opening(rank.write(dir.path())), HasSubstr("args.num_attention_heads is missing"));
}

// ---- versions and tensors
// ------------------------------------------------------------------------

TEST(Megatron, ReadsTheVersionsOfItsRows) {
  ModelFiles model = model_of(kGpt2);
  for (auto [version, split] :
       {std::pair{0, kQkv}, {1, kQkvLast}, {2, TpSplit::kRows}, {3, TpSplit::kRows}}) {
    Directory dir;
    Rank rank(model);
    rank.state["checkpoint_version"] = static_cast<double>(version);
    for (auto& [name, tensor] : rank.tensors)
      if (name.find("query_key_value") != std::string::npos)
        tensor = part_of({split, 4, 1}, tensor, 0, 1);
    EXPECT_EQ(difference(open_megatron(rank.write(dir.path())), model), "") << version;
  }
}

TEST(Megatron, RefusesOtherVersions) {
  Directory dir;
  Rank rank(model_of(kGpt2));
  rank.state["checkpoint_version"] = 4.0;
  EXPECT_THAT(
      converting(dir, "megatron", rank.write(dir / "in")),
      AllOf(StartsWith("74"), HasSubstr("checkpoint_version is 4"), Not(HasSubstr("LEFT"))));
}

TEST(Megatron, RefusesGroupsInOldVersions) {
  Directory dir;
  Rank rank(model_of(kLlama));
  rank.state["checkpoint_version"] = 1.0;
  EXPECT_THAT(opening(rank.write(dir.path())),
              AllOf(StartsWith("74"), HasSubstr("2 heads of keys for 4")));
}

TEST(Megatron, AccountsForEveryTensor) {
  Directory dir;
  Rank more(model_of(kGpt2)), less(model_of(kGpt2)), other(model_of(kGpt2));
  more.tensors["language_model.pooler.dense.weight"] = at::zeros({20, 20});
  less.tensors.erase(name_of("layers.2.mlp.dense_h_to_4h.bias"));
  other.tensors[name_of("layers.1.attention.dense.weight")] = at::zeros({20, 21});
  EXPECT_THAT(converting(dir, "megatron", more.write(dir / "more")),
              AllOf(StartsWith("74"), HasSubstr("pooler.dense.weight"), Not(HasSubstr("LEFT"))));
  EXPECT_THAT(opening(less.write(dir / "less")),
              AllOf(StartsWith("74"), HasSubstr("layers.2.mlp")));
  EXPECT_THAT(opening(other.write(dir / "other")),
              AllOf(StartsWith("74"), HasSubstr("[20, 21], but [20, 20]")));
}

TEST(Megatron, LeavesOutWhatIsNoParameter) {
  Directory dir;
  ModelFiles model = model_of(kGpt2);
  Rank rank(model);
  rank.tensors["language_model.encoder.layers.0.mlp.fc._extra_state"] = at::zeros({3});
  rank.tensors["word_embeddings_for_head.weight"] = model.tensors[0].read();
  ModelFiles read = open_megatron(rank.write(dir.path()));
  EXPECT_EQ(difference(read, model), "");
  EXPECT_EQ(read.ignored.size(), 2U);
}

TEST(Megatron, RefusesAHeadThatIsNotTheEmbedding) {
  Directory dir;
  Rank rank(model_of(kGpt2));
  rank.tensors["word_embeddings_for_head.weight"] = at::zeros({kVocabRows, 20});
  EXPECT_THAT(opening(rank.write(dir.path())),
              AllOf(StartsWith("74"), HasSubstr("differs from the embedding")));
}

TEST(Megatron, TakesAHeadWithTheNansOfTheEmbedding) {
  Directory dir;
  Rank rank(model_of(kGpt2));
  rank.tensors["word_embeddings_for_head.weight"] = rank.tensors[name_of("embed_in.weight")] =
      at::full({kVocabRows, 20}, NAN);
  EXPECT_EQ(opening(rank.write(dir.path())), "");
}

// ---- ranks
// ---------------------------------------------------------------------------------------

struct Saved {
  Directory dir;
  explicit Saved(int64_t tensor = 2, int64_t pipeline = 2) {
    write_megatron(model_of(kGpt2), target_of(dir.path() / "in", tensor, pipeline));
  }
  fs::path in() const { return dir.path() / "in"; }
  fs::path rank(const char* name) const {
    return in() / "iter_0000003" / name / "model_optim_rng.pt";
  }
};

TEST(Megatron, NamesTheRankThatIsMissing) {
  Saved saved;
  fs::remove_all(saved.rank("mp_rank_01_001").parent_path());
  EXPECT_THAT(converting(saved.dir, "megatron", saved.in()),
              AllOf(StartsWith("74"), HasSubstr("lacks tensor-parallel rank 1 of pipeline stage 1"),
                    HasSubstr("2 x 2"), Not(HasSubstr("LEFT"))));
}

TEST(Megatron, NamesTheFileThatIsCutOff) {
  Saved saved;
  fs::path file = saved.rank("mp_rank_01_000");
  fs::resize_file(file, fs::file_size(file) - 1000);
  EXPECT_THAT(converting(saved.dir, "megatron", saved.in()),
              AllOf(StartsWith("74"), HasSubstr(file.string()), Not(HasSubstr("LEFT"))));
}

TEST(Megatron, RefusesRanksOfAnotherModel) {
  Saved saved(2, 1), other(1, 1);
  fs::copy_file(other.rank("mp_rank_00"), saved.rank("mp_rank_01"),
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(opening(saved.in()), AllOf(StartsWith("74"), HasSubstr("mp_rank_01"),
                                         HasSubstr("but"), HasSubstr("mp_rank_00")));
}

TEST(Megatron, RefusesAStageTwice) {
  Saved saved;
  for (const char* rank : {"mp_rank_00_00", "mp_rank_01_00"})
    fs::copy_file(saved.rank((rank + std::string("0")).c_str()),
                  saved.rank((rank + std::string("1")).c_str()),
                  fs::copy_options::overwrite_existing);
  EXPECT_THAT(opening(saved.in()), AllOf(StartsWith("74"), HasSubstr("is also in")));
}

TEST(Megatron, RefusesATrackerThatSaysNothing) {
  Saved saved;
  std::ofstream(saved.in() / "latest_checkpointed_iteration.txt") << "../3";
  EXPECT_THAT(opening(saved.in()), AllOf(StartsWith("74"), HasSubstr("neither a number")));
}

}  // namespace
}  // namespace neox::testing
