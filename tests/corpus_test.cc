// A corpus by its name, from a server of our own to the dataset.
#include "corpus/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "archives.h"
#include "base/text.h"
#include "comm/thread.h"
#include "corpus/sha256.h"
#include "corpus_program.h"
#include "data_files.h"
#include "generated_text.h"
#include "http_server.h"
#include "parquet_files.h"
#include "prepare/prepare.h"

namespace neox {
namespace {

using ::testing::AllOf;
using testing::Arguments;
using testing::Directory;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::HttpServer;
using ::testing::IsEmpty;
using testing::kRegistry;
using ::testing::Not;
using testing::program_of;
using testing::Served;
using ::testing::SizeIs;
using Texts = std::vector<std::string>;

std::string json_lines(const Texts& texts) {
  std::string lines;
  for (const std::string& text : texts) lines += concat("{\"text\": \"", text, "\", \"n\": 1}\n");
  return lines;
}

class Corpus : public ::testing::Test {
 protected:
  Corpus() {
    for (const char* name : {"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"})
      ::unsetenv(name);
    write_tokenizer_json(
        dir_ / "made.json",
        train_bpe({.vocab_size = 280}, each({"the cat and the hat in the house with the mouse"})));
    json_ = read_file(dir_ / "made.json");
    served_.files["/20B_tokenizer.json"] = json_;
    for (int i = 0; i < 3; ++i) served_.files[concat("/", i, ".jsonl")] = json_lines(texts(i));
    put_registry("http://192.0.2.1/{0..2}.jsonl");
  }

  // What the files of the corpus "cats" hold, and those chosen of them.
  static Texts texts(int file) {
    Texts texts;
    for (int i = 0; i < 20; ++i) texts.push_back(concat("the cat ", i, " of ", file));
    return texts;
  }
  static Texts texts(const std::vector<int>& files) {
    Texts all;
    for (int file : files)
      for (const std::string& text : texts(file)) all.push_back(text);
    return all;
  }

  void put_registry(const std::string& urls, const std::string& more = "") const {
    std::string text =
        concat("corpora:\n  - name: cats\n    urls: '", urls, "'\n", more, "    sha256:\n");
    for (int i = 0; i < 3; ++i)
      text += "    - " + sum(served_.files.at(concat("/", i, ".jsonl"))) + "\n";
    text += concat(
        "tokenizers:\n  - name: 20B_tokenizer.json\n    urls: [http://192.0.2.1/t]\n    sha256: ",
        sum(json_), "\n");
    dir_.put("corpora.yml", text);
  }
  std::string sum(const std::string& content) const {
    return sha256_of_file(dir_.put("sum", content));
  }

