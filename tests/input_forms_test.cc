// Every form of input gives the dataset of the plain JSON lines of the same texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include "archives.h"
#include "input_forms.h"
#include "prepare/input_files.h"

namespace neox {
namespace {

using ::testing::AllOf;
using testing::archive_of;
using testing::compressed;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::InputForms;
using testing::line_of;
using testing::Member;
using ::testing::Not;
using ::testing::StartsWith;
using testing::words;
using Arguments = std::vector<std::string>;

const std::pair<const char*, const char*> kFilters[] = {
    {"gzip", ".gz"}, {"zstd", ".zst"}, {"xz", ".xz"}, {"bzip2", ".bz2"}, {"lz4", ".lz4"}};

TEST_F(InputForms, CompressedJsonLines) {
  std::string wanted = dataset({dir_.put("a.jsonl", lines_)});
  for (auto [filter, ending] : kFilters) {
    expect_same({dir_.put(concat("a.jsonl", ending), compressed(lines_, filter))}, wanted);
    expect_same({dir_.put(concat("unnamed-", filter), compressed(lines_, filter))}, wanted);
  }
}

TEST_F(InputForms, CompressedTextIsOneDocument) {
  std::string wanted = dataset({dir_.put("a.txt", texts_[6])});
  for (auto [filter, ending] : kFilters)
    expect_same({dir_.put(concat("a.txt", ending), compressed(texts_[6], filter))}, wanted);
}

TEST_F(InputForms, ByteOrderMarksAndLineEndsOfWindows) {
  std::string wanted = dataset({dir_.put("a.jsonl", lines_)}), windows = "\xEF\xBB\xBF";
  for (char c : lines_) windows += c == '\n' ? "\r\n" : std::string(1, c);
  expect_same({dir_.put("b.jsonl", windows)}, wanted);
  expect_same({dir_.put("b.jsonl.gz", compressed(windows, "gzip"))}, wanted);
  expect_same({dir_.put("t.txt", "\xEF\xBB\xBF" + texts_[6])}, dataset({dir_.put("u", texts_[6])}));
}

TEST_F(InputForms, SeparatorsThatPartNothingAreWarnedOf) {
  auto warning = [&](const Arguments& input) {
    ::testing::internal::CaptureStderr();
    dataset(input, {"--split-on", "%"});
    return ::testing::internal::GetCapturedStderr();
  };
  std::string whole = dir_.put("a.txt", "one\n50 %\n"), parted = dir_.put("b.txt", "one\n%\ntwo\n"),
              json = dir_.put("a.jsonl", lines_);
  EXPECT_THAT(warning({whole}), HasSubstr("--split-on '%' parts nothing"));
  EXPECT_THAT(warning({json}), HasSubstr("of which the input has none"));
  for (const Arguments& input : {Arguments{parted}, Arguments{whole, json}})
    EXPECT_THAT(warning(input), Not(HasSubstr("warning: --split-on")));
}

TEST_F(InputForms, DocumentsWithoutTextForOneKeyAreCounted) {
  std::string input = dir_.put("a.jsonl", R"({"a": "x", "b": ""}
{"a": "y", "b": "z"}
)");
  std::string said = summary({}, prepare({input}, {"--jsonl-keys", "a", "b"}));
  EXPECT_THAT(said,
              HasSubstr("left out of " + (dir_ / "out_b_document") + ": 1 document without text"));
  EXPECT_THAT(said, Not(HasSubstr("left out of " + (dir_ / "out_a_document"))));
}

TEST_F(InputForms, ArchivesOfTexts) {
  std::string wanted = dataset({dir_.put("a.jsonl", lines_)});
  std::vector<Member> members = {{"dir", "", AE_IFDIR}, {"dir/.hidden", "x"}, {"._x/a.txt", "x"}};
  for (size_t i = 0; i < texts_.size(); ++i)
    members.push_back({concat("./dir/", 9 - i, i % 2 ? ".txt" : ""), texts_[i]});
  members.push_back({"dir/picture.png", std::string("\x89PNG\0\0", 6)});
  members.push_back({"empty.txt", ""});
  expect_same({dir_.put("a.zip", archive_of(members, "zip"))}, wanted);
  members.push_back({"link.txt", "", AE_IFREG, "./dir/9"});
  for (const char* format : {"ustar", "pax", "gnutar"})
    expect_same({dir_.put("a.tar", archive_of(members, format))}, wanted);
  for (auto [filter, ending] : kFilters)
    expect_same({dir_.put(concat("a.tar", ending), archive_of(members, "ustar", filter))}, wanted);
  expect_same({dir_.put("a.tgz", archive_of(members, "ustar", "gzip"))}, wanted);
}

TEST_F(InputForms, ArchivesOfJsonLinesAndCompressedMembers) {
  std::string first, second;
  for (size_t i = 0; i < texts_.size(); ++i) (i < 3 ? first : second) += line_of(texts_[i]);
  std::string wanted = dataset({dir_.put("a.jsonl", lines_)});
  std::vector<Member> members = {{"b.jsonl", first}, {"a.jsonl", second}};
  expect_same({dir_.put("a.zip", archive_of(members, "zip"))}, wanted);
  expect_same({dir_.put("a.tar.xz", archive_of(members, "ustar", "xz"))}, wanted);
  members = {{"b.jsonl.zst", compressed(first, "zstd")}, {"a", compressed(second, "bzip2")}};
  expect_same({dir_.put("a.tar", archive_of(members, "ustar"))}, wanted);
}

TEST_F(InputForms, ListsPatternsAndDirectoriesOfMixedForms) {
  dir_.put("in/a.jsonl.zst", compressed(lines_, "zstd"));
  dir_.put("in/b.jsonl", lines_);
  dir_.put("in/c.tar.gz", archive_of({{"x.txt", texts_[3]}, {"y.jsonl", lines_}}, "ustar", "gzip"));
  dir_.put("in/d.txt", texts_[6]);
  std::string all = lines_ + lines_ + line_of(texts_[3]) + lines_ + line_of(texts_[6]);
  std::string wanted = dataset({dir_.put("a.jsonl", all)});
  expect_same({dir_ / "in"}, wanted);
  expect_same({dir_ / "in/*"}, wanted);
  expect_same({dir_ / "in/[a-b].jsonl*," + (dir_ / "in/?.tar.gz") + ", " + (dir_ / "in/d.txt")},
              wanted);
  EXPECT_THAT(refusal({dir_ / "in/*.json"}), HasSubstr("no file has such a name"));
}

TEST_F(InputForms, SeparatorsInCompressedText) {
  std::string text = "one\n%\ntwo\n%\nthree";
  expect_same({dir_.put("f.gz", compressed(text, "gzip"))},
              dataset({dir_.put("f", text)}, {"--split-on", "%"}), {"--split-on", "%"});
}

TEST_F(InputForms, MaxDocumentsOfCompressedFiles) {
  std::string a = dir_.put("a.jsonl.gz", compressed(lines_, "gzip"));
  std::string wanted = dataset({dir_.put("a.jsonl", lines_ + lines_)}, {"--max-documents", "9"});
  expect_same({a, a}, wanted, {"--max-documents", "9"});
}

TEST_F(InputForms, LinesAreCountedFromTheBeginningOfTheStream) {
  std::string text;
  for (int i = 1; i < 20000; ++i)
    text += i == 7 || i == 17001 ? "bad\n" : line_of(concat("the cat ", i));
  std::string path = dir_.put("a.jsonl.xz", compressed(text, "xz"));
  EXPECT_THAT(refusal({path}), StartsWith("74: " + path + ":7: not valid JSON"));
  EXPECT_EQ(prepare({path}, {"--skip-bad-lines"}).skipped, 2);
  fs::remove(dir_ / "out_text_document.bin");
  fs::remove(dir_ / "out_text_document.idx");
  path = dir_.put("a.zip", archive_of({{"x.txt", "x"}, {"y.jsonl", text}}, "zip"));
  EXPECT_THAT(refusal({path}), StartsWith("74: " + path + ": y.jsonl:7: not valid JSON"));
}

TEST_F(InputForms, InvalidUtf8IsReplacedSkippedOrFatal) {
  std::string good = line_of("the cat"), bad = line_of("the \xff cat");
  Arguments lines = {dir_.put("a.jsonl", good + bad + good)};
  std::string replaced = dataset({dir_.put("b.jsonl", good + line_of("the \uFFFD cat") + good)});
  EXPECT_TRUE(dataset(lines) == replaced);
  EXPECT_TRUE(dataset(lines, {"--invalid-utf8", "replace"}) == replaced);
  EXPECT_TRUE(dataset(lines, {"--invalid-utf8", "skip"}) ==
              dataset({dir_.put("b.jsonl", good + good)}));
  EXPECT_THAT(refusal(lines, {"--invalid-utf8", "fail"}),
              AllOf(HasSubstr("a.jsonl:2: "), HasSubstr("--invalid-utf8 skip")));
  EXPECT_THAT(refusal(lines, {"--invalid-utf8", "fail", "--skip-bad-lines"}),
              HasSubstr("a.jsonl:2: "));
  EXPECT_THAT(refusal(lines, {"--invalid-utf8", "no"}), StartsWith("64: --invalid-utf8 no"));
  // A text of several blocks goes as a whole.
  std::string text = words(600000, 1);
  dir_.put("in/a.txt", text + "\xff");
  dir_.put("in/b.txt", "the cat");
  EXPECT_TRUE(dataset({dir_ / "in"}, {"--invalid-utf8", "skip"}) ==
              dataset({dir_.put("b.jsonl", good)}));
  auto lines_before = std::count(text.begin(), text.end(), '\n');
  EXPECT_THAT(refusal({dir_ / "in"}, {"--invalid-utf8", "fail"}),
              HasSubstr(concat("in/a.txt:", lines_before + 1, ": ")));
}

TEST_F(InputForms, CutOffFilesAreNamed) {
  std::string text;
  for (unsigned i = 0; i < 8; ++i) text += line_of(words(30000, i));
  for (auto [filter, ending] : kFilters) {
    std::string whole = compressed(text, filter);
    for (size_t left : {whole.size() - 1, whole.size() - 5, whole.size() / 2, size_t{300}}) {
      std::string path = dir_.put(concat("a.jsonl", ending), whole.substr(0, left));
      EXPECT_THAT(refusal({path}), AllOf(StartsWith("74: " + path), HasSubstr("byte "),
                                         HasSubstr(filter), HasSubstr("cut off")))
          << left;
    }
  }
}

TEST_F(InputForms, DamagedFilesAreNamed) {
  std::string text;
  for (unsigned i = 0; i < 8; ++i) text += line_of(words(30000, i));
  for (const char* filter : {"gzip", "xz", "bzip2"}) {
    std::string whole = compressed(text, filter);
    for (size_t at : {whole.size() / 3, whole.size() / 2, whole.size() - 15}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
      std::string path = dir_.put("a.jsonl", damaged);
      EXPECT_THAT(refusal({path}),
                  AllOf(StartsWith("74: " + path), HasSubstr("byte "), HasSubstr(filter)))
          << at;
    }
    EXPECT_THAT(refusal({dir_.put("a.jsonl", whole + "more")}), HasSubstr("byte "));
    EXPECT_EQ(error_of([&] { dataset({dir_.put("b", whole + std::string(512, '\0'))}); }), "");
  }
}

TEST_F(InputForms, CutOffArchivesAreNamed) {
  std::vector<Member> members;
  for (unsigned i = 0; i < 3; ++i) members.push_back({concat(i, ".txt"), words(40000, i)});
  for (const char* format : {"ustar", "zip"}) {
    std::string whole = archive_of(members, format);
    // Behind the first member of a tar too: a header of 512 bytes and 40,000 in blocks.
    for (size_t left : {whole.size() - 1024, whole.size() / 2, size_t{512 * 81}, size_t{600}}) {
      std::string path = dir_.put(concat("a.", format), whole.substr(0, left));
      EXPECT_THAT(refusal({path}),
                  AllOf(StartsWith("74: " + path), HasSubstr("byte "), HasSubstr("cut off")))
          << format << " " << left;
    }
  }
  std::string damaged = archive_of(members, "zip");
  damaged[damaged.size() / 2] ^= 0x55;
  EXPECT_THAT(refusal({dir_.put("a.zip", damaged)}), HasSubstr("a.zip is damaged"));
  std::string tgz = archive_of(members, "ustar", "gzip");
  EXPECT_THAT(refusal({dir_.put("a.tgz", tgz.substr(0, tgz.size() - 3))}), HasSubstr("cut off"));
}

TEST_F(InputForms, WhatIsNotReadIsRefusedByName) {
  std::string inner = archive_of({{"x.txt", "the cat"}}, "ustar");
  auto tar = [&](const std::string& name, const std::string& content) {
    return dir_.put("a.tar", archive_of({{name, content}}, "ustar"));
  };
  EXPECT_THAT(refusal({tar("b.tar", inner)}), HasSubstr("a.tar: b.tar: an archive in an archive"));
  EXPECT_THAT(refusal({tar("b", compressed(inner, "gzip"))}),
              HasSubstr("an archive in an archive"));
  EXPECT_THAT(refusal({tar("b.7z", "7z\xbc\xaf\x27\x1c...")}), HasSubstr("a.tar: b.7z is a 7z"));
  EXPECT_THAT(refusal({dir_.put("a.rar", "Rar!\x1a\x07...")}), HasSubstr("RAR"));
  EXPECT_THAT(refusal({dir_.put("a.parquet", std::string("PAR1\x15\0", 6))}),
              AllOf(HasSubstr("a.parquet "), HasSubstr("a Parquet file")));
  EXPECT_THAT(refusal({tar("b", std::string("PAR1\x15\0", 6))}),
              HasSubstr("a.tar: b: Parquet and Arrow are not read in an archive"));
  EXPECT_THAT(refusal({dir_.put("a.gz", compressed(std::string("PAR1\x15\0", 6), "gzip"))}),
              HasSubstr("packed twice"));
  EXPECT_THAT(refusal({dir_.put("b.parquet", "")}), HasSubstr("is empty"));
  EXPECT_THAT(refusal({dir_.put("a.txt",
                                "\xff\xfe"
                                "a")}),
              HasSubstr("UTF-16"));
  EXPECT_THAT(refusal({dir_.put("a.gz", "the cat")}), HasSubstr("no such content"));
  EXPECT_THAT(refusal({dir_.put("a.gz", "")}), HasSubstr("is empty"));
  EXPECT_THAT(refusal({dir_.put("a.gz.gz", compressed(compressed("a", "gzip"), "gzip"))}),
              HasSubstr("packed twice"));
  std::string secret = archive_of({{"x.txt", "the cat"}}, "zip", "none", "zip:encryption=zipcrypt");
  EXPECT_THAT(refusal({dir_.put("a.zip", secret)}), HasSubstr("a.zip: x.txt is encrypted"));
  EXPECT_THAT(refusal({dir_.put("x.zst", compressed(std::string(9, '\0'), "zstd"))}),
              HasSubstr("is not text"));
}

// What is named as text is not left out as something else.
TEST_F(InputForms, TextWithZeroBytesIsAnError) {
  std::string line = lines_;
  line[lines_.find("cat")] = '\0';
  EXPECT_THAT(refusal({dir_.put("in/a.jsonl", line)}), HasSubstr("a.jsonl:1: "));
  EXPECT_THAT(refusal({dir_.put("texts/a.txt", std::string("the\0cat", 7))}),
              HasSubstr("a.txt is called .txt, and has bytes of value 0"));
  std::string tar =
      archive_of({{"a.txt", std::string("the\0cat", 7)}, {"b.jsonl", lines_}}, "ustar");
  EXPECT_EQ(dataset({dir_.put("some.tar", tar)}), dataset({dir_.put("b.jsonl", lines_)}));
  EXPECT_EQ(error_of([&] { dataset({dir_.put("b.txt", "PAR1 is a text, BZhang another")}); }), "");
}

// Where a head looks like a binary file's, more is read to see whether it is damaged.
TEST_F(InputForms, MembersThatBeginWithABinaryLineAreReadWhole) {
  std::string text("a\0b\n", 4);
  while (text.size() < 3 << 20) text += lines_;
  std::string gz = compressed(text, "gzip"), alone = dir_.put("a.jsonl.gz", gz);
  std::string tar = dir_.put("a.tar", archive_of({{"a.jsonl.gz", gz}}, "ustar"));
  EXPECT_TRUE(dataset({tar}, {"--skip-bad-lines"}) == dataset({alone}, {"--skip-bad-lines"}));
}

TEST_F(InputForms, EmptyFilesAndArchivesHaveNoDocuments) {
  std::string some = dir_.put("a.jsonl", lines_), wanted = dataset({some});
  for (const std::string& empty :
       {dir_.put("e.tar", archive_of({}, "ustar")), dir_.put("e.zip", archive_of({}, "zip")),
        dir_.put("e.tar.gz", archive_of({}, "ustar", "gzip")), dir_.put("e.txt", ""),
        dir_.put("e.jsonl.zst", compressed("", "zstd"))}) {
    expect_same({empty, some, empty}, wanted);
    EXPECT_THAT(refusal({empty}), HasSubstr("no document with text"));
  }
}

TEST(InputFiles, AreJsonLinesByTheirNamesBesideTextsThatAreParted) {
  testing::Directory dir;
  const std::vector<std::string> paths = {dir.put("a.jsonl", "{}"), dir.put("b", "{}")};
  InputFiles whole = find_input_files(paths, Separated::kNo),
             parted = find_input_files(paths, Separated::kYes);
  EXPECT_EQ(whole.files[1].format, InputFile::Format::kJsonLines);
  EXPECT_EQ(parted.files[0].format, InputFile::Format::kJsonLines);
  EXPECT_EQ(parted.files[1].format, InputFile::Format::kText);
}

TEST(InputFiles, OfADirectoryLeaveOutNotesOfARunAndNoLink) {
  testing::Directory dir;
  dir.put("in/a.jsonl", "{}"), dir.put("in/out.tmp-journal-0", "{}");
  dir.put("in/out.tmp-templates-0", "<page>");
  const std::vector<std::string> paths = {dir / "in"};
  EXPECT_EQ(find_input_files(paths, Separated::kNo).files.size(), 1u);
  fs::create_symlink("/nonexistent", dir / "in/b.jsonl");
  EXPECT_THAT(testing::error_of([&] { find_input_files(paths, Separated::kNo); }),
              ::testing::HasSubstr("in/b.jsonl is a link to something that is not there"));
}

TEST(InputFiles, OfADirectoryOrPatternAreNotWhatAKilledRunHasLeft) {
  testing::Directory dir;
  dir.put("in/a.txt", "a"), dir.put("in/b.tmp-x", "b");
  for (const char* left : {"vocab.json.tmp-4711", "c_text_document.bin.tmp-0", "d.txt.part.from",
                           "d.txt.part.from.tmp-12"})
    dir.put(concat("in/", left), "no text");
  for (const char* path : {"in", "in/*"})
    EXPECT_EQ(find_input_files(std::vector{dir / path}, Separated::kNo).files.size(), 2u) << path;
}

TEST(InputFiles, OfADirectoryOrPatternWithADownloadThatIsNotWholeAreRefused) {
  testing::Directory dir;
  std::string part = dir.put("in/below/a.txt.part", "the ca");
  auto refusal = [&](const std::string& path) {
    return testing::error_of([&] { find_input_files(std::vector{path}, Separated::kNo); });
  };
  EXPECT_EQ(refusal(dir / "in"), "") << "a part of something else";
  dir.put("in/below/a.txt.part.from", "etag");
  for (const char* path : {"in", "in/below/*"})
    EXPECT_THAT(refusal(dir / path),
                ::testing::StartsWith("74: " + part + " is a download that is not whole"));
}

TEST(InputFiles, OfADirectoryOrPatternAreNotWhatIsExcluded) {
  testing::Directory dir;
  for (const char* name : {"a.txt", "b.json", "sub/b.json", "sub/c.txt", "sub/in/d.txt", "json"})
    dir.put(concat("in/", name), "the cat");
  fs::create_symlink("/nonexistent", dir / "in/sub/e.json");
  auto left = [&](const std::vector<std::string>& exclude, const std::string& input = "in") {
    std::string names;
    for (const InputFile& file :
         find_input_files(std::vector{dir / input}, Separated::kNo, {}, exclude).files)
      names += file.path.substr((dir / "in/").size()) + " ";
    return names;
  };
  EXPECT_EQ(left({"*.json"}), "a.txt json sub/c.txt sub/in/d.txt ");
  EXPECT_EQ(left({"sub/"}), "a.txt b.json json ");
  EXPECT_EQ(left({"*/in/*", "?.json"}), "a.txt json sub/c.txt ");
  EXPECT_EQ(left({"sub/*.txt", "e.json"}), "a.txt b.json json sub/b.json ");
  EXPECT_EQ(left({"*.json", "in"}, "in/*"), "a.txt json sub/c.txt ");
  EXPECT_EQ(left({"b.json", "*"}, "in/b.json"), "b.json ");
  ::testing::internal::CaptureStderr();
  left({"*.json", "*.jsn"});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("left out by --exclude '*.json': 3, such as "),
                    HasSubstr("--exclude '*.jsn' leaves out nothing")));
}

