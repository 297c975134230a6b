// Decoding by several threads, and the places where reading goes on.
#include "prepare/blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "archives.h"
#include "base/text.h"
#include "data_files.h"
#include "prepare/decompress.h"
#include "prepare/documents.h"

namespace neox {
namespace {

using testing::archive_of;
using testing::compressed;
using testing::Directory;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string noise(size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>('!' + random() % 64);
  return text;
}

struct MemorySource : ByteSource {
  explicit MemorySource(std::string given) : bytes(std::move(given)) {}
  size_t read(std::span<char> to) override {
    size_t n = std::min(to.size(), bytes.size() - at);
    std::memcpy(to.data(), bytes.data() + at, n);
    at += n;
    return n;
  }
  int64_t consumed() const override { return static_cast<int64_t>(at); }
  std::string bytes;
  size_t at = 0;
};

std::string decompressed(const std::string& bytes, Compression compression, int threads) {
  DecompressedSource source("f", compression, std::make_unique<MemorySource>(bytes), threads);
  std::string text, some(100003, '\0');
  for (size_t n; (n = source.read(some)) > 0;) text.append(some, 0, n);
  EXPECT_EQ(source.consumed(), static_cast<int64_t>(bytes.size()));
  return text;
}

TEST(Decompressed, StreamsOneAfterAnotherByAnyNumberOfThreads) {
  for (auto [filter, compression] : {std::pair{"bzip2", Compression::kBzip2},
                                     {"zstd", Compression::kZstd},
                                     {"gzip", Compression::kGzip},
                                     {"xz", Compression::kXz},
                                     {"lz4", Compression::kLz4}}) {
    std::string bytes, text;
    bool lz4 = compression == Compression::kLz4;  // libarchive writes no empty ones of these
    for (unsigned i = 0; i < 12; ++i) {
      std::string part = noise(i == 5 ? 400000 : 60000 * (i % 4) + lz4, i);
      text += part;
      bytes += compressed(part, filter);
    }
    for (int threads : {1, 2, 5})
      EXPECT_TRUE(decompressed(bytes, compression, threads) == text) << filter << " " << threads;
  }
}

// What looks like the beginning of a frame inside of one, frames to skip, and one of high ratio.
TEST(Decompressed, FramesOfZstdWithFalseBeginnings) {
  std::string longer = noise(6 << 20, 1), inside, skip("\x50\x2a\x4d\x18\x04\x00\x00\x00junk", 12);
  for (unsigned i = 0; i < 30; ++i) inside += noise(40000, i) + (i % 2 ? "\x28\xb5\x2f\xfd" : skip);
  std::string zeros(40 << 20, '0');
  std::string bytes = skip + compressed(inside, "zstd") + compressed(zeros, "zstd") +
                      compressed(longer, "zstd") + compressed(inside, "zstd") + skip;
  std::string text = inside + zeros + longer + inside;
  for (int threads : {1, 3})
    EXPECT_TRUE(decompressed(bytes, Compression::kZstd, threads) == text) << threads;
}

TEST(Decompressed, WindowsOfTwoGigabytes) {
  std::string window("\x28\xb5\x2f\xfd\x00\xa8", 6), block(
                                                         "\x19\x00\x00"
                                                         "cat",
                                                         6);
  EXPECT_EQ(decompressed(window + block, Compression::kZstd, 1), "cat");
}

TEST(Decompressed, DamageIsFoundByAnyNumberOfThreads) {
  std::string whole;
  for (unsigned i = 0; i < 12; ++i) whole += compressed(noise(60000, i), "bzip2");
  for (size_t at : {whole.size() / 3, whole.size() / 2, whole.size() - 4})
    for (int threads : {1, 4}) {
      std::string damaged = whole;
      damaged[at] ^= 0x11;
      EXPECT_THAT(error_of([&] { decompressed(damaged, Compression::kBzip2, threads); }),
                  HasSubstr("74: f is damaged at about byte "));
      EXPECT_THAT(
          error_of([&] { decompressed(whole.substr(0, at), Compression::kBzip2, threads); }),
          HasSubstr(concat("74: f ends at byte ", at, " in the middle")));
    }
}

// The lines and the texts, which do not depend on where one block ends and the next begins.
std::string shown(const Block& block) {
  std::string text;
  if (is_json(block.file->format)) {
    int64_t number = block.line;
    for (const std::string& line : split(block.text, '\n'))
      if (!line.empty()) text += concat(block.file->path, ":", number++, " ", line, "\n");
    return text;
  }
  if (block.begins_document) text += "[" + block.file->path + " ";
  return text + block.text + (block.ends_document ? "]" : "");
}

class Blocks : public ::testing::Test {
 protected:
  Blocks() {
    std::string lines, prose;
    for (int i = 0; i < 18000; ++i) lines += concat("{\"text\": \"", i, "\"}\n");
    for (int i = 0; i < 22000; ++i) prose += concat("the cat ", i, i % 9 ? " " : "\n");
    std::string mark = "\xEF\xBB\xBF";
    std::vector<testing::Member> members = {
        {"a.jsonl", lines}, {"b.txt", mark + prose}, {"c", "x"}, {"d.txt", prose}};
    dir_.put("in/a.jsonl", lines);
    dir_.put("in/b.txt", mark + prose);
    dir_.put("in/c.jsonl.bz2", compressed(lines, "bzip2") + compressed(lines, "bzip2"));
    dir_.put("in/d.tar.gz", archive_of(members, "ustar", "gzip"));
    dir_.put("in/e.txt.zst", compressed(mark + prose, "zstd"));
    dir_.put("in/f.zip", archive_of(members, "zip"));
    dir_.put("in/g.jsonl", lines);
    std::string array = "[" + replace_all(lines, "}\n", "},\n") + "{}]";
    dir_.put("in/h.json", array);
    dir_.put("in/i.json.gz", compressed(array, "gzip"));
    input_ = find_input_files(std::vector{dir_ / "in"}, Separated::kNo);
  }
  Directory dir_;
  InputFiles input_;
};

TEST_F(Blocks, GoOnFromEveryPlace) {
  for (auto texts : {BlockRules::Texts::kWhole, BlockRules::Texts::kParts}) {
    BlockRules rules{.texts = texts, .threads = 2};
    std::vector<Slice> slices = slices_of(input_, rules, 0, 1);
    std::vector<ReadPosition> ends;
    std::vector<std::string> texts_of_blocks;
    BlockReader reader(slices, rules);
    while (auto block = reader.next()) {
      ends.push_back(block->end);
      texts_of_blocks.push_back(shown(*block));
    }
    EXPECT_GT(ends.size(), 15u);
    std::string wanted;
    for (size_t i = ends.size(); i-- > 0; wanted = texts_of_blocks[i] + wanted) {
      BlockReader rest_reader(slices, rules, ends[i]);
      std::string rest;
      while (auto block = rest_reader.next()) rest += shown(*block);
      ASSERT_TRUE(rest == wanted) << i;
    }
  }
}

TEST_F(Blocks, OfAllRanksAreThoseOfTheInputAndItsBytes) {
  for (auto texts : {BlockRules::Texts::kWhole, BlockRules::Texts::kParts})
    for (int size : {1, 2, 3, 7}) {
      BlockRules rules{.texts = texts};
      int64_t bytes = 0;
      std::string joined, wanted;
      for (int rank = 0; rank < size; ++rank) {
        BlockReader reader(slices_of(input_, rules, rank, size), rules);
        while (auto block = reader.next()) joined += block->text, bytes += block->input_bytes;
      }
      BlockReader reader(slices_of(input_, rules, 0, 1), rules);
      while (auto block = reader.next()) wanted += block->text;
      EXPECT_TRUE(joined == wanted) << size;
      EXPECT_GT(bytes, input_.bytes * 98 / 100);
      EXPECT_LE(bytes, input_.bytes);
    }
}

// A text without spaces between ASCII letters is cut at its lines, and not between two of them.
TEST_F(Blocks, OfChineseEndAtLines) {
  std::string text;
  while (text.size() < 5u * BlockReader::kBlockBytes) text += "他坐在垫子上。\n\n她看着\n";
  InputFiles input = find_input_files(std::vector{dir_.put("zh.txt", text)}, Separated::kNo);
  BlockRules rules{.texts = BlockRules::Texts::kParts};
  BlockReader reader(slices_of(input, rules, 0, 1), rules);
  int64_t blocks = 0;
  std::string joined;
  for (; auto block = reader.next(); ++blocks) {
    EXPECT_TRUE(joined.empty() || joined.ends_with("着\n")) << blocks;
    joined += block->text;
  }
  EXPECT_GE(blocks, 4);
  EXPECT_TRUE(joined == text);
}

// The file goes away, so that nobody can count the lines before those of this rank.
TEST_F(Blocks, LinesThatAreLeftOutAreNamedWithoutReadingWhatStandsBefore) {
  std::string good = "{\"text\": \"cat\"}\n", path = dir_.put("bad.jsonl", good + good + "bad\n");
  InputFiles input = find_input_files(std::vector{path}, Separated::kNo);
  const auto begin = static_cast<int64_t>(good.size());
  BlockReader reader({{&input.files[0], begin, input.bytes}}, {});
  const Block block = reader.next().value();
  fs::rename(path, path + ".away");
  DocumentRules rules{.bad_lines = DocumentRules::BadLines::kSkip};
  EXPECT_THAT(
      parse_block(block, rules).skipped_at,
      ElementsAre(StartsWith(concat(path, ": line 2 from byte ", begin, " on: not valid JSON"))));
  fs::rename(path + ".away", path);
  EXPECT_THAT(parse_block(block, {}).error, StartsWith(path + ":3: not valid JSON"));
}

TEST_F(Blocks, ALongLineIsOneBlock) {
  std::string line = "{\"text\": \"" + std::string(8 << 20, 'a') + "\"}\n";
  dir_.put("long/a.jsonl", line + line.substr(0, 10));
  InputFiles input = find_input_files(std::vector{dir_ / "long"}, Separated::kNo);
  BlockReader reader(slices_of(input, {}, 0, 1), {});
  EXPECT_EQ(reader.next()->text.size(), line.size());
  EXPECT_EQ(reader.next()->text, line.substr(0, 10));
  EXPECT_FALSE(reader.next());
}

}  // namespace
}  // namespace neox
