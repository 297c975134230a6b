// neox-submit looks at the files that a training job meets: data, tokenizer, what save and load
// hold.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "config/architecture.h"
#include "config/config.h"
#include "data_files.h"
#include "generated_text.h"
#include "jobs/check_job.h"
#include "jobs/job_script.h"
#include "submit_fixture.h"

namespace neox {
namespace {

class SubmitFiles : public SubmitTest {
 protected:
  // global_step7 of a run of that configuration in DIR/run, as neox-train leaves it.
  void save_run(const std::string& name, const Strings& overrides = {}) const {
    Config run = load_config({.files = {config(name)}, .directory = {}, .overrides = overrides});
    run.model.vocab = 50304;
    fs::create_directories(dir_ / "run/global_step7");
    std::ofstream(dir_ / "run/global_step7/train_state.json")
        << nlohmann::json{{"architecture", architecture(run.model)},
                          {"config", run.text()},
                          {"padded_vocab", 50304},
                          {"global_batch", 1024},
                          {"micro_batch", 32}};
  }
  Strings in_run(Strings options = {}) const {
    std::string run = (dir_ / "run").string();
    options.insert(options.end(), {"--submit", "--set", "save=" + run, "--set", "load=" + run});
    return options;
  }
};

TEST_F(SubmitFiles, MissingFilesAreNotesUnlessItSubmits) {
  fs::remove_all(dir_ / "enwik8");
  fs::remove_all(dir_ / "tokenizers");
  SubmitRequest found = train("70M.yml", {"--set", "save=/none/a/b", "--set", "load=/none/a/b"});
  std::string notes = join(found.notes, "\n");
  for (const char* part :
       {"enwik8_text_document.bin does not exist", "vocab_file", "the folder /none/a does not"})
    EXPECT_NE(notes.find(part), notes.npos) << part << " is not in: " << notes;
  EXPECT_NE(job_script(found.jobs[0], found.profile).find("neox-train"), std::string::npos);
}

TEST_F(SubmitFiles, MissingFilesAreRefused) {
  fs::remove(dir_ / "enwik8/enwik8_text_document.idx");
  expect_refused("70M.yml", {"--submit"},
                 {"DIR/enwik8/enwik8_text_document.idx does not exist",
                  "by DATA_PATH and DATASET: ", "neox-submit prepare-data train"});
  EXPECT_EQ(refusal("70M.yml", {"--submit", "--after", "7"}), "");
  fs::remove(dir_ / "tokenizers/20B_tokenizer.json");
  expect_refused("70M.yml", {"--submit", "--set", "data_path=" + dir_.string() + "/x"},
                 {"--set: data_path is DIR/x, but DIR/x.bin"});
  std::ofstream(dir_ / "enwik8/enwik8_text_document.idx") << "x";
  expect_refused("70M.yml", {"--submit"},
                 {"by VOCAB_FILE or MODEL_PATH: vocab_file DIR/tokenizers/20B_tokenizer.json does "
                  "not exist"});
}

TEST_F(SubmitFiles, SaveWithoutFolderOrLoadIsRefused) {
  expect_refused("70M.yml", {"--submit", "--set", "save=/none/a/b", "--set", "load=/none/a/b"},
                 {"the folder /none/a does not exist", "mkdir -p /none/a"});
  expect_refused("70M.yml", {"--set", "save=/tmp/a"}, {"load is not set", "--set load=/tmp/a"});
}

TEST_F(SubmitFiles, ASaveThatCannotBeWrittenIsRefused) {
  std::ofstream(dir_ / "run") << "x";
  expect_refused("70M.yml", in_run(), {"--set: save is DIR/run, which is a file"});
  fs::remove(dir_ / "run");
  if (::geteuid() == 0) return;  // who may write everywhere
  fs::create_directories(dir_ / "run");
  fs::permissions(dir_ / "run", fs::perms::owner_read);
  expect_refused("70M.yml", in_run(), {"where checkpoints cannot be written", "EACCES"});
}

TEST_F(SubmitFiles, ACheckpointOfAnotherRunIsRefused) {
  EXPECT_EQ(refusal("70M.yml", in_run()), "");
  save_run("70M.yml");
  EXPECT_EQ(refusal("70M.yml", in_run()), "");
  expect_refused("160M.yml", in_run(),
                 {"--set: load is DIR/run, where global_step7 holds another model",
                  "hidden_size: 512, not 768", "--set save=DIR"});
  expect_refused("70M.yml", in_run({"--set", "lr_decay_iters=9"}),
                 {"lr_decay_iters is 9, but the run in DIR/run/global_step7 began with 143000",
                  "override_lr_scheduler=true"});
  EXPECT_EQ(refusal("70M.yml",
                    in_run({"--set", "lr_decay_iters=9", "--set", "override_lr_scheduler=true"})),
            "");
  std::string notes = join(train("160M.yml", {"--set", "save=" + (dir_ / "run").string(), "--set",
                                              "load=" + (dir_ / "run").string()})
                               .notes,
                           "\n");
  EXPECT_NE(notes.find("holds another model"), notes.npos) << notes;
}

TEST_F(SubmitFiles, ADamagedStateSaysNothing) {
  fs::create_directories(dir_ / "run/global_step7");
  std::ofstream(dir_ / "run/global_step7/train_state.json")
      << R"({"architecture": 5, "config": null, "padded_vocab": "a", "micro_batch": 1e300})";
  expect_refused("70M.yml", in_run(), {"global_step7"});
}

// All three numbers of a batch are given, which make another one on these ranks.
TEST_F(SubmitFiles, ARunKeepsItsBatchOnOtherNodes) {
  Strings batch = {"--set", "gradient_accumulation_steps=1"};
  expect_refused("70M.yml", in_run(batch), {"train_batch_size is 1024", "is 512"});
  save_run("70M.yml");
  EXPECT_EQ(refusal("70M.yml", in_run(batch)), "");
}

TEST_F(SubmitFiles, ALoadWithoutACheckpointOfOursIsRefused) {
  std::string load = "load=" + (dir_ / "run").string(), save = "save=" + (dir_ / "new").string();
  Strings elsewhere = {"--submit", "--set", save, "--set", load};
  expect_refused("70M.yml", elsewhere, {"load is DIR/run, where there is no checkpoint"});
  fs::create_directories(dir_ / "run/global_step9");
  std::ofstream(dir_ / "run/global_step9/mp_rank_00_model_states.pt") << "x";
  expect_refused("70M.yml", elsewhere,
                 {"global_step9 is no checkpoint of neox.cpp", "neox-convert --to neox.cpp"});
  save_run("70M.yml");
  EXPECT_EQ(refusal("70M.yml", elsewhere), "");
}

// One from weights alone may have other angles and another schedule, and no other tensors.
TEST_F(SubmitFiles, ARunThatBeginsFromWeightsNeedsTheirModel) {
  save_run("70M.yml");
  Strings tune = {"--submit",
                  "--set",
                  "load=" + (dir_ / "run").string(),
                  "--set",
                  "save=" + (dir_ / "new").string(),
                  "--set",
                  "finetune=true",
                  "--set",
                  "lr_decay_iters=9"};
  EXPECT_EQ(refusal("70M.yml", tune), "");
  tune.insert(tune.end(), {"--set", "rotary_emb_base=50000"});
  EXPECT_EQ(refusal("70M.yml", tune), "");
  expect_refused("160M.yml", tune, {"holds another model"});
}

TEST_F(SubmitFiles, WhatTheJobBeforeMakesIsNotLookedForAndAllElseIs) {
  fs::remove_all(dir_ / "enwik8");
  fs::remove_all(dir_ / "tokenizers");
  auto both = [&](Strings options) {
    options.insert(options.begin(), {"prepare-data", "train", config("70M.yml"), "--submit"});
    return request(options, env());
  };
  EXPECT_NO_THROW(both({}));
  for (const char* key : {"data_path", "vocab_file"}) try {
      both({"--set", std::string(key) + "=/none/x"});
      ADD_FAILURE() << key;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(std::string(key) + " "), std::string::npos) << e.what();
    }
}

}  // namespace
}  // namespace neox
