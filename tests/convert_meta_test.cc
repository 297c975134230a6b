// LLaMA as Meta publishes it, and Mistral's form of it: the model that transformers has is cut into
// files of ranks here, and must come back.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include "checkpoint/checkpoint.h"
#include "convert/formats.h"
#include "convert_fixture.h"
#include "convert_models.h"
#include "hex.h"
#include "tokenizer/tokenizer.h"
#include "torchfile/tensor.h"

namespace neox::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kRows = 28;  // of the embedding: even, since ranks share the head

// Dim 0, dim 1, or copies.
enum class Cut { kRows, kColumns, kCopies };

struct MetaName {
  const char *theirs, *metas;
  Cut cut;
};

constexpr MetaName kMetaNames[] = {{"model.embed_tokens.", "tok_embeddings.", Cut::kColumns},
                                   {"model.norm.", "norm.", Cut::kCopies},
                                   {"lm_head.", "output.", Cut::kRows},
                                   {"model.layers.", "layers.", Cut::kCopies},
                                   {"input_layernorm", "attention_norm", Cut::kCopies},
                                   {"post_attention_layernorm", "ffn_norm", Cut::kCopies},
                                   {"self_attn.q_proj", "attention.wq", Cut::kRows},
                                   {"self_attn.k_proj", "attention.wk", Cut::kRows},
                                   {"self_attn.v_proj", "attention.wv", Cut::kRows},
                                   {"self_attn.o_proj", "attention.wo", Cut::kColumns},
                                   {"mlp.gate_proj", "feed_forward.w1", Cut::kRows},
                                   {"mlp.down_proj", "feed_forward.w2", Cut::kColumns},
                                   {"mlp.up_proj", "feed_forward.w3", Cut::kRows}};

Model llama_of(int64_t rows) {
  Model m = llama();
  m.config["vocab_size"] = rows;
  m.tensors.front().shape[0] = m.tensors.back().shape[0] = rows;
  return m;
}

Json llama_params() {
  return {{"dim", kWidth}, {"multiple_of", 2}, {"n_heads", kHeads},      {"n_kv_heads", kGroups},
          {"n_layers", 2}, {"norm_eps", 1e-5}, {"rope_theta", 500000.0}, {"vocab_size", -1}};
}

// Rows d and d + D / 2 of each head become neighbours.
at::Tensor to_pairs(const at::Tensor& rows) {
  std::vector<at::Tensor> all;
  for (int64_t head = 0; head < rows.size(0); head += kSize)
    for (int64_t d = 0; d < kSize / 2; ++d)
      for (int64_t at : {head + d, head + d + kSize / 2}) all.push_back(rows.narrow(0, at, 1));
  return at::cat(all);
}

class Meta : public Convert {
 protected:
  using Tensors = std::map<std::string, at::Tensor>;  // of a rank

  // Writes hf/, and takes its tensors.
  void take(const Model& m, int64_t ranks = 1, Cut embedding = Cut::kColumns) {
    model(m.tensors, m.config);
    auto source = open_weights(dir_ / "hf");
    ranks_.assign(static_cast<size_t>(ranks), {});
    for (const TensorInfo& info : source->tensors())
      add(info.name, source->read(info.name), embedding);
  }
  void add(std::string name, at::Tensor tensor, Cut embedding) {
    Cut cut = Cut::kCopies;
    for (const MetaName& n : kMetaNames)
      if (size_t at = name.find(n.theirs); at != std::string::npos) {
        name.replace(at, std::string_view(n.theirs).size(), n.metas);
        cut = n.cut;
      }
    if (name == "tok_embeddings.weight") cut = embedding;
    if (name.ends_with(".wq.weight") || name.ends_with(".wk.weight")) tensor = to_pairs(tensor);
    auto n = std::ssize(ranks_);
    for (int64_t rank = 0; rank < n; ++rank) {
      int64_t dim = cut == Cut::kRows ? 0 : 1,
              size = cut == Cut::kCopies ? 0 : tensor.size(dim) / n;
      at::Tensor part = size ? tensor.narrow(dim, rank * size, size) : tensor;
      ranks_[static_cast<size_t>(rank)][name] = part.clone();
    }
  }
  std::string write(const Json& params = llama_params()) const {
    dir_.put("meta/params.json", params.dump());
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      torchfile::Item::Entries entries;
      for (const auto& [name, tensor] : ranks_[rank])
        entries.emplace_back(name, torchfile::new_tensor(tensor));
      torchfile::write_torch_file(dir_ / concat("meta/consolidated.0", rank, ".pth"),
                                  torchfile::Item::ordered_dict(entries));
    }
    return dir_ / "meta";
  }
  // What `--to hf` makes of meta/, in back/.
  std::string back() const {
    fs::remove_all(dir_ / "back");
    return run({"--to", "hf", dir_ / "meta", dir_ / "back"});
  }
  std::string refusal() const {
    return error_of([&] { run({"--from", "meta", "--to", "hf", dir_ / "meta", dir_ / "out"}); });
  }
  std::string refusal(const Json& changes) const {
    Json params = llama_params();
    params.update(changes);
    write(params);
    return refusal();
  }
  ModelConfig read(const Json& changes = Json::object()) const {
    Json params = llama_params();
    params.update(changes);
    return open_meta(write(params)).config.model;
  }

  std::vector<Tensors> ranks_;
};

