// Several ranks write the bytes that one writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <thread>

#include "comm/thread.h"
#include "data_files.h"
#include "generated_text.h"
#include "prepare/prepare_options.h"
#include "prepare/together.h"

namespace neox {
namespace {

using ::testing::AllOf;
using testing::Directory;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

constexpr int kRanks[] = {2, 3, 5};

// Does something when all ranks have read their shares, before the first one hears of it: earlier,
// another one might not have opened its own yet.
class Meddling : public Control {
 public:
  using Control::gather;
  Meddling(Control& control, const std::function<void()>& meddle)
      : control_(control), meddle_(meddle) {}
  int rank() const override { return control_.rank(); }
  int size() const override { return control_.size(); }
  std::vector<std::string> gather(const std::string& mine, std::chrono::seconds most) override {
    std::vector<std::string> all = control_.gather(mine, most);
    if (rank() == 0 && mine.find("\"tally\"") != mine.npos) meddle_();
    return all;
  }
  std::unique_ptr<Control> channel(const std::string& name, int size) override {
    return control_.channel(name, size);
  }

 private:
  Control& control_;
  const std::function<void()>& meddle_;
};

class PrepareRanks : public ::testing::Test {
 protected:
  PrepareRanks() {
    write_tokenizer_json(
        dir_ / "tokenizer.json",
        train_bpe({.vocab_size = 280}, each({"the cat and the hat\n", "that cat sat there é"})));
  }

  PrepareResult prepare(int ranks, const std::string& name, const Arguments& more) {
    Arguments arguments = {"--output-prefix",       dir_ / name, "--vocab-file",
                           dir_ / "tokenizer.json", "--workers", "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Program program = prepare_program();
    check(program.parse(arguments), "help was asked");
    PrepareOptions options = read_prepare_options(program);
    options.save_seconds = save_seconds_;
    PrepareResult result;
    run_thread_ranks(ranks, [&](Communicator&, Control& real) {
      Meddling control(real, meddle_);
      PrepareResult mine = prepare_data(options, control);
      if (control.rank() == ranks - 1) result = mine;
    });
    return result;
  }

  // The datasets and the counts of 2, 3 and 5 ranks are those of one.
  void expect_same(const Arguments& arguments, const Arguments& keys = {"text"}) {
    PrepareResult one = prepare(1, "one", arguments);
    for (int ranks : kRanks) {
      PrepareResult many = prepare(ranks, "many", arguments);
      EXPECT_EQ(counts(many), counts(one)) << ranks << " ranks";
      for (const std::string& key : keys)
        for (const char* ending : {"_document.bin", "_document.idx"})
          EXPECT_TRUE(read_file(dir_ / ("many_" + key + ending)) ==
                      read_file(dir_ / ("one_" + key + ending)))
              << ranks << " ranks, " << key << ending;
    }
    for (const std::string& name : dir_.list()) {
      EXPECT_EQ(name.find(".tmp-"), std::string::npos) << name;
    }
  }

  static std::string counts(const PrepareResult& r) {
    std::string text = concat(r.documents, " ", r.empty, " ", r.skipped, " ", r.repaired, " ",
                              r.text_bytes, " ", r.vocab);
    for (const PreparedDataset& data : r.datasets)
      text += concat(" | ", data.documents, " ", data.tokens, " ", data.bytes);
    return text;
  }

  // Lines of very different lengths, with bad bytes, blank lines and both line ends.
  static std::string lines(int count, const std::string& key = "text") {
    std::string made;
    for (int i = 0; i < count; ++i) {
      made += "{\"n\": " + std::to_string(i) + ", \"" + key + "\": \"";
      made += i % 7 == 3 ? "" : std::string(static_cast<size_t>(i * i % 91), "the cat"[i % 7]);
      if (i % 11 == 5) made += "\xff\xe2\x82";
      made += i % 3 == 1 ? "\"}\r\n" : "\"}\n";
      if (i % 5 == 2) made += "\n  \n";
    }
    return made;
  }

  Directory dir_;
  double save_seconds_ = 10;
  std::function<void()> meddle_ = [] {};
};

TEST_F(PrepareRanks, JsonLines) { expect_same({"--input", dir_.put("a.jsonl", lines(100))}); }

TEST_F(PrepareRanks, JsonLinesOfManyBlocks) {
  std::string text = lines(20000);
  text += "{\"text\": \"" + std::string(3 * BlockReader::kBlockBytes, 'a') + "\"}\n" + lines(99);
  expect_same({"--append-eod", "--input", dir_.put("a.jsonl", text)});
}

TEST_F(PrepareRanks, LastLineWithoutLineEnd) {
  expect_same({"--append-eod", "--input", dir_.put("a.jsonl", lines(40) + "{\"text\": \"hat\"}")});
}

TEST_F(PrepareRanks, FewerDocumentsThanRanks) {
  expect_same({"--input", dir_.put("a.jsonl", "{\"text\": \"the cat\"}\n{\"text\": \"hat\"}\n")});
  expect_same({"--input", dir_.put("b.txt", "x")});
}

TEST_F(PrepareRanks, SeveralFiles) {
  dir_.put("in/a.jsonl", lines(30));
  dir_.put("in/b.txt", "the cat\nand the hat\n\nsat there");
  dir_.put("in/c.txt", "");
  dir_.put("in/d.jsonl", lines(3));
  dir_.put("in/e.jsonl", "\n\n");
  dir_.put("in/f.txt", "\xff");
  expect_same({"--append-eod", "--input", dir_ / "in"});
}

TEST_F(PrepareRanks, SeveralKeys) {
  std::string text;
  for (int i = 0; i < 50; ++i)
    text += concat("{\"a\": \"", i % 2 ? "cat" : "", "\", \"b\": \"", i % 3 ? "hat" : "", "\"}\n");
  expect_same({"--input", dir_.put("a.jsonl", text), "--jsonl-keys", "a", "b"}, {"a", "b"});
}

TEST_F(PrepareRanks, PartedText) {
  std::string text = "%\n";
  for (int i = 0; i < 300; ++i)
    text += std::string(static_cast<size_t>(i % 23), 'a') + (i % 4 ? "\n" : "\n\n50 %\n") +
            (i % 3 ? "%\n" : "%\r\n");
  expect_same({"--split-on", "%", "--append-eod", "--input", dir_.put("f", text + "last")});
}

// A long text is tokenized in parts, also by several ranks, and stays one document.
TEST_F(PrepareRanks, OneLongText) {
  std::string text;
  for (int i = 0; i < 60000; ++i)
    text +=
        concat("the cat ", i, i % 5 ? " sat" : "\xff", i % 3 ? "\n" : " \n\n", i % 2 ? "é" : "");
  EXPECT_GT(text.size(), 4u * BlockReader::kBlockBytes);
  expect_same({"--append-eod", "--input", dir_.put("a.txt", text)});
  Tokenizer tokenizer = Tokenizer::from_json(dir_ / "tokenizer.json");
  IndexedDataset data(dir_ / "many_text_document", tokenizer.vocab_size());
  EXPECT_EQ(data.num_sequences(), 1);
  std::vector<int32_t> whole = tokenizer.encode(text);
  whole.push_back(tokenizer.end_of_document());
  std::vector<int64_t> tokens(static_cast<size_t>(data.lengths()[0]));
  data.get(0, 0, tokens);
  EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), whole.begin(), whole.end()));
}

