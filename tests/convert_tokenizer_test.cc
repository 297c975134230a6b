// The tokenizer that goes along with a model, and what other programs are told of it.
#include <gmock/gmock.h>

#include "checkpoint/checkpoint.h"
#include "convert/formats.h"
#include "convert/model_files.h"
#include "convert_fixture.h"
#include "generated_text.h"
#include "hex.h"
#include "tokenizer/spm_model.h"
#include "tokenizer/tokenizer.h"

namespace neox::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(Convert, TokenizerGoesAlong) {
  model();
  dir_.put("hf/tokenizer.json", "{\"model\": {}}");
  dir_.put("hf/generation_config.json", "{\"eos_token_id\": 4}");
  to_ours("ours");
  EXPECT_THAT(Checkpoint(dir_ / "ours/global_step0").state().config,
              HasSubstr("vocab_file: " + dir_ / "ours/hf/tokenizer.json"));
  to_hf("ours", "back");
  for (const char* name : {"tokenizer.json", "generation_config.json"})
    EXPECT_EQ(read_file(fs::path(dir_ / "back") / name), read_file(fs::path(dir_ / "hf") / name));
}

// The configuration names it where it was.
TEST_F(Convert, TokenizerGoesAlongWhereACheckpointHasMoved) {
  model();
  dir_.put("hf/tokenizer.json", "{\"model\": {}}");
  to_ours("was");
  fs::rename(dir_ / "was", dir_ / "ours");
  to_hf("ours", "back");
  run({"--to", "neox", dir_ / "ours", dir_ / "was"});
  fs::rename(dir_ / "was", dir_ / "neox");
  to_hf("neox", "again");
  for (const char* name : {"back", "again"})
    EXPECT_EQ(read_file(fs::path(dir_ / name) / "tokenizer.json"), "{\"model\": {}}");
}

// {"content": ..., "id": ...} and a template that begins with a token, as LLaMA 3 has them.
TEST_F(Convert, TransformersIsToldWhatTextsBeginAndEndWith) {
  model();
  dir_.put(
      "hf/tokenizer.json",
      R"({"added_tokens": [{"content": "<|begin|>", "id": 7}, {"content": "<|end_of_text|>", "id": 9}],
               "post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel"},
                 {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|begin|>", "type_id": 0}},
                                                           {"Sequence": {"id": "A", "type_id": 0}}]}]}})");
  to_ours("ours");
  fs::remove(fs::path(dir_ / "ours/hf/config.json"));
  to_hf("ours", "back");
  std::string config = read_file(fs::path(dir_ / "back/config.json")),
              tokenizer = read_file(fs::path(dir_ / "back/tokenizer_config.json"));
  EXPECT_THAT(config, HasSubstr("\"bos_token_id\": 7"));
  EXPECT_THAT(config, HasSubstr("\"eos_token_id\": 9"));
  EXPECT_THAT(tokenizer, HasSubstr("\"bos_token\": \"<|begin|>\""));
  EXPECT_THAT(tokenizer, HasSubstr("\"eos_token\": \"<|end_of_text|>\""));
}

// As a model of chats, whose texts end with another token than its documents.
TEST_F(Convert, TransformersIsToldTheTokensThatTheTokenizerNames) {
  model();
  dir_.put(
      "hf/tokenizer.json",
      R"({"added_tokens": [{"content": "<|endoftext|>", "id": 7}, {"content": "<|im_end|>", "id": 9}],
          "model": {"vocab": {"<pad>": 3, "<far>": 99}}})");
  to_ours("ours");
  fs::remove(fs::path(dir_ / "ours/hf/config.json"));
  auto ids = [&](const std::string& said) {
    dir_.put("ours/hf/tokenizer_config.json", said);
    fs::remove_all(dir_ / "back");
    to_hf("ours", "back");
    Json config = written_config("back");
    return concat(config.at("bos_token_id").dump(), " ", config.at("eos_token_id").dump(), " ",
                  config.value("pad_token_id", Json()).dump());
  };
  EXPECT_EQ(ids(R"({"eos_token": "<|im_end|>", "pad_token": {"content": "<pad>"}})"), "7 9 3");
  EXPECT_EQ(ids(R"({"bos_token": {"content": "<|im_end|>"}, "eos_token": null})"), "9 7 null");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(ids(R"({"eos_token": "<none>", "pad_token": "<far>"})"), "7 7 null");
  std::string warned = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(warned, HasSubstr("eos_token is '<none>', which the tokenizer or the embedding"));
  EXPECT_THAT(warned, HasSubstr("pad_token is '<far>'"));
  dir_.put("ours/hf/special_tokens_map.json",
           R"({"eos_token": {"content": "<|im_end|>"}, "pad_token": "<pad>"})");
  EXPECT_EQ(ids("{}"), "7 9 3");
  EXPECT_EQ(ids(R"({"eos_token": "<|endoftext|>"})"), "7 7 3");
}

