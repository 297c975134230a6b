// The table of corpora, the options that choose from it, and which of its addresses answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/text.h"
#include "corpus_program.h"
#include "data_files.h"
#include "http_server.h"

namespace neox {
namespace {

using ::testing::AllOf;
using testing::Arguments;
using testing::Directory;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::HttpServer;
using testing::kRegistry;
using ::testing::Not;
using testing::program_of;

TEST(CorpusOptions, TakesTheFlagsOfPrepareData) {
  Program program = program_of({"enwik8", "-t", "GPT2BPETokenizer", "--data_dir", "D", "-m",
                                "m.txt", "-f", "--corpora", kRegistry});
  CorpusOptions corpus = read_corpus_options(program, "");
  EXPECT_EQ(corpus.data_path, "D");
  EXPECT_EQ(corpus.download.existing, DownloadOptions::Existing::kReplace);
  PrepareOptions options = read_prepare_options(program, corpus_defaults(corpus));
  EXPECT_EQ(options.tokenizer.vocab, "D/gpt2-vocab.json");
  EXPECT_EQ(options.tokenizer.merges, "m.txt");
  EXPECT_EQ(options.output_prefix, "D/enwik8/enwik8");
  EXPECT_THAT(options.inputs, ElementsAre("D/enwik8/enwik8.zip"));
  Program plain = program_of({"enwik8", "--corpora", kRegistry});
  EXPECT_EQ(read_corpus_options(plain, "E").data_path, "E");
}

TEST(CorpusOptions, NamesWhatDoesNotGoTogether) {
  auto refusal = [](Arguments arguments) {
    arguments.insert(arguments.end(), {"--corpora", kRegistry});
    return error_of([&] { read_corpus_options(program_of(arguments), ""); });
  };
  EXPECT_THAT(refusal({"enwik8", "--input", "a"}), HasSubstr("leave one out"));
  EXPECT_THAT(refusal({"--offline"}), HasSubstr("--offline goes with the name of a corpus"));
  EXPECT_THAT(refusal({"data/enwik8"}), HasSubstr("is not the name of a corpus"));
  EXPECT_THAT(refusal({"enwik8", "--mirror", "u", "--local-copy", "p"}), HasSubstr("exclude"));
  for (const char* option : {"--local-copy", "--shards"})
    EXPECT_THAT(refusal({"local", "--input", "a", option, "0"}), HasSubstr("of --input alone"));
  EXPECT_THAT(refusal({"enwik8", "--downloads", "0"}), HasSubstr("is not in 1 .. 64"));
}

class Check : public ::testing::Test {
 protected:
  Check() {
    for (const char* name : {"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"})
      ::unsetenv(name);
  }
  CorpusCheck run(Arguments arguments) const {
    arguments.insert(arguments.end(), {"--corpora", dir_ / "corpora.yml"});
    return check_corpora(program_of(arguments), 1);
  }

