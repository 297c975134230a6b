#include "data/indexed_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

#include <csignal>

#include "data/output_file.h"
#include "data_files.h"

namespace neox {
namespace {

using ::testing::AllOf;
using testing::counting;
using testing::Directory;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

const testing::Documents kGolden = {{11, 12, 13}, {21, 22}, {31, 32, 33, 34}};

std::string hex(const std::string& bytes) {
  std::string text;
  for (unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::vector<int64_t> read(const IndexedDataset& data, int64_t sequence, int64_t offset,
                          size_t length) {
  std::vector<int64_t> tokens(length);
  data.get(sequence, offset, tokens);
  return tokens;
}

// The bytes of a little-endian number.
template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// The golden dataset with its .idx or .bin changed.
class Damaged : public ::testing::Test {
 protected:
  Damaged() { dir_.put("d", kGolden); }
  std::string open_with(const std::string& ending, const std::string& content) {
    dir_.put("d" + ending, content);
    return open();
  }
  std::string open() {
    return error_of([&] { IndexedDataset data(dir_ / "d"); });
  }
  std::string idx(size_t at, const std::string& bytes) const {
    std::string content = read_file(dir_ / "d.idx");
    return content.replace(at, bytes.size(), bytes);
  }
  Directory dir_;
};

TEST(DatasetBuilder, WritesTheGoldenBytes) {
  Directory dir;
  dir.put("d", kGolden);
  EXPECT_EQ(hex(read_file(dir / "d.idx")),
            "4d4d49444944580000"
            "0100000000000000"
            "08"
            "0300000000000000"
            "0400000000000000"
            "03000000"
            "02000000"
            "04000000"
            "0000000000000000"
            "0600000000000000"
            "0a00000000000000"
            "0000000000000000"
            "0100000000000000"
            "0200000000000000"
            "0300000000000000");
  EXPECT_EQ(hex(read_file(dir / "d.bin")),
            "0b000c000d00"
            "15001600"
            "1f00200021002200");
}

TEST(DatasetBuilder, TakesInt32From65500EntriesOn) {
  Directory dir;
  dir.put("narrow", {{65498}}, 65499);
  dir.put("wide", {{65499}}, 65500);
  EXPECT_EQ(hex(read_file(dir / "narrow.bin")), "daff");
  EXPECT_EQ(hex(read_file(dir / "wide.bin")), "dbff0000");
  EXPECT_EQ(read(IndexedDataset(dir / "wide"), 0, 0, 1), std::vector<int64_t>{65499});
}

TEST(DatasetBuilder, LeavesNothingUnlessItFinishes) {
  Directory dir;
  dir.put("d", kGolden);
  std::string before = read_file(dir / "d.idx");
  {
    DatasetBuilder builder(dir / "d", 100);
    builder.add_document(std::vector<int32_t>{1, 2});
  }
  EXPECT_THAT(dir.list(), ElementsAre("d.bin", "d.idx"));
  EXPECT_EQ(read_file(dir / "d.idx"), before);
}

TEST(DatasetBuilder, MakesTheDirectory) {
  Directory dir;
  dir.put("a/b/d", kGolden);
  EXPECT_EQ(IndexedDataset(dir / "a/b/d").num_tokens(), 9);
}

TEST(DatasetBuilder, SaysWhyAFileCannotBeWritten) {
  Directory dir;
  dir.put("file", "");
  EXPECT_THAT(error_of([&] { DatasetBuilder builder(dir / "file/d", 100); }),
              AllOf(StartsWith("74: "), HasSubstr(dir / "file")));
}

TEST(DatasetBuilder, LeavesNothingWhenTheDiskIsFull) {
  Directory dir;
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{}, small{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  small = {.rlim_cur = 4000, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  std::string error = error_of([&] { dir.put("d", counting(std::vector<int32_t>(50, 50)), 2500); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(error, AllOf(StartsWith("74: cannot write " + (dir / "d.bin")), HasSubstr("large")));
  EXPECT_THAT(dir.list(), IsEmpty());
}

TEST(DatasetBuilder, RefusesTokensOutsideTheVocabulary) {
  Directory dir;
  EXPECT_THAT(error_of([&] {
                dir.put("d", {{1}, {100}});
              }),
              HasSubstr("token id 100 in document 1"));
  EXPECT_THAT(dir.list(), IsEmpty());
}

size_t heap_bytes() {
  struct mallinfo2 heap = ::mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

// Of the parts of a dataset that are named together there may be many.
TEST(OutputFile, HasNoBufferBehindItsEnd) {
  Directory dir;
  OutputFile file(dir / "x");
  size_t before = heap_bytes();
  file.write(std::vector<std::byte>(3 << 20));
  file.flush_to_disk();
  EXPECT_LT(heap_bytes(), before + (1 << 20));
}

TEST(IndexedDataset, ReadsWhatWasWritten) {
  Directory dir;
  for (int64_t vocab : {100, 70000}) {
    dir.put("d", kGolden, vocab);
    IndexedDataset data(" " + (dir / "d") + "\n");
    EXPECT_EQ(data.num_sequences(), 3);
    EXPECT_EQ(data.num_documents(), 3);
    EXPECT_EQ(data.lengths()[2], 4);
    EXPECT_THAT(read(data, 2, 1, 2), ElementsAre(32, 33));
    EXPECT_THAT(read(data, 1, 2, 0), IsEmpty());
    EXPECT_THAT(data.warnings(), IsEmpty());
  }
}

TEST(IndexedDataset, ReadsEveryIntegerType) {
  Directory dir;
  auto index = [](char code, int64_t length) {
    return std::string("MMIDIDX\0\0", 9) + raw<int64_t>(1) + code + raw<int64_t>(1) +
           raw<int64_t>(2) + raw(static_cast<int32_t>(length)) + raw<int64_t>(0) + raw<int64_t>(0) +
           raw<int64_t>(1);
  };
  const std::pair<char, std::string> kCases[] = {
      {1, raw<uint8_t>(7) + raw<uint8_t>(99)}, {2, raw<int8_t>(7) + raw<int8_t>(99)},
      {3, raw<int16_t>(7) + raw<int16_t>(99)}, {4, raw<int32_t>(7) + raw<int32_t>(99)},
      {5, raw<int64_t>(7) + raw<int64_t>(99)}, {8, raw<uint16_t>(7) + raw<uint16_t>(99)}};
  for (const auto& [code, bytes] : kCases) {
    dir.put("d.idx", index(code, 2));
    dir.put("d.bin", bytes);
    EXPECT_THAT(read(IndexedDataset(dir / "d", 100), 0, 0, 2), ElementsAre(7, 99));
  }
}

TEST(IndexedDataset, NamesTheTokenOutsideTheVocabulary) {
  Directory dir;
  IndexedDataset data(dir.put("d", kGolden), 33);
  EXPECT_THAT(read(data, 2, 0, 2), ElementsAre(31, 32));
  EXPECT_THAT(
      error_of([&] { read(data, 2, 1, 3); }),
      AllOf(StartsWith("74: " + (dir / "d.bin")), HasSubstr("token id 33"),
            HasSubstr("position 2 of sequence 2 (byte 14)"), HasSubstr("vocabulary of 33")));
}

TEST(IndexedDataset, TakesNegativeTokensForDamage) {
  Directory dir;
  std::string prefix = dir.put("d", {{5, 6}}, 70000);
  dir.put("d.bin", raw<int32_t>(5) + raw<int32_t>(-6));
  EXPECT_THAT(error_of([&] { read(IndexedDataset(prefix, 70000), 0, 0, 2); }),
              HasSubstr("token id -6"));
}

TEST(IndexedDataset, NamesTheFileThatIsMissing) {
  Directory dir;
  dir.put("pile_text_document", kGolden);
  auto message = [&](const std::string& name) {
    return error_of([&] { IndexedDataset data(dir / name); });
  };
  std::string meant = "Did you mean " + (dir / "pile_text_document") + "?";
  EXPECT_THAT(message("pile"), AllOf(StartsWith("74: "), HasSubstr(meant)));
  EXPECT_THAT(message("pile_text_document.bin"), HasSubstr(meant));
  EXPECT_THAT(message("pile_text_documnet"), HasSubstr(meant));
  EXPECT_THAT(message("enwik8"), HasSubstr("there is pile_text_document."));
  EXPECT_THAT(message("."),
              AllOf(HasSubstr(" is a directory"), HasSubstr("there is pile_text_document.")));
  EXPECT_THAT(message("no/where"), HasSubstr("The directory " + (dir / "no") + " does not exist"));
  fs::remove(dir / "pile_text_document.bin");
  EXPECT_THAT(message("pile_text_document"), HasSubstr("pile_text_document.bin is missing"));
  EXPECT_THAT(message("pile"), HasSubstr("No dataset is in"));
}

TEST_F(Damaged, WrongMagicIsNamed) {
  EXPECT_THAT(open_with(".idx", idx(0, "PK")), AllOf(StartsWith("74: "), HasSubstr("MMIDIDX")));
  EXPECT_THAT(open_with(".idx", idx(0, std::string("TNTIDX\0\0", 8))), HasSubstr("TNTIDX"));
  EXPECT_THAT(open_with(".idx", ""), HasSubstr("truncated"));
}

TEST_F(Damaged, WrongHeaderIsNamed) {
  std::string good = read_file(dir_ / "d.idx");
  EXPECT_THAT(open_with(".idx", idx(9, raw<int64_t>(2))), HasSubstr("version 2"));
  dir_.put("d.idx", good);
  EXPECT_THAT(open_with(".idx", idx(17, "\x09")), HasSubstr("unknown type code 9"));
  dir_.put("d.idx", good);
  EXPECT_THAT(open_with(".idx", idx(17, "\x06")), HasSubstr("floating-point"));
  dir_.put("d.idx", good);
  EXPECT_THAT(open_with(".idx", idx(18, raw<uint64_t>(1ull << 62))), HasSubstr("damaged"));
}

TEST_F(Damaged, EveryTruncatedIndexIsNamed) {
  std::string good = read_file(dir_ / "d.idx");
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_THAT(open_with(".idx", good.substr(0, size)),
                AllOf(StartsWith("74: " + (dir_ / "d.idx")), HasSubstr("truncated")))
        << size;
  EXPECT_THAT(open_with(".idx", good + "x"), HasSubstr("1 bytes more than its header says"));
}

TEST_F(Damaged, TruncatedBinIsNamed) {
  EXPECT_THAT(open_with(".bin", std::string(17, 'x')),
              AllOf(StartsWith("74: " + (dir_ / "d.bin")), HasSubstr("18 bytes (9 tokens)"),
                    HasSubstr("it has 17")));
}

TEST_F(Damaged, PositionOutsideIsNamed) {
  std::string good = read_file(dir_ / "d.idx");
  for (int64_t position : {int64_t{16}, int64_t{-2}, INT64_MAX}) {
    dir_.put("d.idx", good);
    EXPECT_THAT(open_with(".idx", idx(34 + 12 + 8, raw(position))),
                AllOf(HasSubstr("sequence 1 starts at byte"), HasSubstr("damaged")));
  }
  dir_.put("d.idx", good);
  EXPECT_THAT(open_with(".idx", idx(34, raw<int32_t>(-1))), HasSubstr("has the length -1"));
  dir_.put("d.idx", good);
  EXPECT_THAT(open_with(".idx", idx(34 + 36, raw<int64_t>(1))), HasSubstr("do not begin with 0"));
}

TEST_F(Damaged, UncountedEndsOfDocumentsAreAWarning) {
  dir_.put("d.bin", read_file(dir_ / "d.bin") + std::string(6, 0));
  IndexedDataset data(dir_ / "d");
  EXPECT_THAT(data.warnings(), ElementsAre(HasSubstr("end-of-document")));
  EXPECT_THAT(read(data, 1, 0, 2), ElementsAre(21, 22));
}

TEST_F(Damaged, ForeignBoundariesAreAWarning) {
  dir_.put("d.idx", idx(read_file(dir_ / "d.idx").size() - 8, raw<int64_t>(2)));
  EXPECT_THAT(IndexedDataset(dir_ / "d").warnings(),
              ElementsAre(HasSubstr("last document boundary is 2")));
}

}  // namespace
}  // namespace neox