// Else it would take a class by the model's type, with rules of its own for cutting texts.
TEST_F(Convert, TransformersIsToldToGoByTheTokenizersFile) {
  model();
  dir_.put("hf/tokenizer.json", "{}"), dir_.put("hf/tokenizer_config.json", "{}");
  to_ours("ours");
  fs::remove(fs::path(dir_ / "ours/hf/config.json"));
  to_hf("ours", "back");
  EXPECT_EQ(written_config("back").at("tokenizer_class"), "PreTrainedTokenizerFast");
}

TEST_F(Convert, WhatConfigJsonSaysOfTokensStaysWhereThereAreRowsForThem) {
  Json config = tiny_config();
  config.update({{"tokenizer_class", "Mine"}, {"eos_token_id", 2}, {"pad_token_id", 30}});
  model(tiny_tensors(), config);
  to_ours("ours", {"--padded-vocab", "32"});
  to_hf("ours", "wide");
  EXPECT_EQ(written_config("wide").at("pad_token_id"), 30);
  to_hf("ours", "back", {"--padded-vocab", "29"});
  Json back = written_config("back");
  EXPECT_EQ(back.at("tokenizer_class"), "Mine");
  EXPECT_EQ(back.at("eos_token_id"), 2);
  EXPECT_EQ(back.at("pad_token_id"), nullptr);
}

// The embedding has rows 0..28, the tokenizer 300 entries.
TEST_F(Convert, ATokenizerThatIsLargerThanTheEmbeddingIsWarnedOf) {
  model();
  TrainedBpe small = train_bpe({.vocab_size = 300}, each({"the and of to"}));
  write_tokenizer_json(dir_ / "hf/tokenizer.json", small);
  auto warned = [&](const std::string& name, const std::vector<std::string>& more) {
    ::testing::internal::CaptureStderr();
    to_ours(name, more);
    return ::testing::internal::GetCapturedStderr();
  };
  std::string entries =
      std::to_string(Tokenizer::from_json(dir_ / "hf/tokenizer.json").vocab_size());
  EXPECT_THAT(warned("ours", {}),
              HasSubstr(concat("has ", entries, " entries, but the embedding 29 rows")));
  EXPECT_THAT(warned("again", {}), HasSubstr("--padded-vocab " + entries));
  EXPECT_THAT(warned("more", {"--padded-vocab", entries}), Not(HasSubstr("warning")));
}

// A run in the directory of its files names its tokenizer by the name alone.
TEST_F(Convert, WhatBelongsToATokenizerNamedWithoutADirectoryGoesAlong) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"})
    dir_.put(name, "{}");
  fs::path was = fs::current_path();
  fs::current_path(dir_.path());
  ModelFiles run{.where = "run", .config = {}, .files = {}};
  run.config.tokenizer = {.type = "HFTokenizer", .vocab_file = "tokenizer.json", .merge_file = {}};
  add_run_companions(run);
  fs::current_path(was);
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(add_tokenizer(run));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("the directory that the run"));
  for (const char* name : {"tokenizer_config.json", "generation_config.json"})
    EXPECT_NE(companion(run, name), nullptr) << name;
}

// Which says their encoding.
TEST_F(Convert, RanksOfTiktokenGoAlongUnderTheirName) {
  dir_.put("r50k_base.tiktoken", "");
  ModelFiles run{.where = "run", .config = {}, .files = {}};
  run.config.tokenizer = {
      .type = "TiktokenTokenizer", .vocab_file = dir_ / "r50k_base.tiktoken", .merge_file = {}};
  add_run_companions(run);
  ASSERT_TRUE(run.tokenizer);
  EXPECT_EQ(run.tokenizer->type, "TiktokenTokenizer");
  EXPECT_EQ(run.tokenizer->vocab, "r50k_base.tiktoken");
}