TEST_F(Meta, FilesOfRanksBecomeTheTensorsThatTransformersHas) {
  for (auto [ranks, embedding] :
       {std::pair(1, Cut::kColumns), {2, Cut::kColumns}, {2, Cut::kRows}}) {
    take(llama_of(kRows), ranks, embedding);
    write();
    back();
    EXPECT_EQ(bytes_of(dir_ / "back"), bytes_of(dir_ / "hf")) << ranks;
    EXPECT_EQ(written_config("back").at("architectures"), Json({"LlamaForCausalLM"}));
    fs::remove_all(dir_ / "meta");
  }
}

TEST_F(Meta, ParamsSayWhatTheConfigurationOfTransformersDoes) {
  take(llama_of(kRows), 2);
  write();
  back();
  Json got = written_config("back"), want = llama_of(kRows).config;
  for (const auto& [name, value] : want.items())
    if (got.contains(name) && name != "max_position_embeddings") {
      EXPECT_EQ(got[name], value) << name;
    }
}

TEST_F(Meta, FrequenciesAreLeftOutByARuleOfTheTable) {
  take(llama_of(kRows), 2);
  for (Tensors& rank : ranks_)
    for (const char* name : {"rope.freqs", "layers.1.attention.inner_attention.rope.freqs"})
      rank[name] = rank.at("norm.weight");
  write();
  std::string table = back();
  EXPECT_THAT(table, HasSubstr("rope.freqs"));
  EXPECT_THAT(table, HasSubstr("left out: follows from rope_theta"));
  EXPECT_THAT(table, HasSubstr("by heads, rotary pairs to halves"));
}

TEST_F(Meta, NormsThatDifferAreWarnedOf) {
  take(llama_of(kRows), 2);
  ranks_[1]["norm.weight"].mul_(2);
  write();
  ::testing::internal::CaptureStderr();
  back();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("copies of norm.weight on 2 tensor-parallel ranks differ"));
}

TEST_F(Meta, AHeadThatIsTheEmbeddingIsTied) {
  take(llama_of(kRows));
  EXPECT_FALSE(read().tied_embedding);
  EXPECT_THAT(refusal({{"tied_embeddings", true}}), HasSubstr("output.weight differs from tok_e"));
  ranks_[0]["output.weight"] = ranks_[0].at("tok_embeddings.weight");
  EXPECT_TRUE(read().tied_embedding);
  EXPECT_THAT(back(), HasSubstr("left out: tied to the embedding"));
  EXPECT_FALSE(bytes_of(dir_ / "back").contains("lm_head.weight"));
  ranks_[0].erase("output.weight");
  EXPECT_TRUE(read().tied_embedding);
  EXPECT_THAT(refusal({{"tied_embeddings", false}}), HasSubstr("has no output.weight [28, 24]"));
}