TEST_F(PrepareRanks, OneLongTextOfLinesWithoutWords) {
  std::string text;
  for (int i = 0; text.size() < 4u * BlockReader::kBlockBytes; ++i)
    text += concat("猫", i % 3 ? "。" : "!", i % 7 ? "\n" : "\n\n", i % 5 ? "" : "\u3000", "é");
  expect_same({"--append-eod", "--input", dir_.put("a.txt", text)});
  Tokenizer tokenizer = Tokenizer::from_json(dir_ / "tokenizer.json");
  std::vector<int32_t> whole = tokenizer.encode(text);
  whole.push_back(tokenizer.end_of_document());
  IndexedDataset data(dir_ / "many_text_document", tokenizer.vocab_size());
  std::vector<int64_t> tokens(static_cast<size_t>(data.lengths()[0]));
  data.get(0, 0, tokens);
  EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), whole.begin(), whole.end()));
}

// So that memory does not hold its tokens at full size.
TEST_F(PrepareRanks, ALongTextOfJsonIsTokenizedInParts) {
  std::string text;
  for (int i = 0; text.size() < 3 << 20; ++i) text += concat("the cat ", i, i % 5 ? " sat" : " é");
  prepare(1, "out",
          {"--append-eod", "--input", dir_.put("a.jsonl", "{\"text\": \"" + text + "\"}")});
  Tokenizer tokenizer = Tokenizer::from_json(dir_ / "tokenizer.json");
  std::vector<int32_t> whole = tokenizer.encode(text);
  whole.push_back(tokenizer.end_of_document());
  std::vector<uint16_t> wanted(whole.begin(), whole.end());
  EXPECT_TRUE(read_file(dir_ / "out_text_document.bin") ==
              std::string(reinterpret_cast<const char*>(wanted.data()), 2 * wanted.size()));
  EXPECT_EQ(IndexedDataset(dir_ / "out_text_document").num_sequences(), 1);
}