TEST_F(Convert, PiecesOfAnotherKindGoAlongAsTheyAre) {
  model();
  dir_.put("hf/tokenizer.model", "pieces");
  to_ours("ours");
  to_hf("ours", "back");
  EXPECT_EQ(read_file(fs::path(dir_ / "back/tokenizer.model")), "pieces");
  EXPECT_FALSE(fs::exists(fs::path(dir_ / "back/tokenizer_config.json")));
}

// transformers may give other ids without it.
TEST_F(Convert, ATokenizerJsonBesidePiecesComesBack) {
  model();
  dir_.put("hf/tokenizer.model", "pieces");
  for (const char* name : {"tokenizer.json", "vocab.json", "merges.txt"})
    dir_.put(concat("hf/", name), concat("its ", name));
  to_ours("ours");
  to_hf("ours", "back");
  for (const char* name : {"tokenizer.json", "vocab.json", "merges.txt"})
    EXPECT_EQ(read_file(fs::path(dir_ / "back") / name), concat("its ", name));
}

TEST_F(Convert, TransformersIsToldTheClassOfGpt2sFiles) {
  model();
  dir_.put("hf/vocab.json", "{}"), dir_.put("hf/merges.txt", "");
  to_ours("ours");
  to_hf("ours", "back");
  std::string config = read_file(fs::path(dir_ / "back/tokenizer_config.json"));
  EXPECT_THAT(config, HasSubstr("\"tokenizer_class\": \"GPT2Tokenizer\""));
  EXPECT_THAT(config, HasSubstr("\"eos_token\": \"<|endoftext|>\""));
}

nlohmann::json golden(const std::string& name) {
  return nlohmann::json::parse(read_file(concat(NEOX_SOURCE_DIR "/tests/golden/", name)));
}

// A tokenizer.json is what transformers reads, also where the pieces of a tokenizer.model are the
// same.
TEST_F(Convert, ATokenizerJsonIsTakenBeforeThePiecesBesideIt) {
  dir_.put("hf/tokenizer.model",
           from_hex(golden("sentencepiece.json").at(0).at("model").get<std::string>()));
  auto known = std::ssize(read_spm_model(dir_ / "hf/tokenizer.model").pieces);
  model_of_rows(known + 1);
  nlohmann::json all = golden("fallback_tokenizers.json"), root = all.at("LLaMA 2").at("parts");
  root["model"] = all.at("model");
  nlohmann::json &vocab = root["model"]["vocab"], &added = root["added_tokens"];
  for (int64_t id = std::ssize(vocab); id < known; ++id) vocab[concat("more", id)] = id;
  while (added.back().at("id") > 2) added.erase(added.size() - 1);
  std::vector<std::string> more;
  auto converted = [&] {
    dir_.put("hf/tokenizer.json", root.dump());
    fs::remove_all(dir_ / "ours");
    ::testing::internal::CaptureStderr();
    to_ours("ours", more);
    return Checkpoint(dir_ / "ours/global_step0").state().config +
           ::testing::internal::GetCapturedStderr();
  };
  std::string config = converted();
  EXPECT_THAT(config, HasSubstr("tokenizer_type: HFTokenizer"));
  EXPECT_THAT(config, HasSubstr("vocab_file: " + dir_ / "ours/hf/tokenizer.json"));
  added.push_back(added.back());
  added.back()["content"] = "<|im_start|>", added.back()["id"] = known;
  EXPECT_THAT(converted(), HasSubstr("tokenizer_type: HFTokenizer"));
  // The embedding has no row of it, as of LLaMA 2's <pad>.
  model_of_rows(known);
  EXPECT_THAT(converted(), HasSubstr("tokenizer_type: SPMTokenizer"));
  more = {"--padded-vocab", std::to_string(known + 1)};
  EXPECT_THAT(converted(), HasSubstr("tokenizer_type: HFTokenizer"));
  model_of_rows(known + 1);
  root["normalizer"]["normalizers"].push_back({{"type", "Upper"}});
  config = converted();
  EXPECT_THAT(config, HasSubstr("tokenizer_type: SPMTokenizer"));
  EXPECT_THAT(config, HasSubstr("the type is Upper; supported are BertNormalizer"));
  fs::remove(fs::path(dir_ / "hf/tokenizer.json"));
  dir_.put("hf/added_tokens.json", concat("{\"<|im_start|>\": ", known, "}"));
  fs::remove_all(dir_ / "ours");
  ::testing::internal::CaptureStderr();
  to_ours("ours", more);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("'<|im_start|>' of added_tokens.json is plain text for the tokenizer of"));
}