TEST_F(Meta, ScalingIsThatOfTheReleaseWhereOnlyItsUseIsSaid) {
  take(llama_of(kRows));
  EXPECT_EQ(read().rotary_scaling.factor, 1);
  RotaryScaling scaling = read({{"use_scaled_rope", true}}).rotary_scaling;
  EXPECT_EQ(scaling.kind, RotaryKind::kLlama3);
  EXPECT_EQ(scaling.factor, 8);
  EXPECT_EQ(scaling.low_freq_factor, 1);
  EXPECT_EQ(scaling.high_freq_factor, 4);
  EXPECT_EQ(scaling.original_positions, 8192);
  EXPECT_EQ(read({{"use_scaled_rope", true}, {"rope_scaling_factor", 16}}).rotary_scaling.factor,
            16);
  ranks_[0].erase("output.weight");  // LLaMA 3.2
  EXPECT_EQ(read({{"use_scaled_rope", true}}).rotary_scaling.factor, 32);
}

TEST_F(Meta, PositionsAreThoseOfTheReleaseWhereTheyAreNotSaid) {
  take(llama_of(kRows));
  auto positions = [&](const Json& changes) { return read(changes).positions; };
  EXPECT_EQ(positions({{"rope_theta", nullptr}, {"norm_eps", 1e-6}}), 2048);
  EXPECT_EQ(positions({{"rope_theta", nullptr}}), 4096);
  EXPECT_EQ(positions({{"rope_theta", 1e6}}), 16384);
  EXPECT_EQ(positions({{"use_scaled_rope", true}}), 131072);
  EXPECT_EQ(positions({{"hidden_dim", kInner}}), 32768);
  EXPECT_EQ(positions({{"max_seq_len", 48}}), 48);
  EXPECT_EQ(positions({{"max_position_embeddings", 64}}), 64);
  for (const char* name : {"tok_embeddings.weight", "output.weight"})
    ranks_[0][name] =
        ranks_[0].at(name).expand({1, kRows, kWidth}).repeat({4600, 1, 1}).view({-1, kWidth});
  EXPECT_EQ(positions(Json::object()), 8192);
}

TEST_F(Meta, MistralsFormHasOneFileAndItsWindow) {
  Model m = mistral(9);
  m.config["head_dim"] = kSize, m.config["rope_theta"] = 10000.0;
  take(m);
  Json params = {{"dim", kWidth},         {"n_layers", 2},
                 {"head_dim", kSize},     {"hidden_dim", kInner},
                 {"n_heads", kHeads},     {"n_kv_heads", kGroups},
                 {"norm_eps", 1e-5},      {"moe", nullptr},
                 {"sliding_window", "9"}, {"model_type", "transformer"},
                 {"vocab_size", kVocab}};
  write(params);
  back();
  EXPECT_EQ(bytes_of(dir_ / "back"), bytes_of(dir_ / "hf"));
  Json config = written_config("back");
  EXPECT_EQ(config.at("architectures"), Json({"MistralForCausalLM"}));
  EXPECT_EQ(config.at("sliding_window"), 9);
  EXPECT_EQ(config.at("rope_theta"), 10000);
  params.erase("sliding_window");
  write(params);
  EXPECT_THAT(refusal(), HasSubstr("params.json lacks rope_theta; write there"));
}

// As Mistral's directories on Hugging Face have them.
TEST_F(Meta, SafetensorsOfTheWholeAreReadBeforeOtherFiles) {
  take(llama_of(kRows));
  write();
  std::vector<Made> made;
  for (const auto& [name, tensor] : ranks_[0]) made.push_back({name, tensor.sizes().vec()});
  dir_.put("meta/consolidated.safetensors", tensors_file(made, "BF16", 3));
  back();
  EXPECT_EQ(bytes_of(dir_ / "back").at("lm_head.weight"),
            bytes_of(dir_ / "meta/consolidated.safetensors").at("output.weight"));
}

