// A small language for tests of the configuration: load("num_layers: 6") reads a complete tiny
// configuration in which these lines replace those of the same key; fails("...") is the message of
// the Error.
#pragma once
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/config.h"

namespace neox {

class ConfigTest : public ::testing::Test {
 protected:
  using Strings = std::vector<std::string>;

  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() /
           ("neox_config_" + std::to_string(::getpid()) + "_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ / name, std::ios::binary) << text;
    return (dir_ / name).string();
  }

  // The lines stand first, so that "a.yml:1" is the first of them.
  static std::string complete(const std::string& lines) {
    static const std::vector<std::pair<std::string, std::string>> kBase = {
        {"num_layers", "2"},          {"hidden_size", "64"},
        {"num_attention_heads", "4"}, {"seq_length", "32"},
        {"pos_emb", "rotary"},        {"train_iters", "100"},
        {"train_batch_size", "8"},    {"max_position_embeddings", "32"}};
    std::string text = lines.empty() ? "" : lines + "\n";
    std::string spelled = "\n" + text;
    std::replace(spelled.begin(), spelled.end(), '-', '_');
    for (const auto& [key, value] : kBase)
      if (spelled.find("\n" + key + ":") == std::string::npos) text += key + ": " + value + '\n';
    return text;
  }

  Config load(const std::string& lines, const Strings& overrides = {}) const {
    return load_files({write("a.yml", complete(lines))}, overrides);
  }
  static Config load_files(const Strings& files, const Strings& overrides = {}) {
    return load_config({.files = files, .directory = {}, .overrides = overrides});
  }

  // The message, with the directory cut out; "" where nothing fails.
  std::string fails_files(const Strings& files, const Strings& overrides = {}) const {
    try {
      load_files(files, overrides);
    } catch (const Error& e) {
      EXPECT_EQ(e.exit(), Exit::kUsage) << e.what();
      std::string text = e.what(), dir = dir_.string() + '/';
      for (size_t at; (at = text.find(dir)) != text.npos;) text.erase(at, dir.size());
      return text;
    }
    return "";
  }
  std::string fails(const std::string& lines, const Strings& overrides = {}) const {
    return fails_files({write("a.yml", complete(lines))}, overrides);
  }

  std::filesystem::path dir_;
};

// EXPECT_HAS("text", "part") prints the text where the part is missing.
inline ::testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != text.npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << part << "' is not in '" << text << "'";
}
inline ::testing::AssertionResult starts(const std::string& text, const std::string& part) {
  if (text.starts_with(part)) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << part << "' does not start '" << text << "'";
}

}  // namespace neox