// transformers makes a tokenizer.json of them that is not GPT-2's.
TEST_F(Convert, FilesOfAnotherClassThanGpt2sAreNotTakenForIts) {
  auto said = [&](const char* config, const char* added) {
    model();
    dir_.put("hf/vocab.json", "{\"a\": 0, \"b\": 1}"), dir_.put("hf/merges.txt", "");
    dir_.put("hf/tokenizer_config.json", config), dir_.put("hf/added_tokens.json", added);
    fs::remove_all(dir_ / "ours");
    ::testing::internal::CaptureStderr();
    to_ours("ours");
    return Checkpoint(dir_ / "ours/global_step0").state().config +
           ::testing::internal::GetCapturedStderr();
  };
  std::string same = said("{\"tokenizer_class\": \"GPT2Tokenizer\"}", "{\"a\": 0}");
  EXPECT_THAT(same, HasSubstr("vocab_file: " + dir_ / "ours/hf/vocab.json"));
  std::string other = said("{\"tokenizer_class\": \"Qwen2Tokenizer\"}", "{}");
  EXPECT_THAT(other, HasSubstr("is not taken: it is a Qwen2Tokenizer, not GPT-2's"));
  EXPECT_THAT(other, ::testing::Not(HasSubstr("vocab_file: ")));
  EXPECT_THAT(said("{}", "{\"<|im_end|>\": 2}"),
              HasSubstr("'<|im_end|>' of added_tokens.json is not in vocab.json"));
  EXPECT_THAT(
      said("{\"add_bos_token\": true}", "{}"),  // OPT's
      HasSubstr("is not taken: texts begin with a token (add_bos_token), as GPT-2's do not"));
}

// As PyYAML and GPT-NeoX read it: 1e-06 would be a text, and rows that its padding does not give
// could not be loaded.
TEST_F(Convert, GptNeoxCanReadTheConfigurationThatItIsGiven) {
  model();
  auto yaml = [&](const std::string& name, const std::string& tensor) {
    run({"--to", "neox", dir_ / "hf", dir_ / name, "--tensor-parallel", tensor});
    return read_file(fs::path(dir_ / name) / "global_step0/configs/model.yml");
  };
  std::string alone = yaml("one", "1");
  EXPECT_THAT(alone, HasSubstr("layernorm_epsilon: 1.0e-06\n"));
  EXPECT_THAT(alone, HasSubstr(concat("make_vocab_size_divisible_by: ", kVocab, "\n")));
  // With a tokenizer whose padded entries are the rows, the usual key does it.
  TrainedBpe small = train_bpe({.vocab_size = 300}, each({"the and of to"}));
  model_of_rows(384);
  EXPECT_THAT(yaml("unknown", "1"), HasSubstr("make_vocab_size_divisible_by: 384\n"));
  write_tokenizer_json(dir_ / "hf/tokenizer.json", small);
  EXPECT_THAT(yaml("two", "1"), HasSubstr("make_vocab_size_divisible_by: 128\n"));
  model_of_rows(512);
  EXPECT_THAT(yaml("more", "1"), HasSubstr("make_vocab_size_divisible_by: 512\n"));
}

TEST_F(Convert, GptNeoxIsNotGivenWhatItComputesOtherwise) {
  Json config = tiny_config();
  config["rotary_emb_base"] = 5000.5;
  model(tiny_tensors(), config);
  EXPECT_THAT(error_of([&] {
                run({"--to", "neox", dir_ / "hf", dir_ / "x"});
              }),
              HasSubstr("rotary_emb_base is a whole number; the model's is 5000.5"));
  model();
  EXPECT_THAT(error_of([&] {
                run({"--to", "neox", dir_ / "hf", dir_ / "x", "--pipeline-parallel", "3"});
              }),
              HasSubstr("--pipeline-parallel 3 of a model of 2 layers"));
  config = tiny_config();
  config["is_causal"] = false;
  model(tiny_tensors(), config);
  EXPECT_THAT(error(), HasSubstr("is_causal is false, which is not supported"));
}

// In containers all processes have the same few numbers.
TEST_F(Convert, WhatAnInterruptedConversionHasLeftIsNotGoneOnWith) {
  model();
  dir_.put(concat("ours.tmp-", ::getpid(), "/hf/tokenizer_config.json"), "{}");
  to_ours("ours");
  EXPECT_FALSE(fs::exists(fs::path(dir_ / "ours/hf/tokenizer_config.json")));
  EXPECT_TRUE(fs::exists(fs::path(dir_ / "ours/global_step0")));
}

