// Checkpoints of BigScience's fork of Megatron-DeepSpeed, as BLOOM's, and of pipelines of 2022,
// whose layers have other numbers than today's.
#include <gmock/gmock.h>

#include "convert/written_parts.h"
#include "megatron_files.h"

namespace neox::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char *kNormed =
                         "num_layers: 4\nhidden_size: 20\nnum_attention_heads: 4\nseq_length: "
                         "8\nintermediate_size: 18\n"
                         "embed_layernorm: true\nbias_gelu_fusion: true\n",
                     *kAlibi = "pos_emb: alibi\n", *kLearned = "pos_emb: learned\n";
const std::string kBloom = concat(kNormed, kAlibi);

std::string layer(int64_t number) {
  return numbered("global_step3/layer_%02d-model_00-model_states.pt", number);
}

// What writing the model says.
template <class Write>
std::string refusal(Write write, const std::string& model = kBloom, int64_t pipeline = 1) {
  Directory dir;
  return error_of([&] { write(model_of(model), target_of(dir.path(), 1, pipeline)); });
}

TEST(MegatronBloom, ReadsWhatItWrites) {
  for (const char* positions : {kAlibi, kLearned})
    for (auto [tensor, pipeline] : {std::pair{1, 1}, {2, 1}, {2, 2}, {1, 4}}) {
      Directory dir;
      ModelFiles model = model_of(concat(kNormed, positions));
      write_megatron_deepspeed(model, target_of(dir.path(), tensor, pipeline));
      EXPECT_EQ(detect_format(dir.path()).name, std::string("megatron-deepspeed"));
      EXPECT_EQ(difference(open_megatron_deepspeed(dir.path()), model), "");
    }
}

// Functions that turn tensors are layers 2 and 7.
TEST(MegatronBloom, NumbersLayersAsTheFork) {
  Directory dir;
  write_megatron_deepspeed(model_of(kBloom), target_of(dir.path(), 1, 1));
  for (int number : {1, 3, 4, 5, 6, 8}) EXPECT_TRUE(fs::exists(dir / layer(number))) << number;
  for (int number : {0, 2, 7, 9}) EXPECT_FALSE(fs::exists(dir / layer(number))) << number;
  torchfile::TorchFile embedding(dir / layer(1)), norm(dir / layer(8));
  EXPECT_EQ(embedding.at("word_embeddings.norm.bias").tensor().numel(), 20);
  EXPECT_EQ(norm.at("weight").tensor().numel(), 20);
}

TEST(MegatronBloom, SaysPositionsByTheForksEnum) {
  for (auto [positions, number] : {std::pair{kAlibi, 3}, {kLearned, 2}}) {
    Directory dir;
    write_megatron_deepspeed(model_of(concat(kNormed, positions)), target_of(dir.path(), 1, 1));
    torchfile::TorchFile states(dir / "global_step3/mp_rank_00_model_states.pt");
    torchfile::Value type = states.at("args.position_embedding_type");
    EXPECT_EQ(type.type(), "megatron.enums.PositionEmbeddingType");
    EXPECT_EQ(type.arguments().at("0").as_int(), number);
    EXPECT_TRUE(states.at("args.embed_layernorm").as_bool());
  }
}

TEST(MegatronBloom, IsNoModelOfMegatronLm) {
  EXPECT_THAT(refusal(write_megatron),
              AllOf(StartsWith("64"), HasSubstr("ALiBi (pos_emb: alibi), which Megatron-LM does")));
  EXPECT_THAT(refusal(write_megatron, concat(kNormed, kLearned)),
              HasSubstr("a norm of embeddings (embed_layernorm), which Megatron-LM does not have"));
  for (std::string error :
       {refusal(write_megatron_deepspeed, kBloom, 0), refusal(write_megatron_deepspeed_thirds)})
    EXPECT_THAT(error, AllOf(StartsWith("64"), HasSubstr("has pipelines alone, and no rows in")));
}

TEST(MegatronBloom, RefusesModelsThatTheForkDoesNotHave) {
  for (auto [key, words] :
       {std::pair{"layernorm_epsilon: 1e-6\n", "an epsilon other than 1e-5"},
        {"norm: rmsnorm\n", "RMS norms"},
        {"activation: swiglu\n", "gated MLPs"},
        {"use_bias_in_attn_linear: false\nuse_bias_in_mlp: false\n", "without biases"},
        {"num_kv_heads: 2\n", "fewer heads of keys"},
        {"no_weight_tying: true\n", "an untied embedding"}})
    EXPECT_THAT(refusal(write_megatron_deepspeed, kBloom + key),
                AllOf(StartsWith("64"), HasSubstr(words), HasSubstr("BigScience's fork")));
  EXPECT_THAT(refusal(write_megatron_deepspeed, concat(kNormed, "pos_emb: none\n")),
              HasSubstr("positions other than ALiBi and learned"));
}

// The fork's norm of embeddings never heard of --layernorm-epsilon.
TEST(MegatronBloom, NormsOfAnotherEpsilonAreRefused) {
  Directory dir;
  Rank rank(model_of(kBloom));
  EXPECT_EQ(difference(open_megatron(rank.write(dir / "same")), model_of(kBloom)), "");
  rank.args["layernorm_epsilon"] = 1e-6;
  EXPECT_THAT(error_of([&] { open_megatron(rank.write(dir / "other")); }),
              AllOf(StartsWith("74"), HasSubstr("layernorm_epsilon is 1e-06, but that of args.embed"
                                                "_layernorm is always 1e-05")));
}

TEST(MegatronBloom, NamesTheLayerThatIsMissing) {
  for (auto [number, words] : {std::pair{5, "encoder.layers.2."}, {8, "final_layernorm"}}) {
    Directory dir;
    write_megatron_deepspeed(model_of(kBloom), target_of(dir.path() / "in", 1, 1));
    fs::remove(dir.path() / "in" / layer(number));
    EXPECT_THAT(converting(dir, "megatron-deepspeed", dir.path() / "in"),
                AllOf(StartsWith("74"), HasSubstr(words), Not(HasSubstr("LEFT"))));
  }
}

// As Megatron-DeepSpeed numbered them until 2023.
TEST(MegatronDeepSpeed, ReadsPipelinesThatCountTheirFunctions) {
  Directory dir;
  ModelFiles model = model_of(kGpt2);
  write_megatron_deepspeed(model, target_of(dir.path(), 1, 2));
  fs::rename(dir / layer(6), dir / layer(8));
  for (int64_t number : {5, 4, 3, 2}) fs::rename(dir / layer(number), dir / layer(number + 1));
  EXPECT_EQ(difference(open_megatron_deepspeed(dir.path()), model), "");
}

}  // namespace
}  // namespace neox::testing
