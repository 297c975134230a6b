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

}  // namespace neox::testing