// What a run says counts, not what lies beside its tokenizer.
TEST_F(Convert, ARunKeepsItsKindOfPieces) {
  model();
  std::string pieces = from_hex(golden("sentencepiece.json").at(0).at("model").get<std::string>());
  dir_.put("hf/tokenizer.model", pieces);
  for (const char* type : {"Llama2Tokenizer", "SPMTokenizer"}) {
    bool begins = type == std::string("Llama2Tokenizer");
    dir_.put("hf/tokenizer_config.json",
             concat("{\"add_bos_token\": ", begins ? "true}" : "false}"));
    for (const char* made : {"ours", "back", "again"}) fs::remove_all(dir_ / made);
    to_ours("ours");
    for (const char* name : {"config.json", "tokenizer_config.json"})
      fs::remove(fs::path(dir_ / "ours/hf") / name);
    to_hf("ours", "back");
    std::string config = read_file(fs::path(dir_ / "back/config.json")),
                tokenizer = read_file(fs::path(dir_ / "back/tokenizer_config.json"));
    EXPECT_THAT(config, HasSubstr("\"bos_token_id\": 1"));
    EXPECT_THAT(config, HasSubstr("\"eos_token_id\": 2"));
    EXPECT_THAT(tokenizer,
                HasSubstr(begins ? "\"add_bos_token\": true" : "\"add_bos_token\": false"));
    dir_.put("ours/hf/tokenizer_config.json",
             concat("{\"add_bos_token\": ", begins ? "false}" : "true}"));
    run({"--to", "neox.cpp", dir_ / "ours", dir_ / "again"});
    EXPECT_THAT(Checkpoint(dir_ / "again/global_step0").state().config,
                HasSubstr(concat("tokenizer_type: ", type)));
  }
}

TEST_F(Convert, TextsBeginAsTransformersBeginsThem) {
  model();
  dir_.put("hf/tokenizer.model", "pieces");
  auto type = [&](const std::string& config) {
    if (!config.empty()) dir_.put("hf/tokenizer_config.json", config);
    fs::remove_all(dir_ / "ours");
    to_ours("ours");
    std::string text = Checkpoint(dir_ / "ours/global_step0").state().config,
                key = "tokenizer_type: ";
    size_t at = text.find(key) + key.size();
    return text.substr(at, text.find('\n', at) - at);
  };
  EXPECT_EQ(type(""), "SPMTokenizer");
  EXPECT_EQ(type("{\"tokenizer_class\": \"LlamaTokenizer\"}"), "Llama2Tokenizer");
  EXPECT_EQ(type("{\"tokenizer_class\": \"LlamaTokenizer\", \"add_bos_token\": false}"),
            "SPMTokenizer");
  EXPECT_EQ(type("{\"tokenizer_class\": \"T5Tokenizer\"}"), "SPMTokenizer");
  EXPECT_EQ(type("{\"tokenizer_class\": \"Other\", \"add_bos_token\": true}"), "Llama2Tokenizer");
}

TEST_F(Convert, ATokenizerThatIsNoneIsWarnedOf) {
  model();
  dir_.put("hf/tokenizer.json", "<html>404</html>");
  ::testing::internal::CaptureStderr();
  to_ours("ours");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("hf/tokenizer.json is not valid JSON, and is copied as it is"));
}

// As git clone leaves files of a model where Git LFS is not installed.
TEST_F(Convert, PointersOfGitLfsAreNamed) {
  for (const char* name : {"tokenizer.json", "model.safetensors", "config.json"}) {
    model();
    dir_.put(std::string("hf/") + name,
             "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 166029852\n");
    EXPECT_THAT(error_of([&] { to_ours("ours"); }),
                HasSubstr(concat(dir_ / "hf/", name,
                                 " is the pointer that Git LFS left in place of "
                                 "the file; run `git lfs pull` in ",
                                 dir_ / "hf")));
    EXPECT_FALSE(fs::exists(fs::path(dir_ / "ours") / "global_step0"));
    fs::remove_all(dir_ / "hf"), fs::remove_all(dir_ / "ours");
  }
  model();
  fs::remove(fs::path(dir_ / "hf") / "model.safetensors");
  dir_.put("hf/pytorch_model.bin", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_THAT(error_of([&] { to_ours("ours"); }), HasSubstr("run `git lfs pull` in"));
}

}  // namespace
}  // namespace neox::testing