TEST_F(PrepareRanks, MaxDocumentsAreTheFirstOfAll) {
  std::string input = dir_.put("a.jsonl", lines(100) + "bad\n");
  for (const char* most : {"1", "7", "40", "60", "85"})
    expect_same({"--max-documents", most, "--input", input});
  for (int ranks : kRanks)
    EXPECT_THAT(error_of([&] {
                  prepare(ranks, "o", {"--max-documents", "99", "--input", input});
                }),
                HasSubstr("not valid JSON"));
  std::string text;
  for (int i = 0; i < 50; ++i) text += concat("the cat ", i, "\n");
  dir_.put("in/a.txt", text);
  dir_.put("in/b.txt", text + text + text);
  dir_.put("in/c.txt", text);
  for (const char* most : {"1", "2", "3"})
    expect_same({"--append-eod", "--max-documents", most, "--input", dir_ / "in"});
}

TEST_F(PrepareRanks, SkippedLinesAreSummed) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += i % 4 ? "{\"text\": \"cat\"}\n" : "bad\n";
  expect_same({"--skip-bad-lines", "--input", dir_.put("a.jsonl", text)});
}

TEST_F(PrepareRanks, ABadLineEndsAllWithItsNumber) {
  std::string text;
  for (int i = 1; i <= 500; ++i) text += i == 431 ? "bad\n" : "{\"text\": \"cat\"}\n";
  std::string input = dir_.put("a.jsonl", text);
  for (int ranks : {1, 2, 5})
    EXPECT_THAT(error_of([&] {
                  prepare(ranks, "out", {"--input", input});
                }),
                AllOf(HasSubstr("74: "), HasSubstr(input + ":431: not valid JSON")));
  EXPECT_THAT(dir_.list(), ElementsAre("a.jsonl", "tokenizer.json"));
}

TEST_F(PrepareRanks, TheFirstRankTrainsTheTokenizer) {
  fs::remove(dir_ / "tokenizer.json");
  expect_same({"--train-tokenizer", "270", "--overwrite-tokenizer", "--input",
               dir_.put("a.jsonl", lines(50))});
}

TEST_F(PrepareRanks, ATokenizerIsTrainedOnTheDocumentsThatAreTaken) {
  std::string two = "{\"text\": \"the cat the cat\"}\n{\"text\": \"\"}\n{\"text\": \"the hat\"}\n";
  auto trained = [&](const std::string& text, const Arguments& more) {
    Arguments all = {"--train-tokenizer", "262", "--overwrite-tokenizer"};
    all.insert(all.end(), {"--input", dir_.put("a.jsonl", text)});
    all.insert(all.end(), more.begin(), more.end());
    prepare(2, "x", all);
    return read_file(dir_ / "tokenizer.json");
  };
  EXPECT_EQ(
      trained(two + "{\"text\": \"hat hat hat hat dog dog\"}\nbad\n", {"--max-documents", "2"}),
      trained(two, {}));
}

TEST_F(PrepareRanks, AnErrorOfTheFirstRankReachesAll) {
  EXPECT_THAT(error_of([&] {
                prepare(3, "out", {"--input", dir_ / "none"});
              }),
              HasSubstr("no input " + (dir_ / "none")));
  fs::create_directory(dir_ / "in_text_document.bin.tmp-0");
  EXPECT_THAT(error_of([&] {
                prepare(3, "in", {"--input", dir_.put("a.txt", "cat")});
              }),
              HasSubstr("in_text_document.bin.tmp-0 written, where a directory is"));
}

TEST_F(PrepareRanks, OutputThatCannotBeWrittenIsRefusedBeforeATokenizerIsTrained) {
  fs::remove(dir_ / "tokenizer.json");
  const Arguments train = {"--train-tokenizer", "262", "--input", dir_.put("a.jsonl", lines(50))};
  auto refusal = [&](const std::string& name) {
    return error_of([&] { prepare(2, name, train); });
  };
  dir_.put("d", "");
  EXPECT_THAT(refusal("d/a"), AllOf(HasSubstr("74: "), HasSubstr("cannot make the directory ")));
  EXPECT_THAT(refusal(std::string(250, 'x')),
              AllOf(HasSubstr("64: "), HasSubstr("--output-prefix gives a file the name xxx"),
                    HasSubstr("choose a shorter one")));
  EXPECT_THAT(dir_.list(), ElementsAre("a.jsonl", "d"));
  fs::remove(dir_ / "d");
  fs::create_directories(dir_ / "b_text_document.idx");
  EXPECT_THAT(refusal("b"), HasSubstr("b_text_document.idx written, where a directory is"));
  EXPECT_FALSE(fs::exists(dir_ / "tokenizer.json"));
  fs::create_symlink("nowhere", dir_ / "link");
  EXPECT_THAT(refusal("link/a"), HasSubstr("it is a link that leads nowhere"));
  prepare(2, "d/a", train);
}

