// Files of tensors, of safetensors and of PyTorch: what is refused, and what is written.
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "convert/formats.h"
#include "convert/safetensors.h"
#include "convert_fixture.h"
#include "data_files.h"
#include "safetensors_files.h"
#include "torchfile/torch_writer.h"

namespace neox::testing {
namespace {

using ::testing::HasSubstr;

const std::string kOneNumber =
    file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "1234");

// The error of reading such a file.
std::string reading(const Directory& dir, const std::string& content) {
  dir.put("x.safetensors", content);
  return error_of([&] { SafetensorsFile(dir / "x.safetensors"); });
}

TEST(Safetensors, BrokenFilesAreRefusedByName) {
  Directory dir;
  auto header = [&](const std::string& text, size_t data = 8) {
    return reading(dir, file_of(text, std::string(data, 'x')));
  };
  auto tensor = [](const char* name, const char* rest) {
    return concat("\"", name, "\":{", rest, "}");
  };
  std::string a = tensor("a", R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"),
              b = tensor("b", R"("dtype":"F32","shape":[1],"data_offsets":[4,8])");
  EXPECT_EQ(header("{" + a + "," + b + "}"), "");
  EXPECT_THAT(reading(dir, "abc"), HasSubstr("has 3 bytes: it is truncated"));
  EXPECT_THAT(reading(dir, std::string("\xff\xff\0\0\0\0\0\0{}", 10)),
              HasSubstr("its header alone"));
  EXPECT_THAT(reading(dir, std::string(8, '\x7f')), HasSubstr("more than 100000000 are not read"));
  EXPECT_THAT(header("[]"), HasSubstr("has no header"));
  EXPECT_THAT(header("{\"a\":"), HasSubstr("not readable JSON"));
  EXPECT_THAT(header("{" + a + "," + a + "}"), HasSubstr("the key a stands there twice"));
  EXPECT_THAT(header("{\"a\":" + std::string(20, '[')), HasSubstr("nested"));
  EXPECT_THAT(header("{" + a + "," + b + "}", 7), HasSubstr("is truncated: its tensors have 8"));
  EXPECT_THAT(header("{" + a + "," + b + "}", 9), HasSubstr("1 bytes after its last tensor"));
  EXPECT_THAT(header("{" + b + "}"), HasSubstr("between the header and b, belong to no tensor"));
  std::string c = tensor("c", R"("dtype":"F32","shape":[1],"data_offsets":[2,6])");
  EXPECT_THAT(header("{" + a + "," + c + "}"), HasSubstr("before the end of a at 4: they overlap"));
}

TEST(Safetensors, WrongEntriesAreRefusedByName) {
  Directory dir;
  auto entry = [&](const char* text) {
    return reading(dir, file_of(concat("{\"a\":{", text, "}}"), std::string(8, 'x')));
  };
  EXPECT_THAT(entry(R"("dtype":"Q4","shape":[2],"data_offsets":[0,8])"),
              HasSubstr("tensor a has the type Q4, which is not known"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"),
              HasSubstr("has 12 bytes, but"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"),
              HasSubstr("data_offsets are [8,0]"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"),
              HasSubstr("has -2 where"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"),
              HasSubstr("has 2.0 where"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"),
              HasSubstr("which no file can hold"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[2])"), HasSubstr("should have dtype, shape"));
  EXPECT_THAT(entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1)"),
              HasSubstr("and nothing else"));
}

// Any byte may be wrong: an Error or a file, and nothing else.
TEST(Safetensors, DamagedHeadersAreErrors) {
  Directory dir;
  const std::string whole = file_of(
      R"({"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"b":{"dtype":"F16","shape":[2],"data_offsets":[8,12]}})",
      std::string(12, 'x'));
  std::mt19937 rng(3);
  int opened = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = whole;
    for (int flips = 0; flips <= i % 3; ++flips)
      damaged[rng() % (whole.size() - 12)] = static_cast<char>(rng());
    opened += reading(dir, damaged).empty();
  }
  EXPECT_LT(opened, 1000);
}

TEST(Safetensors, FilesThatAreWrittenAreReadBack) {
  Directory dir;
  std::vector<TensorInfo> infos = {{"half", at::kHalf, {3}},
                                   {"scalar", at::kDouble, {}},
                                   {"none", at::kFloat, {0, 4}},
                                   {"whole", at::kFloat, {2, 2}}};
  SafetensorsWriter writer(dir.path(), infos, 1 << 20);
  std::map<std::string, at::Tensor> tensors;
  for (const TensorInfo& info : infos) {
    tensors[info.name] = at::full(info.shape, 1.25, info.dtype);
    writer.write(info.name, tensors[info.name]);
  }
  writer.finish();
  SafetensorsFile file(dir / "model.safetensors");
  for (const auto& [name, tensor] : tensors) EXPECT_TRUE(file.read(name).equal(tensor)) << name;
  EXPECT_EQ(read_file(dir / "model.safetensors")[8], '{');
  EXPECT_EQ(static_cast<unsigned char>(read_file(dir / "model.safetensors")[0]) % 8, 0);
}

int64_t open_files() {
  return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
}

// A model may come in more files than may be open at once.
TEST(Safetensors, FilesAreOpenOnlyWhileTheyAreRead) {
  Directory dir;
  std::string x = dir.put("x.safetensors", kOneNumber);
  int64_t before = open_files();
  SafetensorsFile file(x);
  EXPECT_EQ(open_files(), before);
  EXPECT_EQ(file.read("a").numel(), 1);
  EXPECT_EQ(open_files(), before);
}

TEST(Safetensors, AFileThatIsWrittenAgainIsNotReadOn) {
  Directory dir;
  std::string x = dir.put("x.safetensors", kOneNumber);
  SafetensorsFile file(x);
  fs::last_write_time(x, fs::last_write_time(x) + std::chrono::seconds(1));
  EXPECT_THAT(error_of([&] { file.read("a"); }), HasSubstr("x.safetensors was written again"));
  fs::remove(x);
  EXPECT_THAT(error_of([&] { file.read("a"); }), HasSubstr("cannot open "));
}

TEST_F(Convert, WhatIsNoStateDictIsRefused) {
  model();
  fs::remove(dir_ / "hf/model.safetensors");
  using torchfile::Item;
  auto with = [&](const Item& root) {
    torchfile::write_torch_file(dir_ / "hf/pytorch_model.bin", root);
    return error();
  };
  EXPECT_THAT(with(Item::list({1})), HasSubstr("holds a list instead of a state dict"));
  EXPECT_THAT(with(Item::dict({{"model", Item::dict({})}})), HasSubstr("model is a dict, not a"));
  dir_.put("hf/pytorch_model.bin", "PK is not enough");
  EXPECT_THAT(error(), HasSubstr("pytorch_model.bin"));
}

TEST_F(Convert, APathThatNoConfigurationCanHoldIsNamed) {
  dir_.put("hf/tokenizer.json", "{\"model\": {}}");
  for (const char* to : {"neox.cpp", "neox"})
    EXPECT_THAT(error_of([&] {
                  run({"--to", to, model(), dir_ / "out\xff"});
                }),
                HasSubstr("is not UTF-8, as a configuration that names it must be"));
}

// As in the private directory of who trained the model.
TEST_F(Convert, ATokenizerThatCannotBeReadIsLeftOut) {
  fs::path loop = dir_ / "loop.json";
  fs::create_symlink(loop, loop);
  ModelFiles run{.where = "run", .config = {}, .files = {}};
  for (bool merges : {false, true}) {
    run.config.tokenizer = {.type = "HFTokenizer", .vocab_file = loop, .merge_file = {}};
    if (merges) run.config.tokenizer.vocab_file = dir_.put("vocab.json", "{}");
    if (merges) run.config.tokenizer.merge_file = loop;
    ::testing::internal::CaptureStderr();
    EXPECT_FALSE(add_tokenizer(run));
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                HasSubstr("loop.json, with which run was trained, cannot be read (Too many"));
  }
  EXPECT_TRUE(run.companions.empty());
}

// As safetensors' save_model() keeps one of two names of a tensor.
TEST_F(Convert, TheHeadOfATiedModelMayStandForTheEmbedding) {
  Json config = tiny_config();
  config["tie_word_embeddings"] = true;
  std::vector<Made> tensors = tiny_tensors();
  tensors.erase(tensors.begin());
  model(tensors, config);
  to_ours("ours");
  to_hf("ours", "back");
  Bytes was = bytes_of(dir_ / "hf"), is = bytes_of(dir_ / "back");
  EXPECT_EQ(is.at("gpt_neox.embed_in.weight"), was.at("embed_out.weight"));
  EXPECT_EQ(is.count("embed_out.weight"), 0);
}

TEST_F(Convert, WhatIsNoConfigurationBesideGptNeoxsIsPassedOver) {
  run({"--to", "neox", model(), dir_ / "neox"});
  dir_.put("neox/global_step0/configs/._model.yml", std::string(9, '\0'));
  dir_.put("neox/global_step0/configs/model.yml~", "num_layers: 7\n");
  to_hf("neox", "back");
  EXPECT_EQ(bytes_of(dir_ / "back"), bytes_of(dir_ / "hf"));
}

TEST_F(Convert, OfASaveDirectoryThatDoesNotSayItsNewestOneIsToBeNamed) {
  for (const char* to : {"neox", "megatron"}) {
    Json config = tiny_config();
    config["use_parallel_residual"] = false;
    run({"--to", to, model(tiny_tensors(), config), dir_ / to});
    for (const char* name : {"latest", "latest_checkpointed_iteration.txt"})
      fs::remove(fs::path(dir_ / to) / name);
    EXPECT_THAT(error_of([&] { to_hf(to, "back"); }),
                HasSubstr("the newest: give one, such as " + dir_ / to));
  }
}

// As a file of tensors is.
TEST_F(Convert, ADirectoryMayHaveAnyName) {
  model();
  to_ours("run.bin");
  EXPECT_THAT(run({"inspect", dir_ / "run.bin"}), HasSubstr("embed_in"));
}

}  // namespace
}  // namespace neox::testing
