#include "prepare/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>

#include "data_files.h"
#include "generated_text.h"
#include "prepare/pipeline.h"
#include "prepare/prepare_options.h"

namespace neox {
namespace {

using ::testing::AllOf;
using testing::Directory;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using Arguments = std::vector<std::string>;

PrepareOptions options_of(const Arguments& arguments) {
  Program program = prepare_program();
  check(program.parse(canonical_arguments(arguments)), "help was asked");
  return read_prepare_options(program);
}

// A directory with a tokenizer; prepares data in it and reads them back as texts.
class Prepare : public ::testing::Test {
 protected:
  Prepare() {
    write_tokenizer_json(
        dir_ / "tokenizer.json",
        train_bpe({.vocab_size = 280}, each({"the cat and the hat", "that cat sat there"})));
  }

  PrepareResult prepare(const Arguments& inputs, Arguments more = {}) {
    Arguments arguments = {"--output-prefix", dir_ / "out", "--vocab-file",
                           dir_ / "tokenizer.json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.push_back("--input");
    arguments.insert(arguments.end(), inputs.begin(), inputs.end());
    return prepare_data(options_of(arguments), alone_);
  }

  std::string refusal(const Arguments& inputs, const Arguments& more = {}) {
    return error_of([&] { prepare(inputs, more); });
  }

  Arguments texts(const std::string& key = "text") const {
    Tokenizer tokenizer = Tokenizer::from_json(dir_ / "tokenizer.json");
    IndexedDataset data(dir_ / ("out_" + key + "_document"), tokenizer.vocab_size());
    Arguments found;
    for (int64_t i = 0; i < data.num_sequences(); ++i) {
      std::vector<int64_t> tokens(static_cast<size_t>(data.lengths()[i]));
      data.get(i, 0, tokens);
      found.push_back(tokenizer.decode({tokens.begin(), tokens.end()}, Tokenizer::Special::kKeep));
    }
    return found;
  }

  Directory dir_;
  AloneControl alone_;
};

TEST_F(Prepare, KeepsTheOrderOfTheInput) {
  Arguments wanted;
  std::string lines;
  for (int i = 0; i < 20000; ++i) {
    wanted.push_back(concat("cat ", i));
    lines += "{\"id\": 1, \"text\": \"" + wanted.back() + "\"}\n";
  }
  for (const char* workers : {"1", "5"}) {
    PrepareResult result = prepare({dir_.put("a.jsonl", lines)}, {"--workers", workers});
    EXPECT_EQ(texts(), wanted);
    EXPECT_EQ(result.documents, 20000);
    EXPECT_EQ(result.datasets[0].documents, 20000);
  }
}

TEST_F(Prepare, AppendsEndsOfDocuments) {
  prepare({dir_.put("a.jsonl", "{\"text\": \"cat\"}\n{\"text\": \"hat\"}")}, {"--append-eod"});
  EXPECT_THAT(texts(), ElementsAre("cat<|endoftext|>", "hat<|endoftext|>"));
}

TEST_F(Prepare, DropsEmptyDocuments) {
  std::string lines = "{\"text\": \"\"}\n\n  \n{\"text\": \"hat\"}\n{\"text\": \" \"}\n";
  EXPECT_EQ(prepare({dir_.put("a.jsonl", lines), dir_.put("b.txt", "")}).empty, 1);
  EXPECT_THAT(texts(), ElementsAre("hat", " "));
  lines = R"({"q": "e", "chosen": "", "rejected": "a"})";
  lines += "\n{\"q\": \"f\", \"chosen\": \"the\", \"rejected\": \"c\"}";
  prepare({dir_.put("pairs", lines)}, {"--jsonl-keys", "q", "chosen", "rejected"});
  EXPECT_THAT(texts("rejected"), ElementsAre("c"));
}

TEST_F(Prepare, WritesADatasetForEachKey) {
  std::string lines = "{\"title\": \"A\", \"text\": \"a\"}\n{\"text\": \"b\", \"title\": \"\"}\n";
  prepare({dir_.put("all", lines)}, {"--json_keys", "title", "text"});
  EXPECT_THAT(texts("title"), ElementsAre("A"));
  EXPECT_THAT(texts("text"), ElementsAre("a", "b"));
}

// As GPT-NeoX's preprocess_data_with_mask.py: both are int32, and the label of what is not learnt
// is -100.
TEST_F(Prepare, WritesLabelsBesideTheTokens) {
  Tokenizer tokenizer = Tokenizer::from_json(dir_ / "tokenizer.json");
  std::vector<int32_t> tokens = tokenizer.encode("the cat"), labels = tokens;
  labels[0] = -100;
  std::vector<int32_t> other = tokenizer.encode("hat");
  prepare({dir_.put("a.jsonl", "{\"text\": \"the cat\"}\n{\"text\": \"\"}\n{\"text\": \"hat\"}")},
          {"--mask-before-token", std::to_string(tokens[0])});
  auto bytes = [&](std::vector<int32_t> ids) {
    ids.insert(ids.end(), other.begin(), other.end());
    return std::string(reinterpret_cast<const char*>(ids.data()), 4 * ids.size());
  };
  EXPECT_EQ(read_file(dir_ / "out_text_document.bin"), bytes(tokens));
  EXPECT_EQ(read_file(dir_ / "out_label_document.bin"), bytes(labels));
  EXPECT_EQ(read_file(dir_ / "out_label_document.idx"), read_file(dir_ / "out_text_document.idx"));
}

TEST_F(Prepare, ReadsTextFilesAsDocuments) {
  dir_.put("corpus/b.txt", "second\n\nparagraph\n");
  dir_.put("corpus/a", "first\r\n");
  dir_.put("corpus/c/d.md", "{third}");
  dir_.put("corpus/c/e.dat", std::string("\0binary", 7));
  dir_.put("corpus/.hidden", "x");
  for (std::string to : {"a", "."}) fs::create_symlink(to, dir_ / ("corpus/to_" + to));
  prepare({dir_ / "corpus"});
  EXPECT_THAT(texts(), ElementsAre("first\r\n", "second\n\nparagraph\n", "{third}"));
}

TEST_F(Prepare, PartsTextAtLinesThatEqualTheSeparator) {
  prepare({dir_.put("f", "%\none\n50 %\n%\r\n \n%\ntwo\nlines\n%\nlast")}, {"--split-on", "%"});
  EXPECT_THAT(texts(), ElementsAre("one\n50 %\n", "two\nlines\n", "last"));
}

TEST_F(Prepare, PartsTextAcrossBlocks) {
  Arguments wanted;
  std::string text;
  for (int i = 0; i < 40000; ++i) {
    wanted.push_back(concat(i, std::string(static_cast<size_t>(i % 37), 'a'), "\n"));
    text += wanted.back() + "%\n";
  }
  EXPECT_GT(text.size(), 3 * BlockReader::kBlockBytes);
  prepare({dir_.put("f", text)}, {"--split-on", "%", "--workers", "3"});
  EXPECT_EQ(texts(), wanted);
}

TEST_F(Prepare, TakesListsOfFiles) {
  std::string a = dir_.put("a.txt", "a"), b = dir_.put("b,c.txt", "b");
  prepare({a + ", " + a, b});
  EXPECT_THAT(texts(), ElementsAre("a", "a", "b"));
}

TEST_F(Prepare, StopsAfterMaxDocuments) {
  std::string lines = "{\"text\": \"\"}\n{\"text\": \"1\"}\n{\"text\": \"2\"}\nnot read\n";
  EXPECT_EQ(prepare({dir_.put("a.jsonl", lines)}, {"--max-documents=2"}).documents, 2);
  EXPECT_THAT(texts(), ElementsAre("1", "2"));
}

TEST_F(Prepare, ReadsJsonAsPythonDoes) {
  std::string lines =
      "\xEF\xBB\xBF{\"text\": \"first\", \"text\": \"last\"}\n"
      "{\"text\": \"\\ud83d\\ude00 \\ud83d \\\\ud83d \\ude00\", \"x\": NaN, \"y\": [-Infinity]}\r\n"
      "{\"text\": \"a\xff\xe2\x82z\"}\n"
      "{\"text\": \"\\u0000\\n\\\"NaN\\/\"}";
  PrepareResult result = prepare({dir_.put("a.jsonl", lines)});
  EXPECT_THAT(texts(),
              ElementsAre("last", "😀 ? \\ud83d ?", "a\uFFFD\uFFFDz", std::string("\0\n\"NaN/", 7)));
  EXPECT_EQ(result.repaired, 2);
}

TEST_F(Prepare, NamesTheBadLine) {
  auto message = [&](const std::string& line) {
    return refusal({dir_.put("a.jsonl", "{\"text\": \"cat\"}\n\n" + line + "\n")});
  };
  std::string here = "74: " + (dir_ / "a.jsonl") + ":3: ";
  EXPECT_THAT(message("{\"text\": \"cat}"),
              AllOf(StartsWith(here + "not valid JSON: column"), HasSubstr("--skip-bad-lines")));
  EXPECT_THAT(message("{\"text\": \"\\ud83d\", \"x\": nan}"), StartsWith(here + "not valid JSON"));
  EXPECT_THAT(message("{\"title\": \"cat\", \"id\": 1}"),
              StartsWith(here + "no key 'text'; the object has 'id', 'title'"));
  EXPECT_THAT(message("{\"text\": [\"cat\", 1]}"),
              StartsWith(here + "the value of 'text' is a list of other things than strings"));
  EXPECT_THAT(message("\"cat\""), StartsWith(here + "a JSON string, not an object"));
  EXPECT_THAT(dir_.list(), ElementsAre("a.jsonl", "tokenizer.json"));
}

TEST_F(Prepare, NamesTheFirstBadLineWithManyWorkers) {
  std::string lines;
  for (int i = 1; i <= 60000; ++i)
    lines += i % 20001 == 0 ? "bad\n" : "{\"text\": \"the cat and the hat\"}\n";
  EXPECT_THAT(refusal({dir_.put("a.jsonl", lines)}, {"--workers", "4"}),
              HasSubstr("a.jsonl:20001: "));
}

TEST_F(Prepare, SkipsAndCountsBadLines) {
  std::string lines = "bad\n{\"text\": \"cat\"}\n{\"text\": 1}\n{}\n{\"text\": \"hat\"}\n";
  PrepareResult result = prepare({dir_.put("a.jsonl", lines)}, {"--skip-bad-lines"});
  EXPECT_THAT(texts(), ElementsAre("cat", "hat"));
  EXPECT_EQ(result.skipped, 3);
}

TEST_F(Prepare, NamesInputThatCannotBeRead) {
  EXPECT_THAT(refusal({dir_ / "none"}),
              AllOf(StartsWith("74: no input "), HasSubstr(dir_ / "none")));
  EXPECT_THAT(refusal({dir_.put("a.bin", std::string("\0", 1))}), HasSubstr("is not text"));
  EXPECT_THAT(refusal({dir_.put("empty.txt", "")}), HasSubstr("no document with text"));
  dir_.put("dir/.hidden", "cat");
  EXPECT_THAT(refusal({dir_ / "dir"}), HasSubstr("no file is there"));
}

TEST_F(Prepare, SaysWhatTokenizerItExpects) {
  dir_.put("tokenizer.json", "cat");
  EXPECT_THAT(refusal({dir_.put("a.txt", "cat")}),
              HasSubstr("SPMTokenizer or Llama2Tokenizer a tokenizer.model of SentencePiece"));
}

TEST_F(Prepare, NamesOutputThatCannotBeWritten) {
  std::string input = dir_.put("a.txt", "cat");
  PrepareOptions options = options_of(
      {"--input", input, "--output-prefix", input + "/x", "--vocab-file", dir_ / "tokenizer.json"});
  EXPECT_THAT(error_of([&] { prepare_data(options, alone_); }),
              StartsWith("74: cannot make the directory " + input));
}

TEST_F(Prepare, TrainsATokenizerOnTheInput) {
  std::string input = dir_.put("a.txt", "the cat and the hat and the cat");
  fs::remove(dir_ / "tokenizer.json");
  EXPECT_EQ(prepare({input}, {"--train-tokenizer", "262"}).vocab, 262);
  EXPECT_THAT(texts(), ElementsAre("the cat and the hat and the cat"));
  EXPECT_THAT(refusal({input}, {"--train-tokenizer", "262"}),
              AllOf(StartsWith("64: "), HasSubstr("--overwrite-tokenizer")));
  prepare({input}, {"--train-tokenizer", "264", "--overwrite-tokenizer"});
  EXPECT_THAT(refusal({input}, {"--train-tokenizer", "10", "--overwrite-tokenizer"}),
              StartsWith("64: "));
}

TEST_F(Prepare, TrainsGpt2Files) {
  std::string input = dir_.put("a.txt", "the cat and the hat and the cat");
  prepare_data(options_of({"--input", input, "--output-prefix", dir_ / "x/y", "--vocab",
                           dir_ / "t/vocab.json", "--merge-file", dir_ / "t/merges.txt",
                           "--train-tokenizer", "260", "--append-eod"}),
               alone_);
  EXPECT_GT(IndexedDataset(dir_ / "x/y_text_document").num_tokens(), 5);
  Tokenizer gpt2 = Tokenizer::from_gpt2(dir_ / "t/vocab.json", dir_ / "t/merges.txt");
  Tokenizer json = Tokenizer::from_json(dir_ / "t/tokenizer.json");
  EXPECT_EQ(gpt2.encode("the hat"), json.encode("the hat"));
  EXPECT_EQ(gpt2.end_of_document(), 0);
  EXPECT_EQ(json.vocab_size(), 260);
}

TEST_F(Prepare, WantsATokenForEndsOfDocuments) {
  TrainedBpe trained = train_bpe({.vocab_size = 256, .special_tokens = {}}, each({}));
  write_tokenizer_json(dir_ / "tokenizer.json", trained);
  EXPECT_THAT(refusal({dir_.put("a.txt", "cat")}, {"--append-eod"}),
              AllOf(StartsWith("64: "), HasSubstr("no token <|endoftext|>")));
}

TEST_F(Prepare, SummaryHasTheLinesOfTheConfiguration) {
  PrepareOptions options = options_of({"--input", dir_.put("a.txt", "cat"), "--output-prefix",
                                       dir_ / "a #1", "--vocab-file", dir_ / "tokenizer.json"});
  std::string text = summary(options, prepare_data(options, alone_));
  EXPECT_THAT(text, HasSubstr("data_path: \"" + (dir_ / "a #1_text_document") + "\"\n"));
  EXPECT_THAT(text, HasSubstr("vocab_file: " + (dir_ / "tokenizer.json")));
}

TEST(PrepareOptions, TakesBothToolsSpellings) {
  PrepareOptions options = options_of({"--input=a,b", "--output_prefix", "p", "--json_keys", "x",
                                       "y", "--vocab", "v_1.json", "--merge_file=m", "--append_eod",
                                       "--tokenizer_type", "GPT2BPETokenizer", "--dataset_impl",
                                       "mmap", "--workers=3", "--log_interval", "5"});
  EXPECT_THAT(options.inputs, ElementsAre("a,b"));
  EXPECT_THAT(options.rules.keys, ElementsAre("x", "y"));
  EXPECT_EQ(options.tokenizer.vocab, "v_1.json");
  EXPECT_TRUE(options.tokenizer.gpt2());
  EXPECT_EQ(options.workers, 3);
}

TEST(PrepareOptions, NamesWhatIsMissingOrRefused) {
  auto refusal = [](Arguments more) {
    for (const char* argument : {"--input", "a", "--output-prefix", "p", "--vocab-file", "v"})
      more.push_back(argument);
    return error_of([&] { options_of(more); });
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({"--tokenizer-type", "HuggingFaceTokenizer", "--performance-dir", "d"}), "");
  const std::pair<Arguments, const char*> kCases[] = {
      {{"--ftfy"}, "--ftfy is not supported: its rules live in a Python library"},
      {{"--dataset-impl", "lazy"}, "TNTIDX"},
      {{"--tokenizer-type", "TikTokenizer"}, "TikTokenizer is not supported"},
      {{"--vocab-extra-ids", "100"}, "--vocab-extra-ids is not supported: it is of T5"},
      {{"--tokenizer-type", "SPMTokenizer", "--merge-file", "m"}, "--merge-file has no use"},
      {{"--tokenizer-type", "Spm"}, "Spm is unknown"},
      {{"--tokenizer-type", "GPT2BPETokenizer"}, "--merge-file is missing"},
      {{"--tokenizer-type", "HFTokenizer", "--merge-file", "m"}, "--merge-file has no use"},
      {{"--workers", "0"}, "--workers 0"},
      {{"--jsonl-keys", "a", "a"}, "names a key twice"},
      {{"--worker", "2"}, "did you mean --workers?"},
  };
  for (const auto& [more, wanted] : kCases)
    EXPECT_THAT(refusal(more), AllOf(StartsWith("64: "), HasSubstr(wanted)));
  EXPECT_THAT(error_of([] {
                options_of({"--output-prefix", "p"});
              }),
              HasSubstr("--input is missing"));
  EXPECT_THAT(error_of([] {
                options_of({"--input", "a", "--output-prefix", "p/"});
              }),
              HasSubstr("ends in a slash"));
}

TEST(OrderedPipeline, KeepsTheOrderAndRethrowsInOrder) {
  for (int bad : {-1, 0, 40, 99}) {
    int next = 0;
    std::vector<int> written;
    OrderedPipeline<int, int> pipeline(
        {.read = [&]() { return next < 100 ? std::optional(next++) : std::nullopt; },
         .size = [](const int&) { return 1; },
         .work =
             [&](const int& i, int& r) {
               if (i >= bad && bad >= 0) fail(Exit::kIo, "item ", i);
               std::this_thread::sleep_for(std::chrono::microseconds(i * 37 % 101));
               r = -i;
             },
         .write = [&](const int& i, const int& r) { return written.push_back(i + r + i), true; }},
        4, 7);
    EXPECT_EQ(error_of([&] { pipeline.run(); }), bad < 0 ? "" : concat("74: item ", bad));
    EXPECT_EQ(written.size(), bad < 0 ? 100u : static_cast<size_t>(bad));
    for (size_t i = 0; i < written.size(); ++i) EXPECT_EQ(written[i], static_cast<int>(i));
  }
}

TEST(OrderedPipeline, EndsWhereTheReaderOrTheWriterDoes) {
  auto run = [](int fail_at, int enough) {
    int next = 0, written = 0;
    OrderedPipeline<int, int> pipeline(
        {.read = [&]() -> std::optional<int> {
           if (next == fail_at) fail(Exit::kIo, "disk");
           return next++;
         },
         .size = [](const int&) { return 5; },
         .work = [](const int& i, int& r) { r = i; },
         .write = [&](const int&, const int&) { return ++written < enough; }},
        3, 1);
    std::string error = error_of([&] { pipeline.run(); });
    return concat(written, " ", error);
  };
  EXPECT_EQ(run(10, 100), "10 74: disk");
  EXPECT_EQ(run(100, 10), "10 ");
}

// The writer once waited forever where a worker took the end after the writer had looked.
TEST(OrderedPipeline, EndsHoweverItsThreadsInterleave) {
  for (int i = 0; i < 1000; ++i) {
    int next = 0, written = 0;
    OrderedPipeline<int, int> pipeline(
        {.read = [&] { return next < i % 4 ? std::optional(next++) : std::nullopt; },
         .size = [](const int&) { return 1; },
         .work = [](const int& item, int& result) { result = item; },
         .write = [&](const int&, const int&) { return ++written, true; }},
        2, 2);
    pipeline.run();
    EXPECT_EQ(written, i % 4);
  }
}

struct Ended {
  int code;
  std::string output;
};

Ended run(const std::string& arguments) {
  FILE* pipe =
      ::popen((NEOX_BUILD_DIR "/bin/neox-prepare-data " + arguments + " 2>&1").c_str(), "r");
  std::string output;
  for (int c; (c = std::fgetc(pipe)) != EOF;) output += static_cast<char>(c);
  int status = ::pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

TEST_F(Prepare, ProgramEndsWithTheDocumentedCodes) {
  std::string input = " --input " + dir_.put("a.txt", "cat");
  std::string rest =
      " --output-prefix " + (dir_ / "o") + " --vocab-file " + (dir_ / "tokenizer.json");
  EXPECT_THAT(run(input + rest).output, HasSubstr("data_path: "));
  EXPECT_EQ(run(input + rest).code, 0);
  EXPECT_EQ(run("--help").code, 0);
  EXPECT_EQ(run(rest).code, 64);
  EXPECT_EQ(run(input + "x" + rest).code, 74);
  EXPECT_THAT(run(input + "x" + rest).output,
              HasSubstr("neox-prepare-data: no input " + (dir_ / "a.txtx")));
}

}  // namespace
}  // namespace neox