TEST_F(InputForms, MembersOfArchivesThatAreExcludedAreLeftOut) {
  std::vector<Member> members = {{"./src/a.json", "{\n}"}, {"./src/b", "the cat"}};
  std::string tar = dir_.put("a.tar", archive_of(members, "ustar"));
  std::string wanted = dataset({dir_.put("b.txt", "the cat")});
  expect_same({tar}, wanted, {"--exclude", "*.json"});
  expect_same({tar}, wanted, {"--exclude", "x", "src/*.json"});
  EXPECT_THAT(refusal({tar}), HasSubstr("a.json:1: not valid JSON"));
}

TEST_F(InputForms, AreCounted) {
  ::testing::internal::CaptureStderr();
  prepare({dir_.put("a.tar", archive_of({{"x", "cat"}}, "ustar")), dir_.put("b.json", "[]"),
           dir_.put("c.jsonl", ""), dir_.put("d.jsonl", "")});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr(", 2 files of JSON lines, 1 JSON array, 1 archive\n"),
                    HasSubstr(", 1 document, 1 token\n")));
}

TEST_F(InputForms, StreamsAreRefused) {
  EXPECT_THAT(refusal({"-"}),
              StartsWith("74: --input - is the standard input, which can be read once"));
  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal({dir_ / "pipe"}), HasSubstr("pipe is a stream, which can be read once"));
}

TEST(InputFiles, OfADirectoryOrPatternAreNotTheTokenizer) {
  testing::Directory dir;
  dir.put("in/a.txt", "a");
  const std::vector<std::string> own = {dir.put("in/merges.txt", "#version: 0.2")};
  auto found = [&](const std::string& path) {
    return find_input_files(std::vector{path}, Separated::kNo, own).files.size();
  };
  EXPECT_EQ(found(dir / "in"), 1u);
  EXPECT_EQ(found(dir / "in/*.txt"), 1u);
  EXPECT_EQ(found(own[0]), 1u);
}

}  // namespace
}  // namespace neox