TEST_F(Meta, FilesThatAreMissingAreNamed) {
  take(llama_of(kRows), 2);
  write();
  fs::remove(dir_ / "meta/consolidated.00.pth");
  EXPECT_THAT(error_of([&] { back(); }), HasSubstr("consolidated.00.pth is missing; there is "));
  write();
  fs::remove(dir_ / "meta/consolidated.01.pth");
  EXPECT_THAT(error_of([&] { back(); }),
              HasSubstr("has the files of 1 ranks, but layers.0.attention.wq.weight is shared out "
                        "over 2; consolidated.01.pth and those behind it are missing"));
  write();
  fs::remove(dir_ / "meta/params.json");
  EXPECT_THAT(error_of([&] { back(); }), HasSubstr("params.json is missing, which says what"));
  fs::remove_all(dir_ / "meta");
  dir_.put("meta/params.json", llama_params().dump());
  EXPECT_THAT(refusal(), HasSubstr("has neither consolidated.00.pth nor consolidated.safetensors"));
}

TEST_F(Meta, FilesThatDoNotFitTogetherAreRefused) {
  take(llama_of(kRows), 2);
  std::vector<Tensors> whole = ranks_;
  ranks_[1].erase("layers.1.ffn_norm.weight");
  EXPECT_THAT(refusal(Json::object()), HasSubstr("01.pth has no layers.1.ffn_norm.weight, which "));
  ranks_ = whole;
  ranks_[1]["more"] = ranks_[1].at("norm.weight");
  EXPECT_THAT(refusal(Json::object()), HasSubstr("00.pth has no more, which "));
  ranks_[0]["more"] = ranks_[1].at("norm.weight");
  EXPECT_THAT(refusal(Json::object()), HasSubstr("no place in the model: more [24]"));
  ranks_ = whole;
  ranks_[1]["output.weight"] = whole[1].at("output.weight").narrow(0, 1, 13);
  EXPECT_THAT(refusal(Json::object()),
              AllOf(HasSubstr("consolidated.01.pth: output.weight is [13, 24] fp32, but "),
                    HasSubstr("consolidated.00.pth: output.weight is [14, 24] fp32")));
}

TEST_F(Meta, WhatParamsSayMustHoldOfTheTensors) {
  take(llama_of(kRows));
  EXPECT_THAT(refusal({{"vocab_size", 30}}),
              HasSubstr("tok_embeddings.weight is [28, 24], but [30"));
  EXPECT_THAT(refusal({{"hidden_dim", 16}}),
              HasSubstr("w1.weight is [14, 24], but [16, 24] by the"));
  EXPECT_THAT(refusal({{"n_kv_heads", 1}}),
              HasSubstr("attention.wk.weight is [12, 24], but [6, 24]"));
  EXPECT_THAT(refusal({{"n_layers", 3}}), HasSubstr("has no layers.2."));
  EXPECT_THAT(refusal({{"n_layers", 1}}), HasSubstr("no place in the model: layers.1."));
  EXPECT_THAT(refusal({{"dim", 30}}), HasSubstr("dim 30 is not divisible by n_heads 4"));
  EXPECT_THAT(refusal({{"dim", nullptr}}), HasSubstr("params.json lacks dim"));
  EXPECT_THAT(refusal({{"dim", "24"}}), HasSubstr("dim is \"24\", not an integer of at least 1"));
  EXPECT_THAT(refusal({{"n_heads", 8}}), HasSubstr("heads of size 3 have no halves"));
  EXPECT_THAT(refusal({{"norm_eps", nullptr}}), HasSubstr("params.json lacks norm_eps"));
}

TEST_F(Meta, FieldsThatMayChangeTheModelAreRefused) {
  take(llama_of(kRows));
  EXPECT_THAT(refusal({{"quantization_args", {{"scheme", "int8"}}}}),
              HasSubstr("quantization_args is {\"scheme\":\"int8\"}: quantized weights are not"));
  EXPECT_THAT(refusal({{"moe", {{"num_experts", 8}}}}),
              HasSubstr("experts are read in Hugging Face's form of the model alone"));
  for (const char* name : {"lora_args", "lora", "vision_chunk_size", "vision_encoder", "yarn"})
    EXPECT_THAT(refusal({{name, 4}}), HasSubstr(concat("the field ", name, " (4) is not known")));
  EXPECT_THAT(refusal({{"model_type", "mamba"}}),
              HasSubstr("model_type is mamba; supported is tr"));
  EXPECT_THAT(refusal({{"max_seq_len", 8}, {"max_position_embeddings", 9}}),
              HasSubstr("max_seq_len is 8, and max_position_embeddings, which is the same field"));
  dir_.put("meta/params.json", "[]");
  EXPECT_THAT(refusal(), HasSubstr("params.json is not a dictionary"));
}