  // What the program does, by several ranks.
  void prepare(const std::string& name, const Arguments& more, int ranks = 1) {
    Arguments arguments = {name, "-d", dir_ / "data", "--corpora", dir_ / "corpora.yml"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    run_thread_ranks(ranks, [&](Communicator&, Control& control) {
      Program program = program_of(arguments);
      CorpusOptions corpus = read_corpus_options(program, "");
      corpus.download.connect_seconds = 1;
      corpus.download.first_pause_seconds = 0.01;
      PrepareOptions options = read_prepare_options(program, corpus_defaults(corpus));
      options.life = "1";
      fetch_corpus(corpus, options, control);
      if (corpus.until == CorpusOptions::Until::kPrepared) prepare_data(options, control);
    });
  }
  std::string refusal(const Arguments& more, int ranks = 1) {
    return error_of([&] { prepare("cats", more, ranks); });
  }
  void forget() const { fs::remove_all(dir_ / "data/cats"); }

  // The documents of a dataset below data/; each must end with its token.
  Texts documents(const std::string& name) const {
    Tokenizer tokenizer = Tokenizer::from_json(dir_ / "data/20B_tokenizer.json");
    IndexedDataset data(dir_ / "data/" + name + "_text_document", tokenizer.vocab_size());
    Texts texts;
    for (int64_t i = 0; i < data.num_sequences(); ++i) {
      std::vector<int64_t> tokens(static_cast<size_t>(data.lengths()[static_cast<size_t>(i)]));
      data.get(i, 0, tokens);
      EXPECT_EQ(tokens.back(), tokenizer.end_of_document());
      std::vector<int32_t> ids(tokens.begin(), tokens.end() - 1);
      texts.push_back(tokenizer.decode(ids));
    }
    return texts;
  }

  Directory dir_;
  std::string json_;
  Served served_;
};

TEST_F(Corpus, IsTheDocumentsOfItsFilesInTheirOrder) {
  HttpServer server(served_);
  prepare("cats", {"--mirror", server.url()});
  EXPECT_EQ(documents("cats/cats"), texts({0, 1, 2}));
}

TEST_F(Corpus, MayBeSomeOfItsFiles) {
  HttpServer server(served_);
  prepare("cats", {"--mirror", server.url(), "--shards", "0,2"});
  EXPECT_EQ(documents("cats/cats-shards-0+2"), texts({0, 2}));
  EXPECT_FALSE(fs::exists(dir_ / "data/cats/1.jsonl"));
  EXPECT_THAT(refusal({"--shards", "1-3"}), HasSubstr("64: --shards 1-3: 1-3 is not"));
}

TEST_F(Corpus, IsFoundWithoutAConnection) {
  {
    HttpServer server(served_);
    prepare("cats", {"--mirror", server.url()});
    EXPECT_THAT(server.requests(), SizeIs(4));
    prepare("cats", {"--mirror", server.url()});
    EXPECT_THAT(server.requests(), SizeIs(4));
    prepare("cats", {"--mirror", server.url(), "-f"});
    EXPECT_THAT(server.requests(), SizeIs(7));
  }
  prepare("cats", {"--offline"});
  fs::remove(dir_ / "data/cats/1.jsonl");
  EXPECT_THAT(refusal({"--offline"}), HasSubstr("cats/1.jsonl is not there, and --offline"));
}

TEST_F(Corpus, IsFetchedOnTheLoginNodeAndPreparedByManyRanks) {
  HttpServer server(served_);
  prepare("cats", {"--mirror", server.url(), "--download-only"});
  EXPECT_FALSE(fs::exists(dir_ / "data/cats/cats_text_document.bin"));
  prepare("cats", {"--offline"}, 3);
  std::string bin = read_file(dir_ / "data/cats/cats_text_document.bin");
  prepare("cats", {"--offline"});
  EXPECT_TRUE(read_file(dir_ / "data/cats/cats_text_document.bin") == bin);
}

TEST_F(Corpus, WithoutARouteTellsTheCommandForTheLoginNode) {
  dir_.put("data/20B_tokenizer.json", json_);
  for (int ranks : {1, 3})
    EXPECT_THAT(
        refusal({"--shards", "0-1"}, ranks),
        AllOf(HasSubstr("http://192.0.2.1/"),
              HasSubstr("neox-prepare-data cats --data-path " + (dir_ / "data")),
              HasSubstr(" --shards 0-1 "), HasSubstr(" --corpora " + (dir_ / "corpora.yml")),
              HasSubstr("--download-only")));
}

TEST_F(Corpus, OfOnesOwnTellsACommandThatBringsItsTokenizer) {
  std::string table = read_file(dir_ / "corpora.yml");
  dir_.put("corpora.yml", "corpora:\n  - name: local\n" + table.substr(table.find("tokenizers:")));
  std::string input = dir_.put("mine.jsonl", json_lines(texts(7)));
  EXPECT_THAT(
      error_of([&] {
        prepare("local", {"--input", input});
      }),
      AllOf(
          HasSubstr("neox-prepare-data local --data-path " + (dir_ / "data") + " --input " + input),
          HasSubstr("A copy that you have: --vocab-file FILE."), Not(HasSubstr("--local-copy"))));
  HttpServer server(served_);
  prepare("local", {"--input", input, "--mirror", server.url(), "--download-only"});
  EXPECT_TRUE(fs::exists(dir_ / "data/20B_tokenizer.json"));
}

TEST_F(Corpus, WhoseAddressesHaveGoneSaysWhatToDo) {
  HttpServer server({.files = {{"/20B_tokenizer.json", json_}}, .status = 503});
  dir_.put("data/20B_tokenizer.json", json_);
  put_registry(server.url("/{0..2}.jsonl"), "    dead: gone since 2023; take dogs\n");
  EXPECT_THAT(refusal({"--downloads", "1"}),
              AllOf(HasSubstr("HTTP status 503"), HasSubstr("cats: gone since 2023; take dogs"),
                    HasSubstr("--local-copy DIRECTORY"), HasSubstr("--mirror URL"),
                    HasSubstr(dir_ / "data/cats/0.jsonl"), Not(HasSubstr("login"))));
  EXPECT_THAT(server.requests(), SizeIs(1));
}

TEST_F(Corpus, NeedsRoom) {
  put_registry("http://192.0.2.1/{0..2}.jsonl", "    download_bytes: 5000000000000000000\n");
  dir_.put("data/20B_tokenizer.json", json_);
  EXPECT_THAT(refusal({}), AllOf(HasSubstr("free, and cats takes 5.00 EB"),
                                 HasSubstr("a part of it with --shards")));
}

TEST_F(Corpus, TakesALocalCopyWithoutCopyingIt) {
  for (int i = 0; i < 3; ++i)
    dir_.put(concat("copy/cats/", i, ".jsonl"), served_.files[concat("/", i, ".jsonl")]);
  dir_.put("copy/20B_tokenizer.json", json_);
  prepare("cats", {"--local-copy", dir_ / "copy", "--offline"});
  EXPECT_EQ(documents("cats/cats"), texts({0, 1, 2}));
  EXPECT_FALSE(fs::exists(dir_ / "data/cats/0.jsonl"));
  dir_.put("copy/cats/1.jsonl", "other");
  EXPECT_THAT(refusal({"--local-copy", dir_ / "copy"}), HasSubstr("and should have"));
  fs::remove(dir_ / "copy/cats/1.jsonl");
  EXPECT_THAT(refusal({"--local-copy", dir_ / "copy"}), HasSubstr("has no file 1.jsonl"));
  EXPECT_THAT(refusal({"--local-copy", dir_ / "none"}), HasSubstr("no such file"));
  EXPECT_THAT(refusal({"--local-copy", dir_ / "copy/cats/0.jsonl"}), HasSubstr("name the direct"));
}

TEST_F(Corpus, OfOnesOwnIsTheInput) {
  dir_.put("corpora.yml", "corpora:\n  - name: local\n");
  dir_.put("data/20B_tokenizer.json", json_);
  prepare("local", {"--input", dir_.put("mine.jsonl", json_lines(texts(7))), "--offline"});
  EXPECT_EQ(documents("local/local"), texts(7));
  EXPECT_THAT(error_of([&] { prepare("local", {}); }), HasSubstr("name its files with --input"));
}

TEST_F(Corpus, TakesTheKeysOfItsEntry) {
  dir_.put("corpora.yml", "corpora:\n  - name: local\n    keys: body\n");
  dir_.put("data/20B_tokenizer.json", json_);
  std::string input = dir_.put("mine.jsonl", "{\"body\": \"the cat\", \"other\": \"hat\"}\n");
  prepare("local", {"--input", input});
  EXPECT_TRUE(fs::exists(dir_ / "data/local/local_body_document.idx"));
  prepare("local", {"--input", input, "--jsonl-keys", "other"});
  EXPECT_TRUE(fs::exists(dir_ / "data/local/local_other_document.idx"));
}

TEST_F(Corpus, NamesATokenizerThatIsNotThere) {
  EXPECT_THAT(refusal({"--offline", "-v", dir_ / "mine.json"}),
              HasSubstr("there is no tokenizer " + (dir_ / "mine.json")));
}

TEST_F(Corpus, LeavesNoDatasetOfAFileThatIsDamaged) {
  served_.files["/1.jsonl"].back() = ' ';
  HttpServer server(served_);
  EXPECT_THAT(refusal({"--mirror", server.url()}), HasSubstr("1.jsonl.part has the SHA-256"));
  EXPECT_FALSE(fs::exists(dir_ / "data/cats/1.jsonl"));
  EXPECT_FALSE(fs::exists(dir_ / "data/cats/cats_text_document.bin"));
}

// A small file of the format that the name of the original one tells, and its documents.
struct Small {
  std::string bytes;
  Texts documents;
};

std::string wiki_dump(const Texts& texts) {
  std::string dump =
      "<mediawiki>\n  <siteinfo>\n    <base>https://de.example.org/wiki/X</base>\n"
      "    <namespaces>\n      <namespace key=\"10\">Vorlage</namespace>\n    </namespaces>\n"
      "  </siteinfo>\n";
  for (size_t i = 0; i < texts.size(); ++i)
    dump += concat("  <page>\n    <title>T</title>\n    <ns>0</ns>\n    <id>", i,
                   "</id>\n    <revision>\n      <text>", texts[i],
                   "</text>\n    </revision>\n  </page>\n");
  return dump + "</mediawiki>\n";
}

Small small_of(const std::string& name, size_t number) {
  Texts texts = {concat("the cat ", number), concat("and the hat ", number), "in the house"};
  auto ends = [&](const char* ending) { return name.ends_with(ending); };
  std::string first = json_lines({texts[0]}), rest = json_lines({texts[1], texts[2]});
  using testing::archive_of, testing::compressed;
  if (ends(".jsonl.zst.tar"))
    return {archive_of({{"a.jsonl.zst", compressed(first, "zstd")},
                        {"b.jsonl.zst", compressed(rest, "zstd")}},
                       "ustar"),
            texts};
  if (ends("stackexchange_dataset.tar")) {
    std::string one = archive_of({{"a_1.txt", texts[0]}, {"a_2.txt", texts[1]}}, "zip");
    std::string other = archive_of({{"b_1.txt", texts[2]}}, "zip");
    return {archive_of({{"out/a.zip", one}, {"out/none.zip", ""}, {"out/b.zip", other}}, "ustar"),
            texts};
  }
  if (ends(".tar.gz"))
    return {archive_of({{"x/1.txt", texts[0]}, {"x/2", texts[1]}, {"x/3.epub.txt", texts[2]}},
                       "ustar", "gzip"),
            texts};
  if (ends(".jsonl.zst")) return {compressed(first + rest, "zstd"), texts};
  if (ends(".json.gz")) return {compressed(first + rest, "gzip"), texts};
  if (ends(".zip"))
    return {archive_of({{name.substr(0, name.size() - 4), texts[0]}}, "zip"), {texts[0]}};
  if (ends(".parquet")) return {testing::parquet_of(first + rest), texts};
  if (ends(".txt"))
    return {join(texts, "\n<|endoftext|>\n"), {texts[0] + "\n", texts[1] + "\n", texts[2]}};
  if (ends(".xml.bz2")) return {compressed(wiki_dump(texts), "bzip2"), texts};
  ADD_FAILURE() << name << " has a format that this test does not know";
  return {};
}

// The address of the project at the server, with up to three files.
std::string small_address(const std::string& url, const HttpServer& server) {
  std::string address = url.substr(url.find('/', url.find("//") + 2));
  size_t dots = address.find(".."), end = address.find('}', dots);
  if (dots != std::string::npos) {
    std::string last(end - dots - 2, '0');
    last.back() = '2';
    address.replace(dots + 2, end - dots - 2, last);
  }
  return server.url(address);
}

class EveryCorpus : public Corpus {
 protected:
  // Puts the entry at the server; its documents.
  Texts serve(const RegistryEntry& entry, HttpServer& server) {
    std::string address = small_address(entry.urls[0], server);
    std::string text = concat("corpora:\n- name: ", entry.name, "\n  urls: '", address, "'\n");
    Texts documents, sums, bytes;
    for (const std::string& url : expand(address)) {
      Small small = small_of(url.substr(url.rfind('/') + 1), sums.size());
      served_.files[url.substr(server.url().size())] = small.bytes;
      sums.push_back(sum(small.bytes));
      bytes.push_back(std::to_string(small.bytes.size()));
      documents.insert(documents.end(), small.documents.begin(), small.documents.end());
    }
    text += concat("  bytes: [", join(bytes, ", "), "]\n  sha256: [", join(sums, ", "), "]\n");
    if (!entry.dead.empty()) text += "  dead: because\n";
    if (!entry.split_on.empty()) text += "  split_on: '" + entry.split_on + "'\n";
    dir_.put("corpora.yml", text);
    server.change(served_);
    return documents;
  }
};

TEST_F(EveryCorpus, RunsFromTheServerToTheDataset) {
  HttpServer server(served_);
  dir_.put("data/20B_tokenizer.json", json_);
  size_t tried = 0;
  for (const RegistryEntry& known : read_registry(kRegistry).corpora) {
    if (known.urls.empty()) continue;
    ++tried;
    if (known.urls[0].ends_with(".parquet") && !testing::has_parquet()) continue;
    bool wiki = known.name.starts_with("wikipedia");
    RegistryEntry entry = wiki ? read_registry(kRegistry).corpus("wikipedia-de") : known;
    Texts documents = serve(entry, server);
    std::string place = entry.name + "/" + entry.name;
    EXPECT_EQ(error_of([&] { prepare(entry.name, {}); }), "") << entry.name;
    EXPECT_EQ(this->documents(place), documents) << entry.name;
  }
  EXPECT_EQ(tried, 25);
}

}  // namespace
}  // namespace neox
