// neox-data: count, merge, split, verify, import.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "dataset/new_dataset.h"
#include "dataset_files.h"
#include "fault_preload.h"

namespace neox {
namespace {

using ::testing::AllOf;
using testing::Directory;
using testing::Documents;
using ::testing::ElementsAre;
using testing::error_of;
using testing::files;
using ::testing::HasSubstr;
using testing::Index;
using testing::neox_data;
using ::testing::Not;
using testing::put;
using ::testing::StartsWith;

const Documents kA = {{11, 12, 13}, {21, 22}}, kB = {{31, 32, 33, 34}}, kC = {{41}, {51, 52}};

TEST(NeoxData, NamesItsCommands) {
  EXPECT_THAT(neox_data({"merg"}), AllOf(StartsWith("64: "), HasSubstr("did you mean merge?")));
  EXPECT_THAT(neox_data({}), AllOf(StartsWith("64: "), HasSubstr("count, show, verify")));
  EXPECT_THAT(neox_data({"count"}), AllOf(StartsWith("64: "), HasSubstr("no dataset is named")));
}

TEST(Count, AddsUpDatasets) {
  Directory dir;
  std::string a = dir.put("a", kA), b = dir.put("b", kB);
  std::string text = neox_data({"count", a, b + ".idx"});
  EXPECT_THAT(text, HasSubstr("2               2                   5  uint16"));
  EXPECT_THAT(text, HasSubstr("3               3                   9"));
  EXPECT_THAT(text, HasSubstr("(2 datasets)"));
}

TEST(Count, GoesOnBehindADatasetThatCannotBeRead) {
  Directory dir;
  std::string a = dir.put("a", kA), b = dir.put("b", kB);
  std::ostringstream out;
  EXPECT_THAT(error_of([&] {
                run_data_command({"count", a, dir / "none", b}, out);
              }),
              AllOf(StartsWith("74: "), HasSubstr("none")));
  EXPECT_THAT(out.str(), AllOf(HasSubstr(b), HasSubstr("(2 datasets)")));
}

TEST(Amounts, OfOneAreSingular) {
  Directory dir;
  EXPECT_THAT(neox_data({"merge", dir.put("a", Documents{{7}}), "--output-prefix", dir / "m"}),
              HasSubstr("1 document, 1 sequence, 1 token, 2 B"));
}

TEST(Count, TakesBothFilesOfADatasetForOne) {
  Directory dir;
  std::string a = dir.put("a", kA);
  EXPECT_EQ(neox_data({"count", a + ".bin", a + ".idx"}), neox_data({"count", a}));
}

TEST(Merge, GivesTheFilesOfAllDocumentsAtOnce) {
  Directory dir;
  std::string a = dir.put("a", kA), b = dir.put("b", kB), c = dir.put("c", kC);
  std::string all =
      dir.put("all", Documents{{11, 12, 13}, {21, 22}, {31, 32, 33, 34}, {41}, {51, 52}});
  EXPECT_THAT(neox_data({"merge", a, b, c, "--output-prefix", dir / "out/m"}),
              StartsWith("0: " + (dir / "out/m") + ": 5 documents, 5 sequences, 12 tokens"));
  EXPECT_EQ(files(dir / "out/m"), files(all));
}

TEST(Merge, TakesTheDatasetsOfADirectoryInTheOrderOfTheirNames) {
  Directory dir;
  dir.put("in/10", kB);
  dir.put("in/09", kA);
  std::string both = dir.put("both", Documents{{11, 12, 13}, {21, 22}, {31, 32, 33, 34}});
  EXPECT_THAT(neox_data({"merge", "--input", dir / "in", "--output-prefix", dir / "m"}),
              StartsWith("0: "));
  EXPECT_EQ(files(dir / "m"), files(both));
}

TEST(Merge, KeepsDocumentsOfSeveralSequencesAndOfNone) {
  Directory dir;
  std::string a = put(dir, "a", {.lengths = {1, 2, 1}, .documents = {0, 2, 2, 3}}, {1, 2, 3, 4});
  std::string b = put(dir, "b", {.lengths = {1, 1}, .documents = {0, 2}}, {5, 6});
  EXPECT_THAT(neox_data({"merge", a, b, "--output-prefix", dir / "m"}), StartsWith("0: "));
  Index joined{.lengths = {1, 2, 1, 1, 1}, .documents = {0, 2, 2, 3, 5}};
  EXPECT_EQ(read_file(dir / "m.idx"), joined.bytes());
}

TEST(Merge, RefusesWhatDoesNotFitOrIsDamaged) {
  Directory dir;
  std::string a = dir.put("a", kA), wide = dir.put("wide", kB, 70000);
  std::string longer = put(dir, "longer", {.lengths = {3}}, {1, 2, 3, 0});
  std::string shorter = put(dir, "shorter", {.lengths = {3}}, {1, 2});
  std::string cut = dir / "cut";
  dir.put("cut.bin", "abc");
  dir.put("cut.idx", read_file(a + ".idx").substr(0, 50));
  auto merged = [&](const std::string& other) {
    return neox_data({"merge", a, other, "--output-prefix", dir / "m"});
  };
  EXPECT_THAT(merged(wide), AllOf(StartsWith("64: "), HasSubstr("int32"), HasSubstr("uint16")));
  EXPECT_THAT(merged(longer), AllOf(StartsWith("74: "), HasSubstr("1 tokens more")));
  EXPECT_THAT(merged(shorter), AllOf(StartsWith("74: "), HasSubstr("truncated")));
  EXPECT_THAT(merged(cut), AllOf(StartsWith("74: "), HasSubstr("truncated")));
  EXPECT_THAT(merged(dir / "absent"), AllOf(StartsWith("74: "), HasSubstr("no dataset")));
  EXPECT_THAT(neox_data({"merge", a, "--output-prefix", wide}),
              AllOf(StartsWith("64: "), HasSubstr("exists")));
  EXPECT_FALSE(fs::exists(dir / "m.bin") || fs::exists(dir / "m.idx"));
}

TEST(Merge, LeavesNothingOnAFullDisk) {
  Directory dir;
  std::string a = dir.put("a", kA);
  fs::create_directory(dir / "full");
  for (int64_t bytes : {0, 7, 15}) {
    neox_fault((dir / "full").c_str(), ENOSPC, bytes, -1);
    std::string text = neox_data({"merge", a, a, "--output-prefix", dir / "full/m"});
    neox_fault("", 0, -1, -1);
    EXPECT_THAT(text, AllOf(StartsWith("74: "), HasSubstr("No space left on device")));
    EXPECT_TRUE(fs::is_empty(dir / "full")) << bytes;
  }
}

TEST(Merge, RemovesWhatOneThatWasKilledHasLeft) {
  Directory dir;
  std::string a = dir.put("in/a", kA);
  pid_t child = ::fork();
  if (child == 0) {
    NewDataset cut(dir / "m");
    cut.copy(a + ".bin", 0, 10, [](int64_t) { ::_exit(0); });
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_THAT(neox_data({"merge", a, "--output-prefix", dir / "m"}), StartsWith("0: "));
  EXPECT_EQ(files(dir / "m"), files(a));
  EXPECT_THAT(dir.list(), ElementsAre("in", "m.bin", "m.idx"));
}

TEST(Merge, LeavesNothingWhereASignalStopsIt) {
  Directory dir;
  std::string a = dir.put("in/a", kA);
  for (int number : {SIGTERM, SIGINT}) {
    NewDataset made(dir / "m");
    made.copy(a + ".bin", 0, 10, [&](int64_t) { std::raise(number); });
    EXPECT_THAT(error_of([&] { NewDataset(std::move(made)).write_index(TokenType::kUint16, {}); }),
                AllOf(StartsWith("75: interrupted by "), HasSubstr("what was written is removed")));
    EXPECT_THAT(dir.list(), ElementsAre("in"));
  }
}

// Labels as neox-prepare-data writes them beside the tokens.
std::string put_labels(const Directory& dir, const std::string& name) {
  dir.put(name + ".bin", testing::bytes_of(std::vector<int32_t>{-100, 5, -100, -100, 7}));
  dir.put(name + ".idx", Index{.lengths = {2, 3}, .type = TokenType::kInt32}.bytes());
  return dir / name;
}

TEST(Labels, AreSoundAndAreNotMergedWithTokens) {
  Directory dir;
  std::string labels = put_labels(dir, "in/a_label_document"),
              more = put_labels(dir, "in/b_label_document");
  EXPECT_THAT(neox_data({"verify", labels, "--vocab-size", "8"}), HasSubstr(": sound"));
  EXPECT_THAT(neox_data({"verify", labels, "--vocab-size", "7"}), HasSubstr("token id 7 at"));
  dir.put("in/a_document.bin", testing::bytes_of(std::vector<int32_t>{1, 2, 3, 4, 5}));
  dir.put("in/a_document.idx", Index{.lengths = {2, 3}, .type = TokenType::kInt32}.bytes());
  EXPECT_THAT(neox_data({"merge", dir / "in", "--output-prefix", dir / "m"}),
              AllOf(StartsWith("64: "), HasSubstr("holds labels, but "), HasSubstr("a_document")));
  EXPECT_FALSE(fs::exists(dir / "m.bin"));
  EXPECT_THAT(neox_data({"merge", labels, more, "--output-prefix", dir / "m_label_document"}),
              StartsWith("0: "));
  EXPECT_THAT(neox_data({"verify", dir / "m_label_document"}), HasSubstr("10 tokens, 40 B: sound"));
}

TEST(Labels, AreLabelsAlsoInParts) {
  Directory dir;
  std::string labels = put_labels(dir, "a_label_document"), part = dir / "b_label_document";
  neox_data({"split", labels, "--output-prefix", part, "--documents", "1"});
  neox_data({"split", labels, "--output-prefix", part, "--shares", "1,1,0"});
  for (const char* name : {"_00000", "_train"}) {
    EXPECT_THAT(neox_data({"verify", part + name, "--vocab-size", "8"}), HasSubstr(": sound"));
    EXPECT_THAT(neox_data({"show", part + name, "--document", "0"}), HasSubstr("-100"));
  }
}

TEST(Rewards, AreAnyNumbersAndAreNotMergedWithLabels) {
  Directory dir;
  std::string rewards = dir / "a_reward_document", labels = put_labels(dir, "a_label_document");
  dir.put("a_reward_document.bin", testing::bytes_of(std::vector<int32_t>{-1, 1000000}));
  dir.put("a_reward_document.idx", Index{.lengths = {1, 1}, .type = TokenType::kInt32}.bytes());
  EXPECT_THAT(neox_data({"verify", rewards, "--vocab-size", "8"}), HasSubstr(": sound"));
  EXPECT_THAT(neox_data({"show", rewards, "--document", "0"}), HasSubstr("-1"));
  EXPECT_THAT(
      neox_data({"merge", rewards, labels, "--output-prefix", dir / "m"}),
      AllOf(HasSubstr("holds labels, but "), HasSubstr("a_reward_document rewards: merge")));
}

TEST(Split, CutsAtDocuments) {
  Directory dir;
  std::string all = dir.put("all", Documents{{1, 2, 3}, {4}, {5}, {6, 7, 8, 9, 10}, {11}});
  neox_data({"split", all, "--output-prefix", dir / "d", "--documents", "2"});
  EXPECT_EQ(files(dir / "d_00001"), files(dir.put("x", Documents{{5}, {6, 7, 8, 9, 10}})));
  EXPECT_EQ(files(dir / "d_00002"), files(dir.put("x", Documents{{11}})));
  neox_data({"split", all, "--output-prefix", dir / "t", "--tokens", "4"});
  EXPECT_EQ(files(dir / "t_00000"), files(dir.put("x", Documents{{1, 2, 3}, {4}})));
  EXPECT_EQ(files(dir / "t_00001"), files(dir.put("x", Documents{{5}})));
  EXPECT_EQ(files(dir / "t_00002"), files(dir.put("x", Documents{{6, 7, 8, 9, 10}})));
  EXPECT_FALSE(fs::exists(dir / "t_00004.idx"));
  for (const char* by : {"--tokens", "--documents"}) {
    neox_data({"split", all, "--output-prefix", dir / "one", by, "9223372036854775807"});
    EXPECT_EQ(files(dir / "one_00000"), files(all)) << by;
  }
}

TEST(Split, CutsSharesAsTrainingDoes) {
  Directory dir;
  std::string all = dir.put("all", Documents{{1, 2, 3}, {4}, {5}, {6, 7, 8, 9, 10}});
  EXPECT_THAT(neox_data({"split", all, "--output-prefix", dir / "s", "--shares", "3,1,0"}),
              StartsWith("0: "));
  EXPECT_EQ(files(dir / "s_train"), files(dir.put("x", Documents{{1, 2, 3}, {4}, {5}})));
  EXPECT_EQ(files(dir / "s_valid"), files(dir.put("x", Documents{{6, 7, 8, 9, 10}})));
  EXPECT_FALSE(fs::exists(dir / "s_test.idx"));
}

TEST(Split, PartsJoinedAreTheWhole) {
  Directory dir;
  std::string all =
      put(dir, "all", {.lengths = {1, 2, 1, 3, 0}, .documents = {0, 2, 2, 3, 3, 4, 5}},
          {1, 2, 3, 4, 5, 6, 7});
  neox_data({"split", all, "--output-prefix", dir / "parts/p", "--documents", "1"});
  neox_data({"merge", dir / "parts", "--output-prefix", dir / "again"});
  EXPECT_EQ(files(dir / "again"), files(all));
}

TEST(Split, MakesMorePartsThanFilesMayBeOpenAtFirst) {
  Directory dir;
  Documents many;
  for (int i = 0; i < 200; ++i) many.push_back({i % 100});
  std::string all = dir.put("all", many);
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit few = before;
  few.rlim_cur = 100;
  ::setrlimit(RLIMIT_NOFILE, &few);
  std::string said = neox_data({"split", all, "--output-prefix", dir / "d", "--documents", "1"});
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(said, StartsWith("0: "));
  EXPECT_EQ(files(dir / "d_00199"), files(dir.put("x", Documents{{99}})));
}

TEST(Split, SaysWhatIsWrongWithItsOptions) {
  Directory dir;
  std::string a = dir.put("a", kA), empty = dir.put("empty", Documents{});
  EXPECT_THAT(neox_data({"split", a, "--output-prefix", "x"}), HasSubstr("give one of"));
  EXPECT_THAT(neox_data({"split", a, "--output-prefix", "x", "--tokens", "0"}), StartsWith("64: "));
  EXPECT_THAT(neox_data({"split", a, "--tokens", "5"}), HasSubstr("--output-prefix is missing"));
  EXPECT_THAT(neox_data({"split", empty, "--output-prefix", dir / "x", "--documents", "1"}),
              HasSubstr("no documents to split"));
}

TEST(Verify, FindsNothingInASoundDataset) {
  Directory dir;
  std::string a = dir.put("a", Documents{{1, 0}, {2, 3, 0}});
  EXPECT_EQ(neox_data({"verify", a, "--vocab-size", "4", "--eod", "0"}),
            "0: note: " + a +
                ": 2 of 2 documents with tokens end in the end-of-document token 0\n" + a +
                ": 2 documents, 2 sequences, 5 tokens, 10 B: sound\n");
  EXPECT_THAT(neox_data({"verify", a}),
              HasSubstr("10 B: sound; without --vocab-file or --vocab-size any token id passes"));
}

TEST(Verify, NamesTokensOutsideTheVocabulary) {
  Directory dir;
  std::vector<int32_t> many(3'000'000, 7);  // several pieces of the reading threads
  many[2'999'999] = many[5] = 99;
  std::string a = dir.put("a", Documents{{1, 2}, many});
  std::string text = neox_data({"verify", a, "--vocab-size", "99", "--workers", "3"});
  EXPECT_THAT(text, AllOf(StartsWith("74: "), HasSubstr("not sound")));
  EXPECT_THAT(text, HasSubstr("token id 99 at position 5 of sequence 1 (byte 14) is outside"));
  EXPECT_THAT(text, HasSubstr("token id 99 at position 2999999 of sequence 1"));
  EXPECT_THAT(neox_data({"verify", a, "--vocab-size", "100"}), StartsWith("0: "));
}

TEST(Verify, ListsSoManyFindingsAndCountsTheRest) {
  Directory dir;
  std::string a = dir.put("a", Documents{std::vector<int32_t>(5000, 9)});
  std::string text = neox_data({"verify", a, "--vocab-size", "9", "--limit", "2"});
  EXPECT_THAT(text, AllOf(HasSubstr("position 1 of"), Not(HasSubstr("position 2 of")),
                          HasSubstr("4,998 more token ids")));
}

TEST(Verify, FindsNegativeTokensWithoutAVocabulary) {
  Directory dir;
  dir.put("a.bin", testing::bytes_of(std::vector<int32_t>{5, -6}));
  dir.put("a.idx", Index{.lengths = {2}, .type = TokenType::kInt32}.bytes());
  EXPECT_THAT(neox_data({"verify", dir / "a"}),
              HasSubstr("token id -6 at position 1 of sequence 0 (byte 4) is negative"));
}

TEST(Verify, NamesEachFaultOfTheStructure) {
  Directory dir;
  auto found = [&](const Index& index, const std::vector<uint16_t>& tokens) {
    return neox_data({"verify", put(dir, "a", index, tokens)});
  };
  EXPECT_THAT(found({.lengths = {2, -1, 1}}, {1, 2, 3}), HasSubstr("sequence 1 has the length -1"));
  EXPECT_THAT(found({.lengths = {2, 1}, .positions = {0, 2}}, {1, 2, 3}),
              HasSubstr("sequence 1 starts at byte 2, but the lengths before it sum to byte 4"));
  EXPECT_THAT(found({.lengths = {2, 1}, .positions = {0, 8}}, {1, 2, 3}),
              HasSubstr("sequence 1 starts at byte 8 and has 1 tokens"));
  EXPECT_THAT(found({.lengths = {1, 1, 1}, .documents = {0, 2, 1, 3}}, {1, 2, 3}),
              HasSubstr("document 1 begins at sequence 2 and ends at 1"));
  EXPECT_THAT(found({.lengths = {1, 1, 1}, .documents = {0, 1, 2}}, {1, 2, 3}),
              HasSubstr("the last document ends at sequence 2, but there are 3"));
  EXPECT_THAT(found({.lengths = {1, 1}, .documents = {1, 2}}, {1, 2}),
              HasSubstr("document 0 begins at sequence 1"));
  EXPECT_THAT(found({.lengths = {1, 1}}, {1, 2, 3}), HasSubstr("1 tokens more"));
  EXPECT_THAT(found({.lengths = {1, 1}}, {1}), HasSubstr("a.bin is truncated"));
}

TEST(Verify, NotesDocumentsThatDoNotEnd) {
  Directory dir;
  std::string a = dir.put("a", Documents{{1, 0}, {2}, {}, {3, 0}, {4, 5}});
  std::string text = neox_data({"verify", a, "--eod", "0"});
  EXPECT_THAT(text, AllOf(StartsWith("0: "), HasSubstr("2 of 4 documents"),
                          HasSubstr("the others are 1, 4\n")));
}

TEST(Verify, RefusesWhatIsNoDataset) {
  Directory dir;
  dir.put("a.bin", "");
  dir.put("a.idx", "MMIDIDX");
  EXPECT_THAT(neox_data({"verify", dir / "a"}), StartsWith("74: "));
  dir.put("half.bin", "");
  EXPECT_THAT(neox_data({"verify", dir / "half"}), HasSubstr("half.idx is missing: a dataset is"));
  auto absent = AllOf(StartsWith("74: "), HasSubstr("no dataset " + (dir / "absent: neither ")));
  EXPECT_THAT(neox_data({"verify", dir / "absent"}), absent);
  std::ostringstream out;
  dir.put("sound", Documents{{1, 2, 3}});
  EXPECT_THROW(run_data_command({"verify", dir / "absent", dir / "sound"}, out), Error);
  EXPECT_THAT(out.str(), HasSubstr("3 tokens"));
  EXPECT_THAT(neox_data({"import", dir / "absent", "--output-prefix", dir / "b"}), absent);
  EXPECT_THAT(neox_data({"verify", dir / "a", "--vocab-size", "0"}), StartsWith("64: "));
}

// The tokens 11 12 13 | 21 22 | 31 32 33 34 as GPT-NeoX's `lazy` writer stores them.
std::string old_index() {
  std::string text("TNTIDX\0\0", 8);
  return text + testing::bytes_of(std::vector<int64_t>{1, 4, 4, 3, 3, 4, 0, 1, 2, 3, 0,
                                                       3, 5, 9, 3, 2, 4, 0, 1, 2, 3});
}

std::string old_tokens() {
  return testing::bytes_of(std::vector<int32_t>{11, 12, 13, 21, 22, 31, 32, 33, 34});
}

TEST(Import, TakesTheOldFormat) {
  Directory dir;
  EXPECT_EQ(old_index().size(), 176u);
  dir.put("old.idx", old_index());
  dir.put("old.bin", old_tokens());
  EXPECT_THAT(neox_data({"import", dir / "old", "--output-prefix", dir / "new"}),
              StartsWith("0: " + (dir / "new") + ": 3 documents, 3 sequences, 9 tokens"));
  EXPECT_EQ(files(dir / "new"),
            files(dir.put("x", Documents{{11, 12, 13}, {21, 22}, {31, 32, 33, 34}}, 70000)));
}

TEST(Import, RefusesDamage) {
  Directory dir;
  auto imported = [&](const std::string& idx, const std::string& bin) {
    dir.put("old.idx", idx);
    dir.put("old.bin", bin);
    return neox_data({"import", dir / "old", "--output-prefix", dir / "new"});
  };
  std::string other = old_index();
  other[56 + 8] = 2;  // the first item gets two dimensions
  EXPECT_THAT(imported(other, old_tokens()), HasSubstr("item 0 is no sequence"));
  other.replace(56, 16, std::string("\0\0\0\0\0\0\0\x80\1\0\0\0\0\0\0\0", 16));
  EXPECT_THAT(imported(other, old_tokens()), HasSubstr("are -9223372036854775808 .. 1"));
  other = old_index();
  other[56 + 32 + 8] = 4;
  EXPECT_THAT(imported(other, old_tokens()), HasSubstr("item 0 has 3 tokens, but lies at 0 .. 4"));
  EXPECT_THAT(imported(old_index().substr(0, 170), old_tokens()), HasSubstr("truncated"));
  EXPECT_THAT(imported(old_index().substr(0, 20), old_tokens()), HasSubstr("truncated"));
  EXPECT_THAT(imported(old_index(), "abc"), HasSubstr("truncated"));
  EXPECT_THAT(imported(Index{.lengths = {1}}.bytes(), "ab"), HasSubstr("today's format already"));
  EXPECT_THAT(neox_data({"import", dir / "absent", "--output-prefix", dir / "new"}),
              StartsWith("74: "));
  EXPECT_FALSE(fs::exists(dir / "new.bin") || fs::exists(dir / "new.idx"));
}

}  // namespace
}  // namespace neox
