// A run that is killed, and started again, writes the bytes of one that is not, and does not read
// again what was done.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <functional>
#include <random>
#include <system_error>

#include "base/signals.h"
#include "base/text.h"
#include "comm/thread.h"
#include "data_files.h"
#include "fault_preload.h"
#include "generated_text.h"
#include "prepare/interrupt.h"
#include "prepare/pipeline.h"
#include "prepare/prepare_options.h"
#include "prepare/wiki_articles.h"

namespace neox {
namespace {

using ::testing::AllOf;
using testing::Directory;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using Arguments = std::vector<std::string>;

class PrepareResume : public ::testing::Test {
 protected:
  PrepareResume() {
    write_tokenizer_json(
        dir_ / "tokenizer.json",
        train_bpe({.vocab_size = 280}, each({"the cat and the hat\n", "that cat sat there é"})));
    input_ = dir_.put("in/a.jsonl", lines(0, 9000));
    dir_.put("in/b.txt", long_text(40000));
    std::string array = "[" + replace_all(lines(9000, 18000), "}\n", "},\n") + "{\"text\": \"\"}]";
    dir_.put("in/c.json", array);
    bytes_ = static_cast<int64_t>(lines(0, 9000).size() + long_text(40000).size() + array.size());
    whole_ = prepare(1, "whole");
  }
  ~PrepareResume() override { neox_fault("", 0, -1, -1); }

  static std::string lines(int begin, int end) {
    std::string made;
    for (int i = begin; i < end; ++i)
      made += concat("{\"text\": \"", std::string(static_cast<size_t>(i % 97), "the cat"[i % 7]),
                     i % 9 ? "" : "\xff", "\"}\n", i % 13 ? "" : "\n");
    return made;
  }
  static std::string long_text(int words) {
    std::string text;
    for (int i = 0; i < words; ++i) text += concat("the cat ", i, i % 5 ? " sat" : "\n");
    return text;
  }

