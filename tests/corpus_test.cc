// A corpus by its name, from a server of our own to the dataset.
#include "corpus/corpus.h"

#include <archive.h>
#include <archive_entry.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/thread.h"
#include "corpus/sha256.h"
#include "data_files.h"
#include "http_server.h"
#include "prepare/prepare.h"
#include "tokenizer/bpe_trainer.h"

namespace neox {
namespace {

using ::testing::AllOf;
using testing::Directory;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::HttpServer;
using ::testing::SizeIs;
using Arguments = std::vector<std::string>;

Program program_of(const Arguments& arguments) {
  Program program = prepare_program();
  add_corpus_options(program);
  check(program.parse(canonical_arguments(arguments)), "help was asked");
  return program;
}

// A zip of one member, as enwik8.zip is.
std::string zip_of(const Directory& dir, const std::string& member, const std::string& text) {
  std::string path = dir / "made.zip";
  archive* out = archive_write_new();
  archive_write_set_format_zip(out);
  check(archive_write_open_filename(out, path.c_str()) == ARCHIVE_OK, "archive ", path);
  archive_entry* entry = archive_entry_new();
  archive_entry_set_pathname(entry, member.c_str());
  archive_entry_set_filetype(entry, AE_IFREG);
  archive_entry_set_size(entry, static_cast<la_int64_t>(text.size()));
  archive_write_header(out, entry);
  archive_write_data(out, text.data(), text.size());
  archive_entry_free(entry);
  archive_write_free(out);
  return read_file(path);
}

class Corpus : public ::testing::Test {
 protected:
  Corpus() {
    for (const char* name : {"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"})
      ::unsetenv(name);
    for (int i = 0; i < 400; ++i)
      text_ += concat("<page> the cat ", i, "\nand the hat\n\n</page>\n");
    bool more = true;
    write_tokenizer_json(dir_ / "made.json", train_bpe({.vocab_size = 280}, [&](std::string& text) {
                           text = text_;
                           return std::exchange(more, false);
                         }));
    served_.files = {{"/enwik8.zip", zip_of(dir_, "enwik8", text_)},
                     {"/20B_tokenizer.json", read_file(dir_ / "made.json")}};
    dir_.put("corpora.yml", registry(served_.files));
  }

  std::string registry(const std::map<std::string, std::string>& files) const {
    const std::string& zip = files.at("/enwik8.zip");
    const std::string& json = files.at("/20B_tokenizer.json");
    return concat(
        "corpora:\n  - name: enwik8\n    urls: ['http://192.0.2.1/enwik8.zip']\n    bytes: ",
        zip.size(), "\n    sha256: ", sha256_of_file(dir_.put("sum", zip)),
        "\n    unpack: [enwik8]\n    text_bytes: ", text_.size(),
        "\ntokenizers:\n  - name: 20B_tokenizer.json\n    urls: [http://192.0.2.1/t]\n    sha256: ",
        sha256_of_file(dir_.put("sum", json)), "\n");
  }

