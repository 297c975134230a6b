// A folder of its own for each test of tokenizers, and a small one trained once.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "generated_text.h"
#include "tokenizer/tokenizer.h"

namespace neox {

using nlohmann::json;
namespace stdfs = std::filesystem;

class TokenizerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    std::replace(name.begin(), name.end(), '/', '_');
    dir_ = stdfs::path(testing::TempDir()) / ("neox_tokenizer_" + name);
    stdfs::create_directories(dir_);
  }
  void TearDown() override { stdfs::remove_all(dir_); }

  static const TrainedBpe& trained() {
    static const TrainedBpe kTrained =
        train_bpe({.vocab_size = 500}, each(TextGenerator(1).documents(200, 100)));
    return kTrained;
  }
  stdfs::path file(const std::string& content, const char* name = "tokenizer.json") const {
    std::ofstream(dir_ / name, std::ios::binary) << content;
    return dir_ / name;
  }
  json described() const {
    write_tokenizer_json(dir_ / "trained.json", trained());
    return json::parse(read_file(dir_ / "trained.json"));
  }
  Tokenizer load(const json& root) const { return Tokenizer::from_json(file(root.dump())); }
  Tokenizer small() const { return load(described()); }
  std::string error_of(const std::function<void()>& action, Exit exit = Exit::kIo) const {
    try {
      action();
    } catch (const Error& e) {
      EXPECT_EQ(e.exit(), exit) << e.what();
      return e.what();
    }
    return "no error";
  }
  std::string error_of(const json& root) const {
    return error_of([&] { load(root); });
  }

  stdfs::path dir_;
};

inline json added(int id, const std::string& content, const char* flag = "",
                  bool normalized = true) {
  json token = {{"id", id},        {"content", content}, {"single_word", false},
                {"lstrip", false}, {"rstrip", false},    {"normalized", normalized},
                {"special", false}};
  if (*flag) token[flag] = true;
  return token;
}

}  // namespace neox
