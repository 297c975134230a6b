// A folder with what a training job needs, and calls of neox-submit in it.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "jobs/request.h"

namespace neox {

using Strings = std::vector<std::string>;

inline const fs::path kTree = NEOX_SOURCE_DIR;

inline SubmitRequest request(const Strings& words, const Environment& env = {}) {
  CommandLine line = part_at_dashes(words);
  Program program = submit_program();
  program.parse(line.own);
  return read_submit_request(program, line.sbatch,
                             {.environment = env, .programs = fs::path(NEOX_BUILD_DIR) / "bin"});
}

// A folder with data, tokenizer and a configuration whose lines can be replaced.
class SubmitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / concat("neox_submit_", ::getpid());
    fs::create_directories(dir_ / "enwik8");
    fs::create_directories(dir_ / "tokenizers");
    for (const char* name : {"enwik8/enwik8_text_document.bin", "enwik8/enwik8_text_document.idx",
                             "tokenizers/20B_tokenizer.json"})
      std::ofstream(dir_ / name) << "x";
  }
  void TearDown() override { fs::remove_all(dir_); }

  Environment env() const { return {{"DATA_PATH", dir_.string()}, {"MODEL_PATH", dir_.string()}}; }
  static std::string config(const std::string& name) {
    return (kTree / "configs/pythia" / name).string();
  }
  // train NAME OPTION...
  SubmitRequest train(const std::string& name, Strings options) const {
    options.insert(options.begin(), {"train", config(name)});
    return request(options, env());
  }
  // The message with which that is refused; its folder reads DIR.
  std::string refusal(const std::string& name, const Strings& options) const {
    try {
      train(name, options);
    } catch (const Error& e) {
      EXPECT_EQ(e.exit(), Exit::kUsage) << e.what();
      std::string text = e.what();
      for (size_t at; (at = text.find(dir_.string())) != text.npos;)
        text.replace(at, dir_.string().size(), "DIR");
      return text;
    }
    return "";
  }
  void expect_refused(const std::string& name, const Strings& options, const Strings& says) const {
    std::string text = refusal(name, options);
    for (const std::string& part : says)
      EXPECT_NE(text.find(part), text.npos) << "'" << part << "' is not in: " << text;
  }

  fs::path dir_;
};

}  // namespace neox
