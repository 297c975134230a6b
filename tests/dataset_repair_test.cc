// neox-data repair.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataset_files.h"

namespace neox {
namespace {

using ::testing::AllOf;
using testing::Directory;
using testing::Documents;
using testing::files;
using ::testing::HasSubstr;
using testing::Index;
using testing::neox_data;
using testing::put;
using ::testing::StartsWith;

// What tools of Megatron made of 11 12 13 | 21 22 | 31 32 33 34 and end-of-document tokens 0.
const std::vector<uint16_t> kTokens = {11, 12, 13, 0, 21, 22, 0, 31, 32, 33, 34, 0};
const Index kUncounted = {.lengths = {3, 2, 4}};

std::string whole(const Directory& dir) {
  return dir.put("whole", Documents{{11, 12, 13, 0}, {21, 22, 0}, {31, 32, 33, 34, 0}});
}

TEST(Repair, CountsTheTokensThatEndDocuments) {
  Directory dir;
  std::string a = put(dir, "a", kUncounted, kTokens);
  EXPECT_THAT(neox_data({"verify", a}), AllOf(StartsWith("74: "), HasSubstr("3 tokens more")));
  std::string text = neox_data({"repair", a, "--output-prefix", dir / "mended"});
  EXPECT_THAT(text, HasSubstr("3 documents got the token that ends them, 0\n"));
  EXPECT_EQ(files(dir / "mended"), files(whole(dir)));
  EXPECT_EQ(read_file(a + ".idx"), kUncounted.bytes());
  EXPECT_THAT(neox_data({"verify", dir / "mended", "--eod", "0"}), HasSubstr("3 of 3 documents"));
}

TEST(Repair, KeepsTheOldIndexWhereItReplacesIt) {
  Directory dir;
  std::string a = put(dir, "a", kUncounted, kTokens);
  EXPECT_THAT(neox_data({"repair", a, "--in-place"}), StartsWith("0: "));
  EXPECT_EQ(files(a), files(whole(dir)));
  EXPECT_EQ(read_file(a + ".idx.old"), kUncounted.bytes());
  EXPECT_EQ(neox_data({"repair", a, "--in-place"}),
            "0: " + a + ": nothing is wrong; nothing was written\n");
  dir.put("a.idx", kUncounted.bytes());
  EXPECT_THAT(neox_data({"repair", a, "--in-place"}), HasSubstr("a.idx.old exists"));
}

TEST(Repair, EndsWhatWasKilledBeforeItNamedTheNewIndex) {
  Directory dir;
  std::string a = put(dir, "a", kUncounted, kTokens);
  fs::create_hard_link(a + ".idx", a + ".idx.old");
  EXPECT_THAT(neox_data({"repair", a, "--in-place"}), StartsWith("0: "));
  EXPECT_EQ(files(a), files(whole(dir)));
  EXPECT_EQ(read_file(a + ".idx.old"), kUncounted.bytes());
  std::string b = put(dir, "b", kUncounted, kTokens);
  fs::create_symlink(b + ".idx", b + ".idx.old");  // which would lead to the new one
  EXPECT_THAT(neox_data({"repair", b, "--in-place"}), HasSubstr("b.idx.old exists"));
}

TEST(Repair, KnowsDocumentsOfSeveralSequencesAndOfNone) {
  Directory dir;
  std::string a =
      put(dir, "a", {.lengths = {1, 2, 3}, .documents = {0, 2, 2, 3}}, {1, 2, 3, 0, 4, 5, 6, 0});
  EXPECT_THAT(neox_data({"repair", a, "--in-place"}), HasSubstr("2 documents got"));
  Index right{.lengths = {1, 3, 4}, .documents = {0, 2, 2, 3}};
  EXPECT_EQ(read_file(a + ".idx"), right.bytes());
}

TEST(Repair, LetsATextEndInThatTokenItself) {
  Directory dir;
  std::string a = put(dir, "a", {.lengths = {2, 1}}, {5, 0, 0, 6, 0});
  EXPECT_THAT(neox_data({"repair", a, "--in-place"}), HasSubstr("2 documents got"));
  EXPECT_EQ(read_file(a + ".idx"), (Index{.lengths = {3, 2}}.bytes()));
}

TEST(Repair, TellsJoinedDatasetsApart) {
  Directory dir;  // the second document was counted, the others were not
  std::string a = put(dir, "a", {.lengths = {3, 3, 4}}, kTokens);
  EXPECT_THAT(neox_data({"repair", a, "--in-place"}), HasSubstr("name it with --eod"));
  EXPECT_THAT(neox_data({"repair", a, "--in-place", "--eod", "0"}), HasSubstr("2 documents got"));
  EXPECT_EQ(files(a), files(whole(dir)));
}

TEST(Repair, RefusesWhatIsNotCertain) {
  Directory dir;
  auto repaired = [&](const Index& index, const std::vector<uint16_t>& tokens,
                      const std::string& eod = "0") {
    return neox_data({"repair", put(dir, "a", index, tokens), "--in-place", "--eod", eod});
  };
  EXPECT_THAT(repaired(kUncounted, kTokens, "7"), HasSubstr("behind sequence 0, at token 3"));
  EXPECT_THAT(repaired({.lengths = {1, 2}}, {0, 0, 5, 0}), HasSubstr("two end-of-document tokens"));
  EXPECT_THAT(repaired({.lengths = {1}}, {5, 0, 0}), HasSubstr("2 tokens more"));
  EXPECT_THAT(repaired({.lengths = {1, 1}}, {5, 0, 6, 7}), HasSubstr("there is the token 7"));
  EXPECT_THAT(repaired({.lengths = {1, 1}, .positions = {0, 0}}, {5, 6}),
              AllOf(StartsWith("74: "), HasSubstr("nothing was written")));
  EXPECT_EQ(dir.list(), (std::vector<std::string>{"a.bin", "a.idx"}));
}

TEST(Repair, FindsTheTokenOutOnlyWhereDocumentsAgree) {
  Directory dir;
  std::string one = put(dir, "one", {.lengths = {2}}, {1, 2, 0});
  EXPECT_THAT(neox_data({"repair", one, "--in-place"}), HasSubstr("has one document only"));
  std::string two = put(dir, "two", {.lengths = {1, 1}}, {1, 9, 2, 0});
  EXPECT_THAT(neox_data({"repair", two, "--in-place"}), HasSubstr("there is the token 9"));
}

TEST(Repair, LetsTheLastDocumentEndAtTheLastSequence) {
  Directory dir;
  for (std::vector<int64_t> documents : {std::vector<int64_t>{0, 1}, {0, 1, 2, 3, 4}}) {
    std::string a = put(dir, "a", {.lengths = {1, 2, 1}, .documents = documents}, {1, 2, 3, 4});
    EXPECT_THAT(neox_data({"repair", a, "--in-place"}), HasSubstr("3 documents, not "));
    EXPECT_EQ(read_file(a + ".idx"), (Index{.lengths = {1, 2, 1}}.bytes()));
    fs::remove(a + ".idx.old");
  }
}

TEST(Repair, RefusesBoundariesThatTellNothing) {
  Directory dir;
  auto repaired = [&](const std::vector<int64_t>& documents) {
    Index index{.lengths = {1, 2, 1}, .documents = documents};
    return neox_data({"repair", put(dir, "a", index, {1, 2, 3, 4}), "--in-place"});
  };
  EXPECT_THAT(repaired({0, 2}), HasSubstr("documents have several sequences"));
  EXPECT_THAT(repaired({0}), HasSubstr("no other document is known"));
  EXPECT_THAT(repaired({0, 2, 1}), HasSubstr("do not rise from 0"));
}

TEST(Repair, SaysWhatIsWrongWithItsOptions) {
  EXPECT_THAT(neox_data({"repair", "a"}), HasSubstr("give --output-prefix"));
  EXPECT_THAT(neox_data({"repair", "a", "--in-place"}), StartsWith("74: no dataset a"));
}

}  // namespace
}  // namespace neox
