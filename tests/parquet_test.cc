// The rows of Parquet and Arrow files are those of the JSON lines that they were made of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/memory.h"
#include "base/text.h"
#include "child.h"
#include "data_files.h"
#include "parquet_files.h"
#include "prepare/arrow_plugin.h"
#include "prepare/blocks.h"
#include "prepare/documents.h"

namespace neox {
namespace {

using ::testing::AllOf;
using testing::Child;
using testing::Directory;
using testing::Ended;
using testing::error_of;
using ::testing::HasSubstr;
using testing::parquet_of;
using ::testing::StartsWith;
using Columns = std::vector<std::string>;
using Form = std::vector<std::string>;  // arguments of parquet_writer

std::string words(size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::string text;
  while (text.size() < bytes) text += concat("the cat ", random(), " and ", random(), "\\n");
  return text;
}

std::string lines_of(unsigned from, unsigned to, size_t bytes) {
  std::string lines;
  for (unsigned i = from; i < to; ++i)
    lines += concat("{\"id\": ", i, ", \"text\": \"", words(bytes * (i % 7), i), "\"}\n");
  return lines;
}

class Parquet : public ::testing::Test {
 protected:
  // All that is read of a file.
  std::string rows(const std::string& bytes, const Columns& columns, int threads = 1) {
    std::string path = dir_.put("a.parquet", bytes), text, some(100003, '\0');
    auto size = static_cast<int64_t>(bytes.size());
    auto source = arrow_plugin(path).open({path, size, 0, size}, columns, threads);
    int64_t before = 0;
    for (size_t n; (n = source->read(some)) > 0; before = source->consumed()) {
      text.append(some, 0, n);
      EXPECT_GE(source->consumed(), before);
    }
    EXPECT_EQ(source->consumed(), static_cast<int64_t>(bytes.size()));
    return text;
  }

  std::string refusal(const std::string& bytes, const Columns& columns = {"text"}) {
    return error_of([&] { rows(bytes, columns); });
  }

  // The texts of the blocks of all ranks.
  std::vector<std::string> texts_of(const std::string& path, int ranks) {
    std::vector<std::string> texts, paths = {path};
    DocumentRules rules;
    BlockRules blocks{.threads = 2, .columns = rules.members()};
    InputFiles input = find_input_files(paths, Separated::kNo);
    for (int rank = 0; rank < ranks; ++rank) {
      BlockReader reader(slices_of(input, blocks, rank, ranks), blocks);
      while (auto block = reader.next()) {
        Documents found = parse_block(*block, rules);
        EXPECT_EQ(found.error, "");
        for (const Document& document : found.documents) texts.emplace_back(document.texts[0]);
      }
    }
    return texts;
  }

