// neox-submit: the scripts that are in the tree are what it renders, and what cannot run is refused
// with the numbers and what would mend it. NEOX_UPDATE_GOLDEN=1 writes the scripts anew.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "data_files.h"
#include "generated_text.h"
#include "jobs/check_job.h"
#include "jobs/gpu_sizes.h"
#include "jobs/job_script.h"
#include "submit_fixture.h"

namespace neox {
namespace {

std::string render(const Strings& words, const Environment& env = {}) {
  std::ostringstream out;
  carry_out(request(words, env), out);
  return out.str();
}

void expect_file(const fs::path& file, const std::string& text) {
  if (std::getenv("NEOX_UPDATE_GOLDEN")) write_file_atomically(file, text);
  EXPECT_EQ(read_file(file), text) << file << "; NEOX_UPDATE_GOLDEN=1 submit_test writes it anew";
}

TEST_F(SubmitTest, ShippedScriptsAreItsDefaults) {
  for (const char* kind : {"build-image", "prepare-data", "train", "convert"})
    expect_file(kTree / "sbatch" / file_name(*parse_job_kind(kind)), render({kind}));
}

TEST_F(SubmitTest, EachProfileRendersItsGoldenScript) {
  for (const char* profile : {"aws-parallelcluster", "aws-hyperpod", "aws-pcs"})
    expect_file(kTree / "tests/golden/sbatch" / (std::string(profile) + ".sbatch"),
                render({"train", "--profile", profile}));
}

TEST_F(SubmitTest, EveryOptionHasItsPlace) {
  std::ofstream(dir_ / "site.yml") << "partition: gpu\ngpu_option: gres\nmodules: [cuda/13.0]\n"
                                      "environment: {NCCL_NET: AWS Libfabric}\n"
                                      "prologue: |\n  PS1=\"(conda) $PS1\"\nsbatch: [--mem=0]\n";
  expect_file(kTree / "tests/golden/sbatch/options.sbatch", render({"train",
                                                                    "--profile",
                                                                    (dir_ / "site.yml").string(),
                                                                    "--nodes",
                                                                    "2-4",
                                                                    "--gpus-per-node",
                                                                    "h100:4",
                                                                    "--time",
                                                                    "1-12",
                                                                    "--account",
                                                                    "a",
                                                                    "--qos",
                                                                    "q",
                                                                    "--constraint",
                                                                    "[r1|r2]",
                                                                    "--reservation",
                                                                    "r",
                                                                    "--nice",
                                                                    "5",
                                                                    "--after",
                                                                    "12",
                                                                    "--container",
                                                                    "/fsx/neox.sif",
                                                                    "--mounts",
                                                                    "/fsx:/fsx,/data:/data",
                                                                    "--mpi",
                                                                    "pmi2",
                                                                    "--max-restarts",
                                                                    "3",
                                                                    "--job-name",
                                                                    "mine",
                                                                    "--set",
                                                                    "seed=1",
                                                                    "--arg",
                                                                    "b.yml",
                                                                    "--",
                                                                    "--exclude=node7"}));
  expect_file(kTree / "tests/golden/sbatch/generate.sbatch",
              render({"generate", "--arg", "--prompt", "--arg", "It's a"}));
}

TEST_F(SubmitTest, CheckedScriptHoldsWhatWasChecked) {
  SubmitRequest found = train("70M.yml", {"--container", "/fsx/neox.sqsh"});
  std::string script = job_script(found.jobs[0], found.profile);
  for (const std::string& line :
       {"\nDATA_PATH=" + dir_.string(), "\nMODEL_CONFIG=" + config("70M.yml"),
        "\nCHECKPOINT_PATH=" + dir_.string() + "/70M_checkpoints",
        std::string("\nIMAGE=/fsx/neox.sqsh")})
    EXPECT_NE(script.find(line + "\n"), script.npos) << line;
}

TEST_F(SubmitTest, RunsThatPeopleKnowAreAccepted) {
  const std::pair<const char*, const char*> kRuns[] = {{"aws/pythia-1-4B", "1"},
                                                       {"aws/forge-l", "2"},
                                                       {"ascend/2-7B", "1"},
                                                       {"t9k/6-7B", "1"},
                                                       {"megatron/gpt-13b-4xdp-4xpp-4xtp", "8"}};
  for (auto [name, nodes] : kRuns)
    EXPECT_EQ(refusal(concat("../", name, ".yml"),
                      {"--nodes", nodes, "--set", "tokenizer_type=HFTokenizer"}),
              "")
        << name;
}

TEST_F(SubmitTest, LeadGrowsWithTheCheckpoint) {
  auto lead = [&](const std::string& name, const Strings& options) {
    return train(name, options).jobs[0].lead_seconds;
  };
  EXPECT_EQ(lead("70M.yml", {}), 180);
  // 70,426,624 parameters x 12 bytes = 845 MB: 84.5 s at 10 MB/s, x 1.5 + 60.
  EXPECT_EQ(lead("70M.yml", {"--write-rate", "10"}), 187);
  EXPECT_EQ(lead("70M.yml", {"--write-rate", "10", "--lead", "30"}), 30);
  expect_refused("70M.yml", {"--time", "3"}, {"--time 3 is 180 s, and the last 180 s"});
}

TEST_F(SubmitTest, TheLeadIsSaidByItsOption) {
  expect_refused("70M.yml", {"--", "--signal=USR1@60"}, {"say it before --, as --lead"});
  EXPECT_NE(render({"train", "--lead", "60"}).find("#SBATCH --signal=B:USR1@60\n"),
            std::string::npos);
  EXPECT_NE(render({"prepare-data", "--", "--signal=TERM@60"}).find("#SBATCH --signal=TERM@60\n"),
            std::string::npos);
}

TEST_F(SubmitTest, LayoutThatDoesNotFitIsRefused) {
  expect_refused("70M.yml",
                 {"--set", "model_parallel_size=8", "--nodes", "3", "--gpus-per-node", "4"},
                 {"3 nodes x 4 tasks = 12 ranks",
                  "model_parallel_size 8 (--set) needs a multiple "
                  "of 8 ranks",
                  "--nodes 4, 16 ranks", "--set model_parallel_size=4"});
  expect_refused("70M.yml",
                 {"--set", "pipe_parallel_size=3", "--nodes", "3-4", "--gpus-per-node", "1"},
                 {"4 nodes x 1 task = 4 ranks", "multiple of 3", "--nodes 6"});
  expect_refused("70M.yml", {"--set", "zero_optimization.mics_shard_size=3"},
                 {"16 ranks", "mics_shard_size 3 does not divide the 16"});
}

TEST_F(SubmitTest, WrongBatchIsRefused) {
  expect_refused("70M.yml", {"--set", "gradient_accumulation_steps=4"},
                 {"2 nodes x 8 tasks = 16 ranks", "train_batch_size is 1024", "is 2048",
                  "gradient_accumulation_steps: 2", "--nodes 1"});
  EXPECT_EQ(refusal("70M.yml", {"--set", "gradient_accumulation_steps=2"}), "");
  expect_refused("70M.yml", {"--nodes", "2-4", "--set", "gradient_accumulation_steps=2"},
                 {"4 nodes x 8 tasks = 32 ranks", "2048"});
}

TEST_F(SubmitTest, APartitionSilencesOnlyWhatIsSaidOfPartitions) {
  EXPECT_EQ(train("70M.yml", {"--profile", "aws-pcs", "--partition", "p5"}).notes[0],
            train("70M.yml", {"--profile", "aws-pcs"}).notes[0]);
  Strings hyperpod = {"--profile", "aws-hyperpod"};
  EXPECT_NE(join(train("70M.yml", hyperpod).notes, " ").find("login nodes"), std::string::npos);
  hyperpod.insert(hyperpod.end(), {"--partition", "p5"});
  EXPECT_EQ(join(train("70M.yml", hyperpod).notes, " ").find("login nodes"), std::string::npos);
}

TEST(GpuSizes, AreKnownByTheNamesOfClusters) {
  const std::pair<const char*, double> cases[] = {{"h100", 80},
                                                  {"H100", 80},
                                                  {"nvidia_h100_80gb_hbm3", 80},
                                                  {"a100-sxm4-40gb", 40},
                                                  {"gh200", 96},
                                                  {"gb200", 186},
                                                  {"nvidia_a10g", 24},
                                                  {"a100", 80},
                                                  {"nvidia_l40s", 48},
                                                  {"1g.10gb", 10},
                                                  {"nvidia_h200", 141},
                                                  {"nvidia_gh200_480gb", 96},
                                                  {"nvidia_h100_80gb_hbm3_2g.20gb", 20},
                                                  {"h100_94gb", 94}};
  for (const auto& [name, gigabytes] : cases) EXPECT_EQ(gpu_sizes(name).most, gigabytes) << name;
  for (const char* other : {"foo", "nvidia_rtx_a4000", "nvidia_rtx_a1000", "nvl4", "rtx6000ada"})
    EXPECT_FALSE(gpu_sizes(other).most) << other;
  EXPECT_EQ(gpu_sizes("nvidia_gb200_nvl4").most, 186);
  EXPECT_EQ(gpu_sizes("tesla_v100").least, 16);
}

TEST_F(SubmitTest, MemoryThatIsNotCheckedIsSaid) {
  auto notes = [&](const Strings& options) { return join(train("12B.yml", options).notes, "\n"); };
  std::string unknown = notes({"--gpus-per-node", "foo:8"});
  EXPECT_NE(unknown.find("memory is not checked: foo is no type"), unknown.npos) << unknown;
  EXPECT_NE(notes({}).find("no type of GPU is given"), std::string::npos);
  EXPECT_EQ(notes({"--gpus-per-node", "h100:8"}).find("not checked"), std::string::npos);
}

TEST_F(SubmitTest, PathsAreThoseInTheContainer) {
  std::string image = dir_ / "x.sqsh";
  std::ofstream(dir_ / "x.sqsh") << "x";
  Strings at = {"--container",
                image,
                "--submit",
                "--mounts",
                dir_.string() + ":/w",
                "--set",
                "data_path=/w/enwik8/enwik8_text_document",
                "--set",
                "vocab_file=/w/tokenizers/20B_tokenizer.json",
                "--set",
                "save=/w/c",
                "--set",
                "load=/w/c"};
  EXPECT_EQ(refusal("70M.yml", at), "");
  at[4] = "/none:/,/none:/w," + dir_.string() + "/:/w/";
  EXPECT_EQ(refusal("70M.yml", at), "") << "the last of the innermost, with or without a slash";
  at[4] = "/none:/w";
  expect_refused("70M.yml", at, {"/w/enwik8/enwik8_text_document.bin does not exist"});
}

TEST_F(SubmitTest, ImagesAndMountsAreLookedAt) {
  expect_refused("70M.yml", {"--submit", "--container", "/x.sqsh"},
                 {"--container /x.sqsh", "no such file", "neox-submit build-image"});
  std::string notes = join(train("70M.yml", {"--container", "/x.sqsh"}).notes, "\n");
  EXPECT_NE(notes.find("--container /x.sqsh: there is no such file"), notes.npos) << notes;
  EXPECT_EQ(refusal("70M.yml", {"--submit", "--container", "docker://x#y:1"}), "");
  expect_refused("70M.yml", {"--mounts", "/a:/a,foo"}, {"--mounts /a:/a,foo", "'foo'", "FROM:TO"});
}

TEST_F(SubmitTest, AnImageOfTheEnvironmentIsLookedAtAndPathsAreToldToTheScript) {
  Environment with = env();
  with["ENROOT_IMAGE"] = "/none/x.sqsh";
  try {
    request({"train", config("70M.yml"), "--submit"}, with);
    ADD_FAILURE() << "submitted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("ENROOT_IMAGE /none/x.sqsh: there is no such file"),
              std::string::npos)
        << e.what();
  }
  SlurmJob job = train("70M.yml", {"--set", "vocab_file=/a b/t.json"}).jobs[0];
  std::string data = (dir_ / "enwik8/enwik8_text_document").string(),
              save = (dir_ / "70M_checkpoints").string();
  EXPECT_EQ(job.paths, (Strings{data, "/a b/t.json", save, save}));
  EXPECT_NE(job_script(job, {}).find("paths=(\"${command[@]}\" " + data + " '/a b/t.json' " + save),
            std::string::npos);
}

TEST_F(SubmitTest, WhatIsCheckedIsSaidBeforeTheDashesAlsoByItsLetter) {
  for (const char* option : {"-N4", "-t60", "--nodes=4", "-n16", "--ntasks=2", "--tasks-per-node=2",
                             "-G4", "--gres=gpu:4", "--gpus=2", "--dependency=afterok:1",
                             "-dsingleton", "--depend=1", "-Jx", "--job-name=x"})
    EXPECT_NE(testing::error_of([&] {
                request({"train", "--", option}, env());
              }).find("say it before --"),
              std::string::npos)
        << option;
  SubmitRequest asked = request({"train", "--", "--comment=a b", "--mem=0", "--wckey=x#y",
                                 "--extra=it's", "--export=NONE", "--comment=C:\\x\"y\""},
                                env());
  std::string script = job_script(asked.jobs[0], asked.profile);
  EXPECT_NE(script.find("\n#SBATCH \"--comment=a b\"\n#SBATCH --mem=0\n#SBATCH \"--wckey=x#y\"\n"
                        "#SBATCH \"--extra=it's\"\n#SBATCH --export=NONE\n"
                        "#SBATCH \"--comment=C:\\\\x\\\"y\\\"\"\n"),
            script.npos)
      << script;
}

TEST_F(SubmitTest, OptionsOfAProfileAreDefaults) {
  auto profile = [&](const std::string& options) {
    std::ofstream(dir_ / "site.yml") << "sbatch: [" << options << "]\n";
    return (dir_ / "site.yml").string();
  };
  std::string site = profile("--time=1:00:00 --account=site, -q usual, --output=/l/%j");
  std::string script =
      render({"train", "--profile", site, "--time", "6:00:00", "--account", "a", "--qos", "q"});
  size_t first = script.find("\n#SBATCH --time=1:00:00 --account=site\n#SBATCH -q usual\n");
  ASSERT_NE(first, script.npos) << script;
  EXPECT_LT(script.find("\n#SBATCH --output=%x_%j.out\n"), first);
  for (const char* own : {"--time=6:00:00", "--account=a", "--qos=q"})
    EXPECT_NE(script.find(concat("\n#SBATCH ", own, "\n"), first), script.npos) << own;
  EXPECT_EQ(train("70M.yml", {"--profile", site}).jobs[0].slurm.time, "1:00:00");
  expect_refused("70M.yml", {"--profile", profile("-t 3")}, {"--time 3 is 180 s"});
  expect_refused("70M.yml", {"--profile", profile("--time=soon")}, {"--time soon of profile site"});
  expect_refused("70M.yml", {"--profile", profile("mem=0")}, {"'mem=0' in sbatch of profile site"});
  for (const char* option : {"--nodes 4", "-N4", "--mem=0 --ntasks=2", "--signal=USR1@60"})
    expect_refused("70M.yml", {"--profile", profile(option)},
                   {"in sbatch of profile site: say it on the command line, as --"});
}

// A tokenizer of 300 entries in place of Pythia's.
TEST_F(SubmitTest, MemoryIsThatForTheTokenizer) {
  auto needed = [&](const Strings& more) {
    Strings options = {"--set", "model_parallel_size=1", "--gpus-per-node", "a100:8"};
    options.insert(options.end(), more.begin(), more.end());
    std::string text = refusal("12B.yml", options);
    return text.substr(text.find("needs about"), 30);
  };
  std::string of_pythia = needed({});
  std::string notes = join(train("70M.yml", {}).notes, "\n");
  EXPECT_NE(notes.find("computed for 50,277 entries"), notes.npos) << notes;
  TrainedBpe small = train_bpe({.vocab_size = 300}, each({"the and of to"}));
  write_tokenizer_json((dir_ / "tokenizers/20B_tokenizer.json").string(), small);
  notes = join(train("70M.yml", {}).notes, "\n");
  EXPECT_EQ(notes.find("entries"), notes.npos) << notes;
  EXPECT_NE(needed({}), of_pythia);
  EXPECT_EQ(needed({"--set", "padded_vocab_size=50304"}), of_pythia);
}

TEST_F(SubmitTest, TooLittleMemoryIsRefused) {
  Strings options = {"--set", "model_parallel_size=1", "--gpus-per-node", "a100:8"};
  expect_refused("12B.yml", options,
                 {"16 ranks: the fullest rank needs about 89.5 GB",
                  "a GPU of 80.0 GB (--gpu-memory says another size) has room for 72.0 GB",
                  "--set model_parallel_size=2: "});
  options.insert(options.end(), {"--gpu-memory", "141"});
  EXPECT_EQ(refusal("12B.yml", options), "");
}

TEST_F(SubmitTest, OfAGpuOfTwoSizesTheSmallerOneIsNamed) {
  Strings options = {"--set", "model_parallel_size=2", "--gpus-per-node", "a100:8"};
  std::string notes = join(train("12B.yml", options).notes, "\n");
  EXPECT_NE(notes.find("which the a100 of 40.0 GB do not have: --gpu-memory 40 "), notes.npos)
      << notes;
  options.insert(options.end(), {"--gpu-memory", "40"});
  EXPECT_NE(refusal("12B.yml", options).find("a GPU of 40.0 GB has room for 36.0 GB"), notes.npos);
}

TEST_F(SubmitTest, AJobOnCpusSaysSoWhateverItsNodesHave) {
  std::string line = "export CUDA_VISIBLE_DEVICES=  # on CPUs";
  EXPECT_NE(render({"train", "--gpus-per-node", "0"}).find(line), std::string::npos);
  EXPECT_EQ(render({"train"}).find(line), std::string::npos);
}

TEST_F(SubmitTest, MoreTasksThanGpusAreRefused) {
  expect_refused("70M.yml", {"--gpus-per-node", "4", "--tasks-per-node", "8"},
                 {"--tasks-per-node 8 with --gpus-per-node 4", "take --tasks-per-node 4"});
}

TEST_F(SubmitTest, BadOptionsAreNamed) {
  expect_refused("70M.yml", {"--nodes", "4-2"}, {"--nodes 4-2: the smaller number comes first"});
  expect_refused("70M.yml", {"--nodes", "two"}, {"--nodes two: it must be a number"});
  expect_refused("70M.yml", {"--time", "soon"}, {"--time soon"});
  expect_refused("70M.yml", {"--partition", "a b"}, {"--partition 'a b'"});
  expect_refused("70M.yml", {"--", "mem=0"}, {"'mem=0' behind --"});
  expect_refused("70M.yml", {"--", "--ntasks-per-node=4"},
                 {"'--ntasks-per-node=4' behind --: say it before --, as --tasks-per-node"});
  expect_refused("70M.yml", {"--profile", "aws-pc"}, {"did you mean aws-pcs?"});
  expect_refused("7M.yml", {}, {"no such file; did you mean"});
  EXPECT_THROW(request({"tran"}), Error);
  expect_refused("70M.yml", {"convert"}, {"'convert' behind a configuration: jobs come first"});
  expect_refused("70M.yml", {"--nodes", "999999", "--gpus-per-node", "999999"}, {"999998000001"});
}

TEST_F(SubmitTest, AnUnknownOptionMayBeOneOfSbatch) {
  const char* place = "ptions of sbatch stand behind --, such as -- --mem=0. See";
  expect_refused("70M.yml", {"--mem", "0"}, {"unknown option --mem", place});
  expect_refused("70M.yml", {"--gres=gpu:8"}, {"unknown option --gres=gpu:8; o", place});
  expect_refused("70M.yml", {"-N", "2"}, {"unknown option -N; o", place});
  expect_refused("70M.yml", {"--nodse", "2"}, {"did you mean --nodes? O", place});
}

TEST_F(SubmitTest, ProfilesNameWhatTheyCannotRead) {
  auto fails = [](const std::string& text) -> std::string {
    try {
      parse_profile(text, "p.yml");
    } catch (const Error& e) { return e.what(); }
    return "";
  };
  EXPECT_NE(fails("partition: a\npartitoin2: b").find("p.yml:2: a profile has no key"),
            std::string::npos);
  EXPECT_NE(fails("gpu_option: some").find("gpus-per-node, gres or none"), std::string::npos);
  EXPECT_NE(fails("environment: {A: 'x\"'}").find("p.yml:1: environment.A"), std::string::npos);
  EXPECT_NE(fails("environment: {1X: y}").find("p.yml:1: environment.1X"), std::string::npos);
  EXPECT_NE(fails("modules: cuda").find("a list"), std::string::npos);
  EXPECT_NE(fails("write_rate_mb: 0").find("positive"), std::string::npos);
}

TEST_F(SubmitTest, SlurmTimesAreRead) {
  EXPECT_EQ(parse_slurm_time("90"), 5400);
  EXPECT_EQ(parse_slurm_time("1:30"), 90);
  EXPECT_EQ(parse_slurm_time("1:00:05"), 3605);
  EXPECT_EQ(parse_slurm_time("2-12"), 216000);
  EXPECT_EQ(parse_slurm_time("1-0:30"), 88200);
  EXPECT_EQ(parse_slurm_time("1-0:00:01"), 86401);
  EXPECT_EQ(parse_slurm_time("UNLIMITED"), 0);
  EXPECT_EQ(parse_slurm_time("soon"), std::nullopt);
}

TEST_F(SubmitTest, AJobMayHaveNoTimeLimit) {
  for (const char* none : {"0", "UNLIMITED", "infinite"})
    EXPECT_EQ(train("70M.yml", {"--time", none}).jobs[0].slurm.time, none);
}

}  // namespace
}  // namespace neox