TEST_F(PrepareRanks, OutputInPlaceOfTheInputIsRefused) {
  std::string tokenizer = read_file(dir_ / "tokenizer.json"),
              data = dir_.put("x_text_document.bin", "cat");
  fs::create_symlink(data, dir_ / "link");
  auto refusal = [&](const Arguments& more) { return error_of([&] { prepare(2, "x", more); }); };
  for (const std::string& input : {data, dir_ / "link"})
    EXPECT_THAT(
        refusal({"--input", input}),
        AllOf(HasSubstr("64: "), HasSubstr(input + " is of the input, and --output-prefix")));
  EXPECT_THAT(refusal({"--input", dir_ / "tokenizer.json", "--train-tokenizer", "262",
                       "--overwrite-tokenizer"}),
              AllOf(HasSubstr("64: "), HasSubstr("is of the input, and --vocab-file")));
  EXPECT_EQ(read_file(data), "cat");
  EXPECT_EQ(read_file(dir_ / "tokenizer.json"), tokenizer);
}

// What is read, or gets other permissions, has not.
TEST_F(PrepareRanks, InputThatChangesWhileItIsReadIsAnError) {
  std::string input = dir_.put("a.jsonl", lines(100));
  save_seconds_ = 0;
  auto written = [&] { std::ofstream(input, std::ios::app) << "{\"text\": \"cat\"}\n"; };
  auto touched = [&] {
    fs::last_write_time(input, fs::last_write_time(input) + std::chrono::seconds(1));
  };
  for (int ranks : {1, 3}) {
    meddle_ = written;
    EXPECT_THAT(error_of([&] {
                  prepare(ranks, "x", {"--input", input});
                }),
                AllOf(HasSubstr("74: "), HasSubstr(input + " has changed while")));
    EXPECT_THAT(dir_.list(), ElementsAre("a.jsonl", "tokenizer.json"));
  }
  const std::string warning = input + " was touched while the input was read";
  for (auto [change, told] : {std::pair<std::function<void()>, bool>{touched, true},
                              {[&] { read_file(input); }, false},
                              {[&] { fs::permissions(input, fs::perms::owner_all); }, false},
                              {[&] { fs::remove(input); }, false}}) {
    meddle_ = change;
    ::testing::internal::CaptureStderr();
    prepare(3, "x", {"--input", input});
    EXPECT_EQ(::testing::internal::GetCapturedStderr().find(warning) != std::string::npos, told);
    fs::remove(dir_ / "x_text_document.bin"), fs::remove(dir_ / "x_text_document.idx");
  }
}

TEST(Together, TellsAllRanksTheResults) {
  run_thread_ranks(3, [](Communicator&, Control& control) {
    auto results = work_together(control, {.work = [&](const std::atomic<bool>&) {
                                   return std::to_string(control.rank());
                                 }});
    EXPECT_THAT(results, ElementsAre("0", "1", "2"));
  });
}

TEST(Together, TheErrorOfOneStopsAll) {
  std::vector<std::string> errors(3);
  error_of([&] {
    run_thread_ranks(3, [&](Communicator&, Control& control) {
      auto rank = static_cast<size_t>(control.rank());
      auto work = [&](const std::atomic<bool>& stop) {
        if (rank == 1) fail(Exit::kIo, "disk");
        while (!stop) std::this_thread::yield();
        return std::string();
      };
      errors[rank] = error_of([&] { work_together(control, {.work = work}); });
      fail(Exit::kIo, "over");
    });
  });
  EXPECT_THAT(errors, ElementsAre("74: rank 1: disk", "74: disk", "74: rank 1: disk"));
}

TEST(Together, ALostRankEndsTheWork) {
  struct Losing : AloneControl {
    std::vector<std::string> gather(const std::string&, std::chrono::seconds) override {
      fail(Exit::kPeerLost, "rank 1 is lost");
    }
  } control;
  auto work = [](const std::atomic<bool>& stop) {
    while (!stop) std::this_thread::yield();
    return std::string();
  };
  EXPECT_EQ(error_of([&] { work_together(control, {.work = work}); }), "76: rank 1 is lost");
}

}  // namespace
}  // namespace neox