  PrepareResult prepare(int ranks, const std::string& name, const Arguments& more = {}) {
    Arguments arguments = {"--output-prefix", dir_ / name, "--vocab-file",
                           dir_ / vocab_,     "--input",   dir_ / "in",
                           "--workers",       "2",         "--append-eod"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Program program = prepare_program();
    check(program.parse(arguments), "help was asked");
    PrepareOptions options = read_prepare_options(program);
    options.save_seconds = save_seconds_;
    PrepareResult result;
    run_thread_ranks(ranks, [&](Communicator&, Control& control) {
      PrepareResult mine = prepare_data(options, control);
      if (control.rank() == 0) result = mine;
    });
    return result;
  }

  // In a child that ends by SIGKILL; false where it came to its end.
  static bool killed(const std::function<void()>& body, int64_t microseconds = -1) {
    pid_t pid = ::fork();
    check(pid >= 0, "fork");
    if (pid == 0) {
      if (!::getenv("NEOX_TEST_VERBOSE")) static_cast<void>(::freopen("/dev/null", "w", stderr));
      body();
      ::_exit(0);
    }
    if (microseconds >= 0) {
      ::usleep(static_cast<useconds_t>(microseconds));
      ::kill(pid, SIGKILL);
    }
    int status = 0;
    check(::waitpid(pid, &status, 0) == pid, "waitpid");
    check(WIFSIGNALED(status) || status == 0, "the child ended with status ", status);
    return WIFSIGNALED(status);
  }
  bool killed_at_call(int64_t call, int ranks, const Arguments& more = {}) {
    return killed([&] {
      neox_fault(dir_.path().c_str(), kFaultKill, -1, call);
      prepare(ranks, "out", more);
    });
  }

  // "75: " and what a child of that body writes to standard error, where signals interrupt it.
  std::string said_by_child(const std::function<void()>& body) {
    std::string said = dir_ / "said";
    pid_t pid = ::fork();
    check(pid >= 0, "fork");
    if (pid == 0) {
      static_cast<void>(::freopen(said.c_str(), "w", stderr));
      end_when_interrupted();
      ::_exit(run_program("program", [&] { return body(), 0; }));
    }
    int status = 0;
    check(::waitpid(pid, &status, 0) == pid, "waitpid");
    std::string text = concat(WIFEXITED(status) ? WEXITSTATUS(status) : -1, ": ", read_file(said));
    fs::remove(said);
    return text;
  }
  std::string interrupted() {
    return said_by_child([&] {
      HeldSignals held;
      ::raise(SIGINT);
      prepare(1, "out");
    });
  }

  void expect_same(const std::string& a, const std::string& b) {
    for (const char* ending : {"_text_document.bin", "_text_document.idx"})
      EXPECT_TRUE(read_file(dir_ / (a + ending)) == read_file(dir_ / (b + ending))) << a << ending;
  }
  void expect_no_rest() {
    for (const std::string& name : dir_.list())
      EXPECT_EQ(name.find(".tmp-"), std::string::npos) << name;
  }

  // Killed at each file operation, or at some, down to the last.
  void kill_everywhere(int ranks, int64_t step) {
    int64_t some = 0, all = 0;
    for (int64_t call = 0; killed_at_call(call, ranks); call += 1 + call / step) {
      ASSERT_FALSE(fs::exists(dir_ / "out_text_document.idx") &&
                   !fs::exists(dir_ / "out_text_document.bin"));
      PrepareResult result = prepare(ranks, "out");
      expect_same("out", "whole");
      expect_no_rest();
      EXPECT_EQ(result.documents, whole_.documents);
      EXPECT_EQ(result.text_bytes, whole_.text_bytes);
      EXPECT_EQ(result.repaired, whole_.repaired);
      some += result.resumed_bytes > 0 && result.resumed_bytes < bytes_;
      all += result.resumed_bytes == bytes_;
      fs::remove(dir_ / "out_text_document.bin");
      fs::remove(dir_ / "out_text_document.idx");
      if (HasFailure()) return;
    }
    EXPECT_GT(some, 0);
    if (ranks == 1) return;
    EXPECT_GT(all, 0) << "finished shares are read again";
  }

  Directory dir_;
  std::string input_, vocab_ = "tokenizer.json";
  double save_seconds_ = 0;  // of prepare(): as often as it can
  int64_t bytes_ = 0;
  PrepareResult whole_;
};

TEST_F(PrepareResume, AKillAtAnyFileOperationIsMadeGood) { kill_everywhere(1, 4); }

TEST_F(PrepareResume, AKillOfSeveralRanksIsMadeGood) { kill_everywhere(3, 6); }

// Again and again, as on a cluster that is not well.
TEST_F(PrepareResume, KillsAtRandomTimesOfOneRun) {
  std::minstd_rand random(7);
  int64_t kills = 0;
  while (kills < 30 && killed([&] { prepare(2, "out"); }, random() % 40000)) ++kills;
  EXPECT_GT(kills, 3);
  prepare(2, "out");
  expect_same("out", "whole");
  expect_no_rest();
}

TEST_F(PrepareResume, MaxDocumentsOfAKilledRun) {
  for (const char* most : {"700", "14000"}) {
    prepare(1, "few", {"--max-documents", most});
    for (int64_t call = 5; killed_at_call(call, 3, {"--max-documents", most}); call += 17) {
      EXPECT_EQ(prepare(3, "out", {"--max-documents", most}).documents, std::stoi(most));
      expect_same("out", "few");
    }
  }
}

TEST_F(PrepareResume, GoesOnWithTheSameRunOnly) {
  // What the run after a killed one goes on with.
  auto resumed = [&](int ranks, const Arguments& more) {
    EXPECT_TRUE(killed_at_call(40, 1));
    return prepare(ranks, "out", more).resumed_bytes;
  };
  EXPECT_GT(resumed(1, {}), 0);
  EXPECT_GT(resumed(1, {"--log-interval", "5", "--keep-sequential-samples"}), 0);
  expect_same("out", "whole");
  EXPECT_EQ(resumed(2, {}), 0);
  expect_same("out", "whole");
  prepare(1, "few", {"--max-documents", "17990"});
  EXPECT_EQ(resumed(1, {"--max-documents", "17990"}), 0);
  expect_same("out", "few");
  EXPECT_TRUE(killed_at_call(40, 1));
  fs::last_write_time(input_, fs::last_write_time(input_) + std::chrono::seconds(1));
  EXPECT_EQ(prepare(1, "out").resumed_bytes, 0);
  expect_same("out", "whole");
  expect_no_rest();
}

// Of more ranks than there are now.
TEST_F(PrepareResume, RemovesWhatOthersHaveLeft) {
  EXPECT_TRUE(killed_at_call(60, 4));
  prepare(2, "out");
  expect_same("out", "whole");
  expect_no_rest();
}

// A second run, which may not have the files that the first one is writing, leaves it all of what
// it would go on with.
TEST_F(PrepareResume, ARunThatIsRefusedTakesNothingFromTheOneAtWork) {
  EXPECT_TRUE(killed_at_call(60, 3));
  std::vector<int> held;  // as by that run
  for (const std::string& name : dir_.list())
    if (name.find(".bin.tmp-") != name.npos || name.find(".idx.tmp-") != name.npos) {
      held.push_back(::open((dir_ / name).c_str(), O_RDWR | O_CLOEXEC));
      EXPECT_EQ(::flock(held.back(), LOCK_EX | LOCK_NB), 0);
    }
  EXPECT_THAT(held, SizeIs(6));
  auto before = dir_.list();
  EXPECT_THAT(said_by_child([&] {
                prepare(1, "out", {"--max-documents", "5"});
              }),
              AllOf(HasSubstr("being written by another process"), Not(HasSubstr("is kept"))));
  EXPECT_EQ(dir_.list(), before);
  for (int file : held) ::close(file);
  EXPECT_GT(prepare(3, "out").resumed_bytes, 0);
  expect_same("out", "whole");
}

TEST_F(PrepareResume, AnInterruptedRunSaysWhetherTheNextOneGoesOn) {
  save_seconds_ = 10;
  EXPECT_THAT(interrupted(),
              AllOf(StartsWith("75: "), HasSubstr("interrupted by Ctrl-C"),
                    HasSubstr("nothing of the data is kept: the same command begins anew")));
  expect_no_rest();
  save_seconds_ = 0;
  EXPECT_TRUE(killed_at_call(40, 1));
  EXPECT_THAT(interrupted(), AllOf(StartsWith("75: "), HasSubstr("the same command goes on there"),
                                   HasSubstr("interrupted by Ctrl-C")));
  EXPECT_GT(prepare(1, "out").resumed_bytes, 0);
  expect_same("out", "whole");
  expect_no_rest();
}

TEST_F(PrepareResume, AnInterruptBeforeThereIsSomethingToSaveEndsAtOnce) {
  EXPECT_THAT(said_by_child([] { ::raise(SIGINT); }),
              AllOf(StartsWith("75: "), HasSubstr("interrupted; the same command goes on")));
}

TEST_F(PrepareResume, SaysWhatItReplaces) {
  auto said = [&] {
    ::testing::internal::CaptureStderr();
    prepare(1, "new");
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said(), Not(HasSubstr("are replaced")));
  EXPECT_THAT(said(), HasSubstr("new_text_document.{bin,idx} are there; they are replaced"));
}

TEST_F(PrepareResume, ADamagedJournalIsNotUsed) {
  EXPECT_TRUE(killed_at_call(40, 1));
  dir_.put("out.tmp-journal-0", "{\"identity\": {}");
  EXPECT_EQ(prepare(1, "out").resumed_bytes, 0);
  expect_same("out", "whole");
}

TEST_F(PrepareResume, MissingPartsAreWrittenAgain) {
  EXPECT_TRUE(killed_at_call(40, 1));
  fs::resize_file(dir_ / "out_text_document.bin.tmp-0", 2);
  EXPECT_EQ(prepare(1, "out").resumed_bytes, 0);
  expect_same("out", "whole");
}

TEST_F(PrepareResume, TwoRunsDoNotWriteTheSameOutput) {
  DatasetBuilder other(dir_ / "out_text_document", 100);
  std::string tokenizer = read_file(dir_ / "tokenizer.json");
  for (const Arguments& more : {{}, Arguments{"--train-tokenizer", "270", "--overwrite-tokenizer"}})
    EXPECT_THAT(error_of([&] { prepare(1, "out", more); }),
                AllOf(StartsWith("74: "), HasSubstr("is being written by another process")));
  EXPECT_EQ(read_file(dir_ / "tokenizer.json"), tokenizer);
}

// What was done stays; there is nothing under the final names.
TEST_F(PrepareResume, GoesOnAfterTheDiskWasFull) {
  for (int ranks : {1, 3}) {
    neox_fault(dir_.path().c_str(), ENOSPC, 500000, -1);
    EXPECT_THAT(error_of([&] { prepare(ranks, "out"); }),
                AllOf(StartsWith("74: "), HasSubstr("No space left on device")));
    neox_fault("", 0, -1, -1);
    EXPECT_FALSE(fs::exists(dir_ / "out_text_document.bin"));
    EXPECT_FALSE(fs::exists(dir_ / "out_text_document.idx"));
    prepare(ranks, "out");
    expect_same("out", "whole");
    fs::remove(dir_ / "out_text_document.bin");
    fs::remove(dir_ / "out_text_document.idx");
  }
}

// The other ranks would read a part of them without a word.
TEST_F(PrepareResume, TemplatesThatDoNotReachTheDiskAreAnError) {
  dir_.put("in/d.xml",
           "<mediawiki>\n<siteinfo>\n<base>https://en.example.org/wiki/A</base>\n<namespaces>\n"
           "<namespace key=\"10\">Template</namespace>\n</namespaces>\n</siteinfo>\n<page>\n"
           "<title>Template:T</title>\n<ns>10</ns>\n<id>1</id>\n<text>t</text>\n</page>\n"
           "</mediawiki>\n");
  neox_fault((dir_ / "out").append(kTemplates).c_str(), EIO, -1, 2);
  EXPECT_THAT(error_of([&] { prepare(1, "out"); }), HasSubstr("cannot flush "));
  neox_fault("", 0, -1, -1);
  prepare(1, "out");
  expect_no_rest();
}

TEST_F(PrepareResume, TemplatesThatAKilledRunOfMoreRanksHasLeftAreRemoved) {
  for (const char* rest : {"0.tmp-unfinished", "7"})
    dir_.put(concat("out", kTemplates, rest), "<page>");
  prepare(2, "out");
  expect_no_rest();
}

TEST_F(PrepareResume, ATrainedTokenizerIsNotTrainedAgain) {
  const Arguments train = {"--train-tokenizer", "270", "--overwrite-tokenizer"};
  prepare(1, "trained", train);
  std::string tokenizer = read_file(dir_ / "tokenizer.json");
  fs::remove(dir_ / "tokenizer.json");
  const Arguments once = {"--train-tokenizer", "270"};
  EXPECT_TRUE(killed_at_call(40, 1, once));
  EXPECT_GT(prepare(1, "out", once).resumed_bytes, 0);
  expect_same("out", "trained");
}

// Of GPT-2's three files, up to behind the first note of what is tokenized.
TEST_F(PrepareResume, AKillWhileATrainedTokenizerIsWrittenIsMadeGood) {
  vocab_ = "vocab.json";
  const Arguments train = {"--merge-file", dir_ / "merges.txt", "--train-tokenizer", "270"};
  auto forget = [&] {
    for (const char* name : {"vocab.json", "merges.txt", "tokenizer.json"}) fs::remove(dir_ / name);
  };
  forget();
  prepare(1, "trained", train);
  for (int64_t call = 0; call < 40; ++call) {
    forget();
    ASSERT_TRUE(killed_at_call(call, 1, train));
    prepare(1, "out", train);
    expect_same("out", "trained");
    fs::remove(dir_ / "out_text_document.bin");
    fs::remove(dir_ / "out_text_document.idx");
    ASSERT_FALSE(HasFailure()) << "killed at call " << call;
  }
  fs::remove(dir_ / "merges.txt");
  EXPECT_THAT(error_of([&] { prepare(1, "out", train); }),
              AllOf(StartsWith("64: "), HasSubstr("merges.txt does not: "), Not(HasSubstr("Leave")),
                    HasSubstr("--overwrite-tokenizer")));
}

TEST_F(PrepareResume, TheTokenizerAmongTheInputIsNoText) {
  fs::create_symlink(dir_ / "tokenizer.json", dir_ / "in/tokenizer.json");
  prepare(1, "out");
  expect_same("out", "whole");
}

// Those that were started would wait for ever for what nobody brings.
TEST(Threads, ThatCannotBeStartedAreAnError) {
  for (int started = 0; started < 3; ++started) {
    int next = 0;
    OrderedPipeline<int, int> pipeline({.read = [&] { return std::optional(next++); },
                                        .size = [](const int&) { return 1; },
                                        .work = [](const int& item, int& result) { result = item; },
                                        .write = [](const int&, const int&) { return true; }},
                                       3, 7);
    neox_fault_threads(started);
    EXPECT_THROW(pipeline.run(), std::system_error);
    neox_fault_threads(started);
    EXPECT_THROW(train_bpe({.vocab_size = 280, .num_threads = 5}, each({"the cat"})),
                 std::system_error);
  }
  neox_fault_threads(-1);
}

}  // namespace
}  // namespace neox