TEST_F(Meta, DirectoriesOfHuggingFaceThatHaveBothFormsAreTheirs) {
  take(llama_of(kRows));
  write();
  EXPECT_EQ(detect_format(dir_ / "meta").name, std::string("meta"));
  dir_.put("meta/config.json", "{}");
  EXPECT_THAT(error_of([&] { detect_format(dir_ / "meta"); }),
              HasSubstr("looks like hf and like meta; say with --from which it is"));
  dir_.put("meta/model.safetensors", "");
  EXPECT_EQ(detect_format(dir_ / "meta").name, std::string("hf"));
}

TEST_F(Meta, ItIsReadAndNotWritten) {
  take(llama_of(kRows));
  EXPECT_THAT(error_of([&] {
                run({"--to", "meta", dir_ / "hf", dir_ / "out"});
              }),
              AllOf(HasSubstr("64: "), HasSubstr("is read, not written; --to hf")));
  write();
  EXPECT_THAT(run({"inspect", dir_ / "meta"}), HasSubstr("tok_embeddings"));
}

// Meta's download.sh puts the tokenizer above the directories of several sizes.
TEST_F(Meta, PiecesBesideOrAboveGoAlongAndBeginTexts) {
  auto all = nlohmann::json::parse(read_file(NEOX_SOURCE_DIR "/tests/golden/sentencepiece.json"));
  std::string pieces = from_hex(all.at(0).at("model").get<std::string>());
  take(llama_of(kRows));
  write();
  EXPECT_FALSE(open_meta(dir_ / "meta").tokenizer);
  for (const char* name : {"tokenizer.model", "meta/tokenizer.model"}) {
    dir_.put(name, pieces);
    ModelFiles model = open_meta(dir_ / "meta/");
    ASSERT_TRUE(model.tokenizer);
    EXPECT_EQ(model.tokenizer->type, "Llama2Tokenizer");
    EXPECT_EQ(model.companions.at(0).path, fs::path(dir_ / name));
  }
}

// Base64 of three bytes is four letters.
std::string llama3_ranks() {
  std::string ranks;
  for (int byte = 0; byte < 256; ++byte) {
    const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    ranks += concat(kDigits[byte >> 2], kDigits[(byte & 3) << 4], "== ", byte, "\n");
  }
  for (int rank = 256; rank < 128000; ++rank) {
    std::string number = std::to_string(1000000 + rank);
    ranks += concat("aa", number.substr(1), " ", rank, "\n");
  }
  return ranks;
}

TEST_F(Meta, Llama3sTokenizerIsReadAndBecomesAJson) {
  take(llama_of(kRows));
  write();
  dir_.put("meta/tokenizer.model", llama3_ranks());
  run({"--to", "neox.cpp", dir_ / "meta", dir_ / "ours", "--padded-vocab", "128256"});
  EXPECT_THAT(Checkpoint(dir_ / "ours/global_step0").state().config,
              AllOf(HasSubstr("tokenizer_type: TiktokenTokenizer"),
                    HasSubstr("vocab_file: " + dir_ / "ours/hf/llama3.tiktoken")));
  to_hf("ours", "back");
  Json config = written_config("back");
  EXPECT_EQ(config.at("bos_token_id"), 128000);
  EXPECT_EQ(config.at("eos_token_id"), 128001);
  EXPECT_EQ(Tokenizer::from_json(dir_ / "back/tokenizer.json").encode("x<|eot_id|>"),
            (std::vector<int32_t>{128000, 'x', 128009}));
  Json said = Json::parse(read_file(dir_ / "back/tokenizer_config.json"));
  EXPECT_EQ(said.at("bos_token"), "<|begin_of_text|>");
  EXPECT_EQ(said.at("eos_token"), "<|end_of_text|>");
}

}  // namespace
}  // namespace neox::testing
