// Which run goes on with what another one has left: what of a run is compared, by name.
#include "prepare/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/thread.h"
#include "data_files.h"
#include "fault_preload.h"
#include "generated_text.h"
#include "prepare/pipeline.h"
#include "prepare/prepare_options.h"

namespace neox {
namespace {

using testing::Directory;
using ::testing::HasSubstr;

class JournalOf : public ::testing::Test {
 protected:
  JournalOf() {
    options_.output_prefix = dir_ / "out";
    options_.tokenizer.vocab = dir_.put("tokenizer.json", "{}");
    Journal(options_, 0, identity_of(options_, {}, 1)).save({});
  }
  // What a run like this says of the journal of the run before it; "": it goes on there.
  std::string said_by(const PrepareOptions& options) {
    Journal journal(options, 0, identity_of(options, {}, 1));
    ::testing::internal::CaptureStderr();
    bool found = journal.find().has_value();
    std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(found, said.empty()) << said;
    journal.save({});
    return said;
  }
  Directory dir_;
  PrepareOptions options_;
};

TEST_F(JournalOf, ARunWithAnotherEndOfDocumentIsNotGoneOnWith) {
  const auto named = [&](const std::string& file, const std::string& token) {
    dir_.put(file, "{\"eos_token\": \"" + token + "\"}");
    return said_by(options_);
  };
  EXPECT_EQ(named("tokenizer_config.json", "<b>"), "") << "no document ends in it";
  options_.end_of_document = PrepareOptions::EndOfDocument::kAppend;
  const auto differs = HasSubstr("differs in: the token that ends documents; this one begins");
  EXPECT_THAT(said_by(options_), differs);
  EXPECT_EQ(said_by(options_), "");
  EXPECT_THAT(named("tokenizer_config.json", "<a>"), differs);
  fs::remove(dir_ / "tokenizer_config.json");
  EXPECT_EQ(named("special_tokens_map.json", "<a>"), "");
  EXPECT_THAT(named("special_tokens_map.json", "<b>"), differs);
}

// As where a table of corpora says something else than before.
TEST_F(JournalOf, ARunWithOtherRulesIsNotGoneOnWith) {
  options_.rules.separator = "%";
  EXPECT_THAT(said_by(options_), HasSubstr("differs in: the line that parts documents; "));
  options_.rules.keys = {"text", "title"};
  EXPECT_THAT(said_by(options_), HasSubstr("differs in: the keys; "));
  EXPECT_EQ(said_by(options_), "");
}

TEST_F(JournalOf, WhatItSaysIsOnTheDiskBeforeIt) {
  write_tokenizer_json(dir_ / "tokenizer.json", train_bpe({.vocab_size = 260}, each({"the cat"})));
  dir_.put("in/a.txt", TextGenerator(1).text(100000));
  Program program = prepare_program();
  ASSERT_TRUE(program.parse({"--output-prefix", dir_ / "out", "--vocab-file",
                             dir_ / "tokenizer.json", "--input", dir_ / "in"}));
  PrepareOptions options = read_prepare_options(program);
  options.save_seconds = 0;
  neox_fault_watch(dir_.path().c_str());
  run_thread_ranks(1, [&](Communicator&, Control& control) { prepare_data(options, control); });
  EXPECT_EQ(neox_fault_unflushed(), 0);
  neox_fault_watch("");
}

}  // namespace
}  // namespace neox
