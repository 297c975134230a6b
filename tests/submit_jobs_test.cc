// Jobs that neox-submit makes in one call, and what their scripts are told of where it is called.
#include "data_files.h"
#include "jobs/job_script.h"
#include "submit_fixture.h"

namespace neox {
namespace {

TEST_F(SubmitTest, AnImageIsUsedWhereItIsBuilt) {
  Environment own = env();
  own["IMAGE"] = "/y/own.sqsh";
  const std::pair<Strings, std::string> cases[] = {{{"--container", "/x/a.sqsh"}, "/x/a.sqsh"},
                                                   {{}, "/y/own.sqsh"}};
  for (const auto& [options, image] : cases) {
    Strings words = {"build-image", "train", config("70M.yml")};
    words.insert(words.end(), options.begin(), options.end());
    SubmitRequest both = request(words, own);
    EXPECT_EQ(both.jobs[0].values.at("ENROOT_IMAGE"), image);
    EXPECT_EQ(both.jobs[1].values.at("IMAGE"), image);
  }
  SubmitRequest usual = request({"build-image", "train", config("70M.yml")}, env());
  EXPECT_EQ(usual.jobs[0].values.at("ENROOT_IMAGE"), "/fsx/apps/neox.sqsh");
  EXPECT_EQ(usual.jobs[1].values.at("IMAGE"), "/fsx/apps/neox.sqsh");
  EXPECT_NE(testing::error_of([&] {
              request({"build-image", "--container", "docker://x#y:1"}, env());
            }).find("build-image writes a file"),
            std::string::npos);
}

TEST_F(SubmitTest, ScriptsThatWereEditedAreKeptBesideTheNewOnes) {
  fs::path file = dir_ / "scripts/2.train.sbatch";
  auto write = [&](const char* nodes) {
    std::ostringstream out;
    carry_out(request({"train", "--nodes", nodes, "--write", (dir_ / "scripts").string()}), out);
    return out.str();
  };
  EXPECT_EQ(write("2"), "wrote " + file.string() + "\n");
  EXPECT_EQ(write("2"), file.string() + " stays as it is\n");
  std::ofstream(file, std::ios::app) << "# mine\n";
  std::string edited = read_file(file);
  EXPECT_EQ(write("3"),
            concat("wrote ", file.string(), "; what it held is now in ", file.string(), ".old\n"));
  write("4");  // does not replace what was edited by what was not
  EXPECT_EQ(read_file(file.string() + ".old"), edited);
  EXPECT_NE(read_file(file.string() + ".old-2").find("--nodes=3"), std::string::npos);
  EXPECT_NE(read_file(file).find("--nodes=4"), std::string::npos);
}

TEST_F(SubmitTest, JobsOfOneNameHaveTheirOwnBehindIt) {
  SubmitRequest two = request({"train", "convert", config("70M.yml"), "--job-name", "foo"}, env());
  EXPECT_EQ(two.jobs[0].name, "foo-train");
  EXPECT_EQ(two.jobs[1].name, "foo-convert");
  expect_refused("70M.yml", {"--job-name", "a/b"}, {"--job-name a/b", "no '/'"});
}

TEST_F(SubmitTest, ProgramsInPathAreSaidToTheScript) {
  std::ofstream(dir_ / "neox-train") << "x";
  Environment own = env();
  own["PATH"] = "/none:" + dir_.string();
  SubmitRequest asked = request({"train", config("70M.yml")}, own);
  EXPECT_NE(job_script(asked.jobs[0], {}).find("export PATH=" + dir_.string() + ":$PATH\n"),
            std::string::npos);
}

TEST_F(SubmitTest, WhatIsCheckedIsWhatTheScriptGives) {
  Environment own = env();
  own["CHECKPOINT_PATH"] = "/x/run #1";
  EXPECT_NE(testing::error_of([&] {
              request({"train", config("70M.yml")}, own);
            }).find("would be a comment"),
            std::string::npos);
}

TEST_F(SubmitTest, AnEmptyCheckpointPathIsNone) {
  Environment own = env();
  own["CHECKPOINT_PATH"] = "";
  EXPECT_EQ(request({"train", config("70M.yml")}, own).jobs[0].values.at("CHECKPOINT_PATH"),
            dir_.string() + "/70M_checkpoints");
}

TEST_F(SubmitTest, BothJobsThatGoOnTakeTheirRestarts) {
  SubmitRequest all = request({"prepare-data", "train", "--max-restarts", "3", "--lead", "500"});
  for (const SlurmJob& job : all.jobs) EXPECT_EQ(job.values.at("MAX_RESTARTS"), "3");
  EXPECT_EQ(all.jobs[0].lead_seconds, 60);
  EXPECT_EQ(all.jobs[1].lead_seconds, 500);
}

TEST_F(SubmitTest, JobsOfOneProcessTakeOneTask) {
  for (const char* kind : {"convert", "generate"}) {
    EXPECT_EQ(request({kind, "--gpus-per-node", "8"}, env()).jobs[0].tasks_per_node, 1);
    EXPECT_NE(testing::error_of([&] {
                request({kind, "--nodes", "2"}, env());
              }).find("is one task on one node"),
              std::string::npos);
  }
}

TEST_F(SubmitTest, ElementsOfAnArrayHaveLogsOfTheirOwn) {
  auto script = [](const Strings& words) { return job_script(request(words).jobs[0], {}); };
  std::string own = "#SBATCH --output=%x_%A_%a.out\n", one = "#SBATCH --output=%x_%j.out\n";
  for (const char* option : {"--array=1-4%1", "-a1-4"})
    EXPECT_NE(script({"train", "--", option}).find(own), std::string::npos) << option;
  EXPECT_NE(script({"train", "--", "--mem=0"}).find(one), std::string::npos);
}

TEST_F(SubmitTest, AJobThatGeneratesNeedsAPrompt) {
  Strings words = {"train", "generate", config("70M.yml"), "--submit"};
  EXPECT_THROW(request(words, env()), Error);
  words.push_back("--arg=--prompt=Once");
  EXPECT_NO_THROW(request(words, env()));
}

TEST_F(SubmitTest, JobsBehindATrainingTakeItsSaveAndNoGpuWhereItHasNone) {
  SubmitRequest all = request({"train", "convert", "generate", config("70M.yml"), "--set",
                               "save=/s", "--set", "load=/s", "--gpus-per-node", "0"},
                              env());
  ASSERT_EQ(all.jobs.size(), 3u);
  for (size_t i : {1, 2}) {
    EXPECT_EQ(all.jobs[i].values.at("CHECKPOINT_PATH"), "/s");
    EXPECT_EQ(all.jobs[i].gpus.per_node, 0);
  }
}

TEST_F(SubmitTest, RanksThatATaskStartsAreCounted) {
  Strings one = {"--nodes", "2", "--gpus-per-node", "4", "--tasks-per-node", "1"};
  auto with = [&](Strings more) {
    more.insert(more.begin(), one.begin(), one.end());
    return more;
  };
  EXPECT_EQ(
      refusal("70M.yml", with({"--arg=--spawn", "--arg=4", "--set", "model_parallel_size=8"})), "");
  expect_refused("70M.yml", with({"--arg=--spawn=2", "--set", "pipe_parallel_size=3"}),
                 {"2 nodes x 1 task x --spawn 2 = 4 ranks", "multiple of 3", "--nodes 3, 6 ranks"});
  expect_refused("70M.yml", with({"--arg=--spawn=8"}), {"x --spawn 8 with --gpus-per-node 4"});
  expect_refused("70M.yml", {"--gpus-per-node", "0", "--nodes", "2", "--arg=--spawn=2"},
                 {"on CPUs each rank is a task", "--tasks-per-node 2"});
  auto notes = [&](const Strings& more) { return join(train("70M.yml", with(more)).notes, "\n"); };
  EXPECT_NE(notes({}).find("3 stay idle, unless neox-train --spawn 4"), std::string::npos);
  EXPECT_EQ(notes({"--arg=--spawn=4"}).find("idle"), std::string::npos);
}

}  // namespace
}  // namespace neox
