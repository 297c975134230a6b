// Configurations and command lines that cannot be used, and what neox-generate refuses.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>

#include "bad_input.h"
#include "base/program.h"

namespace neox::testing {
namespace {

class BadConfig : public ::testing::TestWithParam<Case> {};

TEST_P(BadConfig, EndsWithAMessage) { expect_refused(GetParam()); }

// Lines in a second configuration file.
std::function<What(Scene&)> config(const std::string& lines, const Strings& more = {}) {
  return [=](Scene& scene) {
    scene.forget_checkpoints();
    Strings all = {scene.dir().put("b.yml", lines + "\n")};
    all.insert(all.end(), more.begin(), more.end());
    return What{{}, all};
  };
}

const Case kConfig[] = {
    {"unknown key",
     64,
     {"DIR/b.yml:2", "unknown key 'hiden_dropout'", "hidden_dropout"},
     config("seed: 1234\nhiden_dropout: 0.1")},
    {"wrong type", 64, {"DIR/b.yml:1: seed is \"high\"", "allowed is"}, config("seed: high")},
    {"key given twice",
     64,
     {"DIR/b.yml:2", "'seed' stands here and at line 1", "remove one"},
     config("seed: 1\nseed: 1")},
    {"files that disagree",
     64,
     {"seq_length", "DIR/b.yml:1", "DIR/tiny.yml:4"},
     config("seq_length: 32")},
    {"unsupported",
     64,
     {"DIR/b.yml:1", "opt_pos_emb_offset: 2 is not supported yet", "unused rows"},
     config("opt_pos_emb_offset: 2")},
    {"batch arithmetic",
     64,
     {"train_batch_size is 5", "DIR/b.yml:1", "is 4", "One of these mends it"},
     config("train_micro_batch_size_per_gpu: 2\ngradient_accumulation_steps: 2")},
    {"layout that does not fit",
     64,
     {"pp 2 x", "takes 2 of the 3 ranks", "start it with --spawn 2"},
     config("pipe_parallel_size: 2", {"--spawn", "3"})},
    {"layout for more ranks",
     64,
     {"needs 2 ranks, the job has 1", "start it with --spawn 2"},
     config("pipe_parallel_size: 2")},
    {"heads that tensor parallelism does not divide",
     64,
     {"DIR/b.yml:1", "does not divide"},
     config("model_parallel_size: 3", {"--spawn", "3"})},
    {"not YAML", 64, {"DIR/b.yml:"}, config("seed: [1\nx")},
    {"missing configuration file",
     64,
     {"DIR/none.yml"},
     [](Scene& s) {
       return What{{}, {s.dir() / "none.yml"}};
     }},
    {"unknown option", 64, {"--sett", "did you mean --set?"}, arguments({"--sett", "seed=1"})},
    {"unknown key of --set",
     64,
     {"--set", "train_iter", "train_iters"},
     arguments({"--set", "train_iter=3"})},
    {"--set with two values",
     64,
     {"seed=2: no such file; a key is set by --set seed=2"},
     arguments({"--set", "seed=1", "seed=2"})},
    {"path of a variable that is not set",
     64,
     {"the DIR of --checkpoint-dir is empty; is it a variable that is not set?"},
     arguments({"--checkpoint-dir", ""})},
    {"no ranks", 64, {"--spawn 0"}, arguments({"--spawn", "0"})},
    {"ranks that are no number", 64, {"--spawn", "two"}, arguments({"--spawn", "two"})},
};
INSTANTIATE_TEST_SUITE_P(Config, BadConfig, ::testing::ValuesIn(kConfig), name_of);

class Generated : public ::testing::TestWithParam<Case> {};

TEST_P(Generated, EndsWithAMessage) {
  Scene scene;
  Strings all = {program("neox-generate")};
  for (const std::string& argument : GetParam().arrange(scene).more) all.push_back(argument);
  expect_message(GetParam(), Child(all).end(), "neox-generate", scene.dir().path());
}

std::function<What(Scene&)> with_checkpoint(Strings more) {
  return [=](Scene& s) {
    What what{{}, {s.save()}};
    what.more.insert(what.more.end(), more.begin(), more.end());
    return what;
  };
}

const Case kGenerate[] = {
    {"no checkpoint given", 64, {"which checkpoint?"}, arguments({"--prompt", "x"})},
    {"no checkpoint there",
     74,
     {"DIR/nothing: no such file or directory"},
     [](Scene& s) {
       return What{{}, {s.dir() / "nothing", "--prompt", "x"}};
     }},
    {"empty prompt without an end of documents",
     64,
     {"the prompt is empty", "no <|endoftext|>", "give a prompt"},
     [](Scene& s) {
       return What{{}, {s.save(), "--prompt", "", "--vocab-file", tokenizer_without_end(s)}};
     }},
    {"long prompt",
     64,
     {"the prompt '77", "has 6", "48 positions", "shorten"},
     with_checkpoint({"--prompt", std::string(60, '7')})},
    {"missing file of prompts", 74, {"no-prompts"}, with_checkpoint({"--file", "/no-prompts"})},
    {"no samples",
     64,
     {"--num-samples 0"},
     with_checkpoint({"--prompt", "x", "--num-samples", "0"})},
    {"negative temperature",
     64,
     {"--temperature -1"},
     with_checkpoint({"--prompt", "x", "--temperature=-1"})},
    {"unknown option of generate",
     64,
     {"--temprature", "--temperature"},
     with_checkpoint({"--temprature", "1"})},
    {"larger tokenizer for generate",
     64,
     {"DIR/larger.json", "309 entries", "300"},
     [](Scene& s) {
       return What{{}, {s.save(), "--prompt", "x", "--vocab-file", larger_tokenizer(s)}};
     }},
    {"moved tokenizer",
     74,
     {"DIR/t.json", "DIR/save/global_step20", "--vocab-file"},
     [](Scene& s) {
       s.forget_checkpoints();
       std::string tokenizer = s.dir() / "t.json";
       fs::copy(Material::get() / "tokenizer.json", tokenizer);
       EXPECT_EQ(s.train({"vocab_file=" + tokenizer}).code, 0);
       fs::remove(tokenizer);
       return What{{}, {s.save(), "--prompt", "x"}};
     }},
    {"damaged checkpoint for generate",
     74,
     {"DIR/save/global_step20/rank_00000.h5 is damaged"},
     [](Scene& s) {
       for (int64_t at = 0; at < 900000; at += 100000)
         flip(s.of_step(20, "rank_00000.h5"), at + 20000);
       return What{{}, {s.save(), "--prompt", "x"}};
     }},
};
INSTANTIATE_TEST_SUITE_P(All, Generated, ::testing::ValuesIn(kGenerate), name_of);

// A program under a shell that has done `before`.
Ended under_shell(const std::string& before, const Strings& command) {
  Strings all = {"/bin/sh", "-c", before + " exec \"$0\" \"$@\""};
  all.insert(all.end(), command.begin(), command.end());
  return Child(all).end();
}

TEST(Output, ThatAFullDiskTookIsAnError) {
  for (const Strings& command : {Strings{program("neox-train"), "--help"},
                                 {program("neox-train"), "--keys"},  // more than a buffer takes
                                 {program("neox-generate"), "--help"}}) {
    Ended ended = under_shell("exec > /dev/full;", command);
    EXPECT_EQ(ended.code, 74);
    EXPECT_NE(ended.err.find("standard output: No space left"), std::string::npos) << ended.err;
  }
}

TEST(Output, OfTextsThatAFullDiskTookEndsThemWithTheReason) {
  Scene scene;
  Ended ended = under_shell("exec > /dev/full;",
                            {program("neox-generate"), scene.save(), "--prompt", "x", "--json"});
  EXPECT_EQ(ended.code, 74);
  EXPECT_NE(ended.err.find("standard output: No space left"), std::string::npos) << ended.err;
}

TEST(Output, NoFileTakesTheNumberOfAClosedStream) {
  Child child([] {
    for (int fd : {0, 1, 2}) ::close(fd);
    return run_program("test", [] { return ::open("/dev/null", O_RDONLY); });
  });
  EXPECT_GT(child.end().code, 2);
}

TEST(Output, OfTooLittleMemoryHasNoFrames) {
  Child child([] {
    return run_program("test", []() -> int {
      throw std::runtime_error(
          "can't allocate memory: 9 bytes\nframe #0: c10::alloc_cpu\nframe #1");
    });
  });
  Ended ended = child.end();
  EXPECT_EQ(ended.code, 70);
  EXPECT_NE(ended.err.find("9 bytes\nThere is too little memory"), std::string::npos) << ended.err;
  EXPECT_EQ(ended.err.find("frame #"), std::string::npos) << ended.err;
  for (auto [name, advice] :
       {std::pair("neox-train", "--dry-run"), std::pair("neox-serve", "--batch-size"),
        std::pair("neox-prepare-data", "--workers")}) {
    Child other([&] { return run_program(name, []() -> int { throw std::bad_alloc(); }); });
    std::string err = other.end().err;
    EXPECT_TRUE(err.starts_with(concat(name, ": out of memory\nThere is too little memory.")));
    EXPECT_NE(err.find(advice), std::string::npos) << err;
  }
}

TEST(Output, OfAThreadThatCannotBeStartedSaysWhatLimitsThem) {
  Child child([] {
    return run_program("test", []() -> int {
      throw std::system_error(EAGAIN, std::generic_category());  // as std::thread does
    });
  });
  std::string err = child.end().err;
  EXPECT_NE(err.find("No more threads can be started"), std::string::npos) << err;
}

TEST(Output, OfAFileThatBecameShorterSaysSo) {
  Directory dir;
  std::string path = dir.put("data", std::string(3 << 12, 'x'));
  Child child([&] {
    return run_program("test", [&] {
      MappedFile file(path);
      fs::resize_file(path, 0);
      return static_cast<int>(file.bytes()[0]);
    });
  });
  Ended ended = child.end();
  EXPECT_EQ(ended.code, 74);
  EXPECT_TRUE(ended.err.starts_with("test: SIGBUS: a file that is read as memory")) << ended.err;
}

TEST(Output, OfBrokenMemoryNamesTheNodeToLeaveOut) {
  for (int cause : {BUS_MCEERR_AR, BUS_MCEERR_AO}) {
    Child child([&] {
      return run_program("test", [&] {
        siginfo_t info{};
        info.si_signo = SIGBUS, info.si_code = cause;
        ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), ::gettid(), SIGBUS, &info);
        return 0;
      });
    });
    Ended ended = child.end();
    EXPECT_EQ(ended.code, 76);
    EXPECT_TRUE(ended.err.starts_with("test: SIGBUS: an uncorrectable error of the memory of "));
    EXPECT_TRUE(ended.err.ends_with("; leave this node out\n")) << ended.err;
  }
}

TEST(Output, BeyondTheLimitOfFileSizesIsAnErrorWithAMessage) {
  Training run;
  // HDF5 leaves memory behind where it fails.
  Ended ended = under_shell("export ASAN_OPTIONS=detect_leaks=0; ulimit -f 100;", run.command({}));
  EXPECT_EQ(ended.code, 74);
  EXPECT_NE(ended.err.find("ulimit -f"), std::string::npos) << ended.err;
}

}  // namespace
}  // namespace neox::testing