  Directory dir_;
};

TEST_F(Check, TellsWhichAddressesAnswer) {
  HttpServer server({.files = {{"/0.jsonl", "{}"}, {"/2.jsonl", "{}"}}}), none({.files = {}});
  dir_.put("corpora.yml", concat("corpora:\n- name: cats\n  urls: ['", none.url("/{0..2}.jsonl"),
                                 "', '", server.url("/{0..2}.jsonl"), "']\n- name: dogs\n  urls: ",
                                 none.url("/d"), "\n  dead: gone\n- name: local\n"));
  CorpusCheck all = run({"--check"});
  EXPECT_EQ(all.exit, Exit::kIo);
  EXPECT_THAT(all.text, AllOf(HasSubstr("cats: answers\n"), HasSubstr("dogs: NO ANSWER\n"),
                              HasSubstr("  no   " + none.url("/0.jsonl: HTTP status 404")),
                              HasSubstr("  yes  " + server.url("/2.jsonl: HTTP status 206")),
                              HasSubstr("  gone\n"), Not(HasSubstr("local"))));
  EXPECT_EQ(run({"cats", "--check"}).exit, Exit::kDone);
  EXPECT_EQ(run({"--check", "cats", "dogs"}).exit, Exit::kIo);
  EXPECT_THAT(run({"--check", "dogs"}).text, Not(HasSubstr("cats")));
}

TEST_F(Check, IsSoonDoneWithoutAnswers) {
  HttpServer silent({.files = {}, .silent = true});
  std::string text = "corpora:\n";
  for (int i = 0; i < 8; ++i) text += concat("- name: c", i, "\n  urls: ", silent.url("/x"), "\n");
  dir_.put("corpora.yml", text + "- name: none\n  urls: http://none.invalid/x\n");
  auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(run({"--check"}).exit, Exit::kIo);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
}

TEST(Registry, OfTheProjectHasTheCorporaOfGptNeox) {
  Registry registry = read_registry(kRegistry);
  for (const char* name : {"enwik8",
                           "enron",
                           "pile",
                           "pile_subset",
                           "c4",
                           "c4_openwebtext",
                           "openwebtext2",
                           "github",
                           "arxiv",
                           "europarl",
                           "freelaw",
                           "nih",
                           "pubmed",
                           "books1",
                           "books3",
                           "hackernews",
                           "stackexchange",
                           "ubuntu_irc",
                           "youtube_subtitles",
                           "wikipedia-de",
                           "local"})
    EXPECT_EQ(registry.corpus(name).name, name);
  EXPECT_EQ(files_of(registry.corpus("pile")).size(), 30);
  EXPECT_EQ(files_of(registry.corpus("pile"))[29].name, "29.jsonl.zst");
  EXPECT_EQ(registry.corpus("pile").download_bytes, 457226899655);
  EXPECT_EQ(files_of(registry.corpus("c4")).size(), 1024);
  EXPECT_EQ(files_of(registry.corpus("c4"))[7].name, "c4-train.00007-of-01024.json.gz");
  EXPECT_EQ(files_of(registry.corpus("c4_openwebtext")).size(), 512);
  EXPECT_NE(registry.tokenizer("gpt2-vocab.json"), nullptr);
}

TEST(Registry, NamesTheNearest) {
  Registry registry = read_registry(kRegistry);
  EXPECT_THAT(error_of([&] { registry.corpus("enwik"); }),
              HasSubstr("64: there is no corpus enwik; did you mean enwik8?"));
  EXPECT_THAT(error_of([&] { registry.corpus("wikipedia-"); }), HasSubstr("say which language"));
  EXPECT_THAT(error_of([&] { registry.corpus("wikipedia-../x"); }), HasSubstr("no corpus"));
  EXPECT_THAT(registry.corpus("wikipedia-zh-min-nan").urls[0],
              HasSubstr("/zh_min_nanwiki/latest/zh_min_nanwiki-latest-"));
}

TEST(Registry, IsATableOfAHundredColumns) {
  std::string text = table(read_registry(kRegistry));
  for (const std::string& line : split(text, '\n')) EXPECT_LE(line.size(), 100) << line;
  EXPECT_THAT(text, AllOf(HasSubstr(" English    36.4 MB   100 MB       -  GFDL\n"),
                          HasSubstr("books3 *"), HasSubstr("disputed")));
}

TEST(Registry, CountsFiles) {
  EXPECT_THAT(expand("a{08..10}b"), ElementsAre("a08b", "a09b", "a10b"));
  EXPECT_THAT(expand("{x}a{9..10}"), ElementsAre("{x}a9", "{x}a10"));
  EXPECT_THAT(expand("a..b"), ElementsAre("a..b"));
  for (const char* wrong : {"{3..1}", "{a..b}", "{0..99999999}", "{..}"})
    EXPECT_THAT(error_of([&] { expand(wrong); }), HasSubstr("must be two numbers")) << wrong;
  EXPECT_THAT(parse_shards("7,0-2,1", 8), ElementsAre(0, 1, 2, 7));
  EXPECT_THAT(parse_shards("", 2), ElementsAre(0, 1));
  for (const char* wrong : {"8", "2-1", "x", "1,", "-1"})
    EXPECT_THAT(error_of([&] { parse_shards(wrong, 8); }), HasSubstr("files 0 .. 7")) << wrong;
}

TEST(Registry, TakesAddressesAndSumsAsTheyAreCopied) {
  Directory dir;
  std::string sum(64, 'A');
  Registry table = read_registry(dir.put(
      "c.yml", concat("corpora:\n  - name: a\n    urls: ['http://x/t.xml?download=true#top']\n",
                      "    sha256: ", sum, "\n")));
  RegistryFile file = files_of(table.corpus("a")).at(0);
  EXPECT_EQ(file.name, "t.xml");
  EXPECT_EQ(file.remote.urls.at(0), "http://x/t.xml?download=true#top");
  EXPECT_EQ(file.remote.sha256, std::string(64, 'a'));
}

TEST(Registry, NamesTheLineOfAMistake) {
  Directory dir;
  auto refusal = [&](const std::string& text) {
    return error_of([&] { read_registry(dir.put("c.yml", text)); });
  };
  EXPECT_THAT(refusal("corpora:\n  - name: a\n    urls: [http://x/a]\n    byte: 3\n"),
              AllOf(HasSubstr("c.yml:4: unknown key byte; did you mean bytes?")));
  EXPECT_THAT(refusal("corpora:\n  - name: a\n    urls: ftp://x/a\n"), HasSubstr("no address"));
  EXPECT_THAT(refusal("corpora:\n  - name: a\n    urls: ['http://x/{0..3}', 'http://y/{0..2}']\n"),
              HasSubstr("c.yml:2: http://y/{0..2} stands for 3 files"));
  EXPECT_THAT(refusal("corpora:\n  - name: a\n    urls: 'http://x/{0..3}'\n    bytes: [1, 2]\n"),
              HasSubstr("bytes of 2 files are given, and there are 4"));
  EXPECT_THAT(refusal("corpora:\n  - name: a\n  - name: a\n"), HasSubstr("two corpora a"));
  EXPECT_THAT(refusal("tokenizers:\n  - name: a\n"), HasSubstr("the urls of one file"));
  EXPECT_THAT(refusal("corpora:\n  - urls: [http://x/a]\n    sha256: 12\n    name: a\n"),
              HasSubstr("64 hexadecimal"));
}

}  // namespace
}  // namespace neox