  // What the program does, by several ranks.
  void prepare(const Arguments& more, int ranks = 1) {
    Arguments arguments = {"enwik8", "-d", dir_ / "data", "--corpora", dir_ / "corpora.yml"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    run_thread_ranks(ranks, [&](Communicator&, Control& control) {
      Program program = program_of(arguments);
      CorpusOptions corpus = read_corpus_options(program, "");
      corpus.download.connect_seconds = 1;
      PrepareOptions options = read_prepare_options(program, corpus_defaults(corpus));
      options.life = "1";
      fetch_corpus(corpus, options, control);
      if (corpus.until == CorpusOptions::Until::kPrepared) prepare_data(options, control);
    });
  }
  std::string refusal(const Arguments& more, int ranks = 1) {
    return error_of([&] { prepare(more, ranks); });
  }

  Directory dir_;
  std::string text_;
  testing::Served served_;
};

TEST_F(Corpus, BecomesOneDocumentWithItsEnd) {
  HttpServer server(served_);
  prepare({"--mirror", server.url()});
  Tokenizer tokenizer = Tokenizer::from_json(dir_ / "data/20B_tokenizer.json");
  IndexedDataset data(dir_ / "data/enwik8/enwik8_text_document", tokenizer.vocab_size());
  ASSERT_EQ(data.num_sequences(), 1);
  std::vector<int64_t> tokens(static_cast<size_t>(data.num_tokens()));
  data.get(0, 0, tokens);
  std::vector<int32_t> ids(tokens.begin(), tokens.end());
  EXPECT_EQ(ids.back(), tokenizer.end_of_document());
  EXPECT_EQ(tokenizer.decode(ids), text_);
}

TEST_F(Corpus, IsFoundWithoutAConnection) {
  {
    HttpServer server(served_);
    prepare({"--mirror", server.url()});
    EXPECT_THAT(server.requests(), SizeIs(2));
    prepare({"--mirror", server.url()});
    EXPECT_THAT(server.requests(), SizeIs(2));
    prepare({"--mirror", server.url(), "-f"});
    EXPECT_THAT(server.requests(), SizeIs(3));
  }
  prepare({"--offline"});
}

TEST_F(Corpus, IsFetchedOnTheLoginNodeAndPreparedByManyRanks) {
  HttpServer server(served_);
  prepare({"--mirror", server.url(), "--download-only"});
  EXPECT_FALSE(fs::exists(dir_ / "data/enwik8/text"));
  prepare({"--offline"}, 3);
  std::string bin = read_file(dir_ / "data/enwik8/enwik8_text_document.bin");
  prepare({"--offline"});
  EXPECT_TRUE(read_file(dir_ / "data/enwik8/enwik8_text_document.bin") == bin);
}

TEST_F(Corpus, WithoutARouteTellsTheCommandForTheLoginNode) {
  dir_.put("data/20B_tokenizer.json", served_.files["/20B_tokenizer.json"]);
  for (int ranks : {1, 3})
    EXPECT_THAT(refusal({}, ranks),
                AllOf(HasSubstr("http://192.0.2.1/enwik8.zip"),
                      HasSubstr("neox-prepare-data enwik8 --data-path " + (dir_ / "data")),
                      HasSubstr("--download-only")));
}

TEST_F(Corpus, TakesALocalCopy) {
  dir_.put("copy/enwik8.zip", served_.files["/enwik8.zip"]);
  dir_.put("copy/20B_tokenizer.json", served_.files["/20B_tokenizer.json"]);
  prepare({"--local-copy", dir_ / "copy", "--offline"});
  EXPECT_TRUE(fs::exists(dir_ / "data/enwik8/enwik8_text_document.idx"));
  dir_.put("copy/enwik8.zip", "other");
  fs::remove_all(dir_ / "data/enwik8");
  EXPECT_THAT(refusal({"--local-copy", dir_ / "copy"}), HasSubstr("and should have"));
  EXPECT_THAT(refusal({"--local-copy", dir_ / "none"}), HasSubstr("no such file"));
}

TEST_F(Corpus, NamesATokenizerThatIsNotThere) {
  EXPECT_THAT(refusal({"--offline", "-v", dir_ / "mine.json"}),
              HasSubstr("there is no tokenizer " + (dir_ / "mine.json")));
}

TEST(CorpusOptions, TakesTheFlagsOfPrepareData) {
  Program program =
      program_of({"enwik8", "-t", "GPT2BPETokenizer", "--data_dir", "D", "-m", "m.txt", "-f"});
  CorpusOptions corpus = read_corpus_options(program, "");
  corpus.registry = NEOX_SOURCE_DIR "/configs/corpora.yml";
  EXPECT_EQ(corpus.data_path, "D");
  EXPECT_EQ(corpus.download.existing, DownloadOptions::Existing::kReplace);
  PrepareOptions options = read_prepare_options(program, corpus_defaults(corpus));
  EXPECT_EQ(options.tokenizer.vocab, "D/gpt2-vocab.json");
  EXPECT_EQ(options.tokenizer.merges, "m.txt");
  EXPECT_EQ(options.output_prefix, "D/enwik8/enwik8");
  EXPECT_THAT(options.inputs, ElementsAre("D/enwik8/text"));
  EXPECT_EQ(read_corpus_options(program_of({"enwik8"}), "E").data_path, "E");
}

TEST(CorpusOptions, NamesWhatDoesNotGoTogether) {
  auto refusal = [](const Arguments& arguments) {
    return error_of([&] { read_corpus_options(program_of(arguments), ""); });
  };
  EXPECT_THAT(refusal({"enwik8", "--input", "a"}), HasSubstr("leave one out"));
  EXPECT_THAT(refusal({"--offline"}), HasSubstr("--offline goes with the name of a corpus"));
  EXPECT_THAT(refusal({"data/enwik8"}), HasSubstr("is not the name of a corpus"));
  EXPECT_THAT(refusal({"enwik8", "--mirror", "u", "--local-copy", "p"}), HasSubstr("exclude"));
}

TEST(Registry, OfTheProjectCanBeReadAndNamesTheNearest) {
  Registry registry = read_registry(NEOX_SOURCE_DIR "/configs/corpora.yml");
  EXPECT_EQ(registry.corpus("enwik8").file.bytes, 36445475);
  EXPECT_THAT(registry.corpus("enwik8").members, ElementsAre("enwik8"));
  EXPECT_EQ(registry.tokenizer("gpt2-vocab.json").file_name, "gpt2-vocab.json");
  EXPECT_THAT(error_of([&] { registry.corpus("enwik"); }),
              AllOf(HasSubstr("64: there is no corpus enwik; did you mean enwik8?")));
  EXPECT_THAT(table(registry), HasSubstr("enwik8  36.4 MB"));
}

TEST(Registry, NamesTheLineOfAMistake) {
  Directory dir;
  auto refusal = [&](const std::string& text) {
    return error_of([&] { read_registry(dir.put("c.yml", text)); });
  };
  EXPECT_THAT(refusal("corpora:\n  - name: a\n    urls: [http://x/a]\n    byte: 3\n"),
              AllOf(HasSubstr("c.yml:4: unknown key byte; did you mean bytes?")));
  EXPECT_THAT(refusal("corpora:\n  - name: a\n"), HasSubstr("a needs urls"));
  EXPECT_THAT(refusal("corpora:\n  - urls: [http://x/a]\n    sha256: 12\n    name: a\n"),
              HasSubstr("64 hexadecimal"));
}

}  // namespace
}  // namespace neox