  Directory dir_;
};

TEST_F(Parquet, RowsAreJsonLinesInEveryForm) {
  std::string lines;
  for (int i = 0; i < 1000; ++i)
    lines +=
        concat("{\"text\": \"\\\"a\\\\b\\\" \\u0001 \xc3\xa9 \xf0\x9f\x98\x80 \\n\\r\\t\\b\\f ",
               i % 9, "\", \"n\": ", i % 5 == 0 ? "null" : std::to_string(i - 500),
               ", \"score\": ", i % 2 ? "0.1" : "-3.0", ", \"ok\": ", i % 3 ? "true" : "false",
               ", \"list\": ", i % 4 ? "[{\"role\": \"user\", \"content\": \"x\"}]" : "[]",
               ", \"meta\": {\"a\": ", i % 6 ? "\"\"" : "null", ", \"b\": [1, 2]}}\n");
  Columns all = {"text", "n", "score", "ok", "list", "meta"};
  Form forms[] = {{},
                  {"compression=zstd", "rows=100"},
                  {"compression=gzip", "pages=2"},
                  {"compression=brotli", "rows=7", "dictionary=no"},
                  {"compression=lz4_raw", "encoding=delta"},
                  {"compression=uncompressed", "pages=2", "encoding=delta"},
                  {"rows=333", "checksums=yes"},
                  {"arrow=stream"},
                  {"arrow=stream", "rows=100", "compression=zstd"},
                  {"arrow=file", "rows=7"},
                  {"arrow=file", "compression=lz4"}};
  for (const Form& form : forms) {
    std::string bytes = parquet_of(lines, form);
    for (int threads : {1, 3})
      EXPECT_EQ(rows(bytes, all, threads), lines) << join(form, " ") << ", threads: " << threads;
  }
}

TEST_F(Parquet, TypesThatJsonHasNot) {
  Form form = {"type:byte=uint8",      "type:bytes=binary", "type:day=date32",
               "type:long=large_utf8", "type:part=float",   "type:time=timestamp"};
  std::string lines, wanted;
  for (const char* number : {"200", "0"}) {
    lines +=
        concat("{\"byte\": ", number, R"(, "bytes": "x\n", "day": 1, "long": "y", "part": 0.5, )",
               R"("time": "2026-01-02 03:04:05"})", "\n");
    wanted +=
        concat("{\"byte\": ", number, R"(, "bytes": "x\n", "day": "1970-01-02", "long": "y", )",
               R"("part": 0.5, "time": "2026-01-02 03:04:05.000"})", "\n");
  }
  lines += "{}\n";
  wanted += R"({"byte": null, "bytes": null, "day": null, "long": null, "part": null, )"
            R"("time": null})"
            "\n";
  Columns all = {"byte", "bytes", "day", "long", "part", "time"};
  EXPECT_EQ(rows(parquet_of(lines, form), all), wanted);
  form.push_back("arrow=stream");
  EXPECT_EQ(rows(parquet_of(lines, form), all), wanted);
}

TEST_F(Parquet, OnlyTheColumnsThatAreAsked) {
  for (const Form& form : {Form{}, Form{"arrow=stream"}}) {
    std::string bytes =
        parquet_of("{\"id\": 1, \"text\": \"a\"}\n{\"id\": 2, \"text\": \"b\"}\n", form);
    EXPECT_EQ(rows(bytes, {"text"}), "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
    EXPECT_EQ(rows(bytes, {"text", "id"}),
              "{\"id\": 1, \"text\": \"a\"}\n{\"id\": 2, \"text\": \"b\"}\n");
    EXPECT_THAT(refusal(bytes, {"text", "title"}),
                AllOf(StartsWith("74: " + dir_ / "a.parquet"),
                      HasSubstr("no column 'title'; it has id, text (--jsonl-keys")));
  }
}

// More than a thread holds at once, in one group and in many.
TEST_F(Parquet, ManyGroupsAndLargeOnes) {
  std::string lines = lines_of(0, 700, 8000);
  ASSERT_GT(lines.size(), size_t{16} << 20);
  for (const char* kind : {"arrow=stream", "pages=2"})
    for (int rows_in_group : {1 << 20, 300, 9}) {
      std::string bytes =
          parquet_of(lines, {kind, "compression=zstd", concat("rows=", rows_in_group)});
      for (int threads : {1, 2, 20})
        EXPECT_TRUE(rows(bytes, {"id", "text"}, threads) == lines)
            << rows_in_group << " " << threads;
    }
}

TEST_F(Parquet, DocumentsOfAnyNumberOfRanks) {
  for (unsigned part : {0u, 1u, 2u}) {
    std::string lines = lines_of(200 * part, 200 * part + 200, 900);
    dir_.put(concat("lines/", part, ".jsonl"), lines);
    Form form = {"rows=50", part == 1 ? "arrow=stream" : "pages=2"};
    dir_.put(concat("rows/", part, ".parquet"), parquet_of(lines, form));
  }
  std::vector<std::string> wanted = texts_of(dir_ / "lines", 1);
  ASSERT_EQ(wanted.size(), 600u);
  for (int ranks : {1, 2, 3, 5}) EXPECT_EQ(texts_of(dir_ / "rows", ranks), wanted) << ranks;
}

class ParquetOfAKind : public Parquet, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Of, ParquetOfAKind, ::testing::Values("pages=2", "arrow=stream"));

// Of which each has groups, and knows which rows they are.
TEST_P(ParquetOfAKind, RanksShareAFile) {
  Columns paths = {dir_.put("a", parquet_of(lines_of(0, 300, 900), {"rows=20", GetParam()}))};
  InputFiles input = find_input_files(paths, Separated::kNo);
  BlockRules rules{.columns = {"id"}};
  int64_t row = 0, bytes = 0;
  for (int rank = 0; rank < 4; ++rank) {
    BlockReader reader(slices_of(input, rules, rank, 4), rules);
    int64_t before = row;
    while (auto block = reader.next()) {
      EXPECT_TRUE(block->text.starts_with(concat("{\"id\": ", row, "}"))) << block->text;
      EXPECT_EQ(block->place(block->line), concat(paths[0], ":", row + 1));
      row += std::ranges::count(block->text, '\n');
      bytes += block->input_bytes;
    }
    EXPECT_GT(row, before) << rank;
  }
  EXPECT_EQ(row, 300);
  EXPECT_EQ(bytes, input.bytes);
  BlockReader none(slices_of(input, rules, 1, 4000), rules);  // a share in which no group begins
  EXPECT_EQ(none.next(), std::nullopt);
}

using RankAndKind = std::tuple<int, const char*>;
class ParquetOfARank : public Parquet, public ::testing::WithParamInterface<RankAndKind> {};
INSTANTIATE_TEST_SUITE_P(OfTwo, ParquetOfARank,
                         ::testing::Combine(::testing::Values(0, 1),
                                            ::testing::Values("pages=2", "arrow=stream")));

TEST_P(ParquetOfARank, ReadingGoesOnBehindAnyBlock) {
  auto [rank, kind] = GetParam();
  Columns paths = {dir_.put("a", parquet_of(lines_of(0, 1200, 2000), {"rows=90", kind}))};
  InputFiles input = find_input_files(paths, Separated::kNo);
  BlockRules rules{.threads = 2};
  std::vector<Block> blocks;
  BlockReader reader(slices_of(input, rules, rank, 2), rules);
  while (auto block = reader.next()) blocks.push_back(std::move(*block));
  ASSERT_GT(blocks.size(), 8u);
  std::string behind;  // blocks[k]
  for (size_t k = blocks.size() - 1; k-- > 0;) {
    behind.insert(0, blocks[k + 1].text);
    BlockReader rest(slices_of(input, rules, rank, 2), rules, blocks[k].end);
    std::string text;
    while (auto block = rest.next()) {
      EXPECT_TRUE(!text.empty() || block->line == blocks[k + 1].line);
      text += block->text;
    }
    EXPECT_TRUE(text == behind) << k;
  }
}

TEST_F(Parquet, DamagedFilesAreNamed) {
  std::string lines = lines_of(0, 50, 900);
  std::string named = "74: " + dir_ / "a.parquet" + " cannot be read as a Parquet file: ";
  std::string whole = parquet_of(lines, {"compression=zstd"});
  for (size_t left : {whole.size() - 1, whole.size() / 2, size_t{8}, size_t{4}})
    EXPECT_THAT(refusal(whole.substr(0, left)), AllOf(StartsWith(named), HasSubstr("cut off")));
  // A length of what stands at the end that is none, bytes in a compressed page, and in one that
  // only its checksum guards.
  std::string damaged = whole;
  damaged[whole.size() - 6] ^= 0x55;
  EXPECT_THAT(refusal(damaged), StartsWith(named));
  damaged = whole;
  for (size_t i = 0; i < 40; ++i) damaged[whole.size() / 2 + i] ^= 0x55;
  EXPECT_THAT(refusal(damaged), StartsWith(named));
  std::string plain = parquet_of(lines, {"compression=uncompressed", "checksums=yes"});
  plain[plain.size() / 2] ^= 1;
  EXPECT_THAT(refusal(plain), AllOf(StartsWith(named), HasSubstr("CRC")));
}

TEST_F(Parquet, DamagedFilesOfArrowAreNamed) {
  std::string named = "74: " + dir_ / "a.parquet" + " cannot be read as an Arrow file: ";
  std::string whole = parquet_of(lines_of(0, 50, 900), {"arrow=stream", "rows=20"});
  for (size_t left : {whole.size() - 1, whole.size() - 8, whole.size() / 2, size_t{8}, size_t{4}})
    EXPECT_THAT(refusal(whole.substr(0, left)), AllOf(StartsWith(named), HasSubstr("cut off")));
  std::string small = parquet_of(lines_of(0, 5, 10), {"arrow=stream"});
  std::mt19937 random(7);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {  // in what says where texts lie, and in texts
    std::string damaged = small;
    damaged[random() % damaged.size()] ^= static_cast<char>(1 << random() % 8);
    std::string found = refusal(damaged);
    EXPECT_TRUE(found.empty() || found.starts_with("74: ")) << found;
    refused += !found.empty();
  }
  EXPECT_GT(refused, 500);
}

// Which the file has once: what a batch holds is not what lies in the file.
TEST_F(Parquet, ALongTextInManyRows) {
  std::string lines, text(100000, 'x');
  for (int i = 0; i < 600; ++i) lines += concat("{\"text\": \"", text, "\"}\n");
  std::string bytes = parquet_of(lines);
  ASSERT_LT(bytes.size(), size_t{200000});
  int64_t before = peak_memory();
  EXPECT_TRUE(rows(bytes, {"text"}) == lines);
  EXPECT_LT(peak_memory() - before, 300 << 20);  // the text twice, and batches
}

TEST_F(Parquet, RowsAreCounted) {
  std::string bytes = parquet_of("{\"text\": \"a\"}\n{\"text\": \"a\"}\n{\"text\": \"a\"}\n",
                                 {"dictionary=no", "compression=uncompressed"});
  size_t page = bytes.find('\x06', 4);  // the number of its values, as Thrift writes 3
  ASSERT_NE(page, std::string::npos);
  ASSERT_LT(page, size_t{40});
  bytes[page] = 4;
  EXPECT_THAT(refusal(bytes), HasSubstr("group 0 has 2 rows, and should have 3"));
}

TEST_F(Parquet, ThatChangesIsAnError) {
  std::string path = dir_.put("a.parquet", parquet_of("{\"text\": \"a\"}\n"));
  Columns columns = {"text"};
  EXPECT_THAT(error_of([&] {
                arrow_plugin(path).open({path, 7, 0, 7}, columns, 1);
              }),
              HasSubstr("and had 7 when it was found; it must not change while it is read"));
}

TEST_F(Parquet, APluginOfOtherSourcesIsRefused) {
  fs::path program = dir_ / "bin/neox-prepare-data", plugin = dir_ / "lib/neox/libneox_arrow.so";
  for (const fs::path& file : {program, plugin}) fs::create_directories(file.parent_path());
  fs::copy(NEOX_BUILD_DIR "/bin/neox-prepare-data", program);
  fs::copy(NEOX_BUILD_DIR "/tests/libforeign_plugin.so", plugin);
  std::string input = dir_.put("a.parquet", parquet_of("{\"text\": \"a\"}\n"));
  Ended ended = Child({program, "--input", input, "--output-prefix", dir_ / "a", "--tokenizer-type",
                       "CharLevelTokenizer"})
                    .end();
  EXPECT_EQ(ended.code, 74);
  EXPECT_THAT(ended.err, HasSubstr("has the interface other sources, this program "));
}

TEST_F(Parquet, InADirectoryWithWhatOthersWriteThere) {
  std::string lines = lines_of(0, 3, 10);
  dir_.put("d/part-0.parquet", parquet_of(lines));
  for (const char* name : {"_metadata", "_common_metadata"})
    dir_.put(concat("d/", name), std::string("PAR1\x15\0PAR1", 10));
  for (const char* name : {"_SUCCESS", "README.md", "dataset_infos.json"})
    dir_.put(concat("d/", name), "the cat");
  dir_.put("d/more.jsonl", lines);
  EXPECT_EQ(texts_of(dir_ / "d", 1).size(), 6u);
}

// As save_to_disk() leaves it, and map() beside it.
TEST_F(Parquet, InADirectoryOfDatasets) {
  std::string arrow = parquet_of(lines_of(0, 3, 10), {"arrow=stream"});
  for (const char* name : {"d/train/data-00000-of-00002.arrow", "d/train/data-00001-of-00002.arrow",
                           "d/train/cache-0123456789abcdef.arrow"})
    dir_.put(name, arrow);
  dir_.put("d/dataset_dict.json", "{\"splits\": [\"train\"]}");
  dir_.put("d/train/dataset_info.json", "{\n  \"citation\": \"\"\n}");
  dir_.put("d/train/state.json", "{\n  \"_fingerprint\": \"0\"\n}");
  EXPECT_EQ(texts_of(dir_ / "d", 1).size(), 6u);
}

TEST_P(ParquetOfAKind, WithoutRows) {
  EXPECT_EQ(rows(parquet_of("{\"text\": \"a\"}\n", {"rows=1", GetParam()}), {"text"}),
            "{\"text\": \"a\"}\n");
  std::string empty = parquet_of("\n", {"type:text=large_utf8", GetParam()});
  EXPECT_EQ(rows(empty, {"text"}), "");
}

}  // namespace
}  // namespace neox
