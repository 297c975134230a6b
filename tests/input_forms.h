// A directory of inputs in many forms, and what neox-prepare-data makes of them.
#pragma once
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "comm/thread.h"
#include "data_files.h"
#include "generated_text.h"
#include "prepare/prepare_options.h"

namespace neox::testing {

// Words in no order, that compress little.
inline std::string words(size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::string text;
  while (text.size() < bytes) text += concat("the cat ", random(), " and ", random(), "\n");
  return text;
}

inline std::string line_of(const std::string& text) {
  std::string escaped;
  for (char c : text) escaped += c == '\n' ? "\\n" : std::string(1, c);
  return "{\"text\": \"" + escaped + "\"}\n";
}

class InputForms : public ::testing::Test {
 protected:
  using Arguments = std::vector<std::string>;

  InputForms() {
    write_tokenizer_json(dir_ / "tokenizer.json",
                         train_bpe({.vocab_size = 280}, each({"the cat and the hat"})));
    for (unsigned i = 0; i < 7; ++i) texts_.push_back(words(1000 * i + 1, i));
    for (const std::string& text : texts_) lines_ += line_of(text);
  }

  PrepareResult prepare(const Arguments& inputs, const Arguments& more = {}, int ranks = 1) {
    Arguments arguments = {"--output-prefix",       dir_ / "out", "--vocab-file",
                           dir_ / "tokenizer.json", "--workers",  "3"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.push_back("--input");
    arguments.insert(arguments.end(), inputs.begin(), inputs.end());
    Program program = prepare_program();
    check(program.parse(arguments), "help was asked");
    PrepareOptions options = read_prepare_options(program);
    options.life = "1";
    PrepareResult result;
    run_thread_ranks(ranks, [&](Communicator&, Control& control) {
      PrepareResult mine = prepare_data(options, control);
      if (control.rank() == 0) result = mine;
    });
    return result;
  }

  std::string refusal(const Arguments& inputs, const Arguments& more = {}) {
    std::string error = error_of([&] { prepare(inputs, more); });
    for (const std::string& name : dir_.list())
      EXPECT_EQ(name.find("out_text"), std::string::npos) << name;
    return error;
  }

  // Both files, of an input.
  std::string dataset(const Arguments& inputs, const Arguments& more = {}, int ranks = 1) {
    prepare(inputs, more, ranks);
    std::string bin = dir_ / "out_text_document.bin", idx = dir_ / "out_text_document.idx";
    std::string files = read_file(bin) + "|" + read_file(idx);
    fs::remove(bin);
    fs::remove(idx);
    return files;
  }

  void expect_same(const Arguments& inputs, const std::string& wanted, const Arguments& more = {}) {
    for (int ranks : {1, 2, 3})
      EXPECT_TRUE(dataset(inputs, more, ranks) == wanted) << inputs[0] << ", " << ranks << " ranks";
  }

  Directory dir_;
  std::vector<std::string> texts_;
  std::string lines_;
};

}  // namespace neox::testing
