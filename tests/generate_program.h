// neox-generate on a checkpoint made once.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "run_fixture.h"

namespace neox::testing {

class GenerateProgram : public ::testing::Test {
 protected:
  static const Training& run() {
    static const Training run;
    static const Ended trained = run.train();
    EXPECT_EQ(trained.code, 0) << trained.err;
    return run;
  }
  static Ended start(const Strings& more, const std::string& input = "") {
    Strings arguments = {program("neox-generate"), run().save(), "--max-tokens", "12"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Child(arguments, {.input = input}).end();
  }
  static Ended generate(const Strings& more, const std::string& input = "") {
    Ended ended = start(more, input);
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended;
  }
  static std::string text(const Strings& more) { return generate(more).out; }
};

// The tokenizer of the material with the tokens of chatml.
inline Tokenizer chat_tokenizer(const fs::path& file) {
  nlohmann::json root = nlohmann::json::parse(read_file(Material::get() / "tokenizer.json"));
  nlohmann::json token = root["added_tokens"][0];
  auto next = Tokenizer::from_json(Material::get() / "tokenizer.json").vocab_size();
  for (const char* name : {"<|im_start|>", "<|im_end|>"}) {
    token["content"] = name, token["id"] = next++, token["special"] = true;
    root["added_tokens"].push_back(token);
  }
  write_file_atomically(file, root.dump());
  return Tokenizer::from_json(file);
}

}  // namespace neox::testing
