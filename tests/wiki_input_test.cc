// Dumps of MediaWiki as input: the articles become documents, however the dump is packed and
// shared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "archives.h"
#include "comm/thread.h"
#include "data_files.h"
#include "generated_text.h"
#include "prepare/prepare.h"
#include "prepare/wiki_articles.h"

namespace neox {
namespace {

using testing::compressed;
using testing::Directory;
using testing::error_of;
using ::testing::HasSubstr;

std::string page(int id, const std::string& ns, const std::string& title, const std::string& text) {
  return concat("  <page>\n    <title>", title, "</title>\n    <ns>", ns, "</ns>\n    <id>", id,
                "</id>\n    <revision>\n      <id>", id + 100,
                "</id>\n      <text bytes=\"1\" xml:space=\"preserve\">", text,
                "</text>\n    </revision>\n  </page>\n");
}

class WikiInput : public ::testing::Test {
 protected:
  WikiInput() {
    write_tokenizer_json(dir_ / "tokenizer.json",
                         train_bpe({.vocab_size = 280}, each({"the cat and the hat"})));
    dump_ =
        "<mediawiki xml:lang=\"en\">\n  <siteinfo>\n    <sitename>W</sitename>\n"
        "    <base>https://en.example.org/wiki/Main_Page</base>\n    <namespaces>\n"
        "      <namespace key=\"0\" case=\"first-letter\" />\n"
        "      <namespace key=\"10\" case=\"first-letter\">Template</namespace>\n"
        "    </namespaces>\n  </siteinfo>\n";
    for (int i = 0; i < 40; ++i)
      dump_ += page(i, "0", concat("Page ", i),
                    concat("The '''cat''' number {{twice|", i, "}} sat on a [[mat|red mat]].\n\n",
                           std::string(static_cast<size_t>(i) * 50, 'a'), " is a long word.\n"));
    // Behind the pages that use it: a first pass finds it.
    dump_ += page(77, "10", "Template:Twice", "{{{1}}}-{{{1}}}") + "</mediawiki>\n";
  }

  // Both files.
  std::string dataset(const std::string& input, int ranks, std::string key = "text") {
    PrepareOptions options{.inputs = {input},
                           .output_prefix = dir_ / "out",
                           .rules = {.keys = {key}},
                           .tokenizer = {.vocab = dir_ / "tokenizer.json"},
                           .workers = 2};
    run_thread_ranks(ranks,
                     [&](Communicator&, Control& control) { prepare_data(options, control); });
    std::string name = dir_ / ("out_" + key + "_document");
    return read_file(name + ".bin") + "|" + read_file(name + ".idx");
  }

  Directory dir_;
  std::string dump_;
};

TEST_F(WikiInput, ADumpThatIsCutOffIsAnError) {
  std::string cut = dump_.substr(0, dump_.rfind("  <page>"));
  for (int ranks : {1, 3})
    EXPECT_THAT(error_of([&] { dataset(dir_.put("a.xml", cut), ranks); }),
                HasSubstr("a.xml: this dump of MediaWiki is cut off"));
  EXPECT_THAT(error_of([&] { dataset(dir_.put("a.xml.bz2", compressed(cut, "bzip2")), 1); }),
              HasSubstr("is cut off"));
}

TEST_F(WikiInput, ReadingGoesOnAtTheEndOfADumpAndKnowsWhetherItIsWhole) {
  std::string cut = dump_.substr(0, dump_.rfind("  <page>"));
  for (const char* filter : {"", "bzip2"}) {
    auto put = [&](const char* name, const std::string& dump) {
      dir_.put(name, *filter ? compressed(dump, filter) : dump);
    };
    put("in/a.xml", dump_), put("in/b.xml", dump_), put("in/c.xml", cut);
    InputFiles input = find_input_files(std::vector{dir_ / "in"}, Separated::kNo);
    std::vector<Slice> slices = slices_of(input, {}, 0, 1);
    BlockReader reader(slices, {});
    for (int64_t slice : {0, 1}) {
      ReadPosition end = reader.next()->end;
      EXPECT_EQ(end.slice, slice);
      EXPECT_EQ(end.offset, std::ssize(dump_));
      BlockReader rest(slices, {}, end);
      if (slice == 0) { EXPECT_EQ(rest.next()->text, dump_); }
      EXPECT_THAT(error_of([&] { rest.next(); }),
                  HasSubstr("c.xml: this dump of MediaWiki is cut"));
    }
    BlockReader at_end(slices, {}, ReadPosition{.slice = 2, .offset = std::ssize(cut)});
    EXPECT_THAT(error_of([&] { at_end.next(); }),
                HasSubstr("c.xml: this dump of MediaWiki is cut"));
  }
}

TEST_F(WikiInput, ArticlesAreDocumentsWithTheirTemplatesExpanded) {
  std::string lines;
  for (int i = 0; i < 40; ++i)
    lines += concat("{\"text\": \"The cat number ", i, "-", i, " sat on a red mat.\\n",
                    std::string(static_cast<size_t>(i) * 50, 'a'), " is a long word.\"}\n");
  std::string wanted = dataset(dir_.put("a.jsonl", lines), 1);
  EXPECT_TRUE(dataset(dir_.put("a.xml", dump_), 1) == wanted);
  EXPECT_TRUE(dataset(dir_.put("a.xml", dump_), 3) == wanted);
  EXPECT_TRUE(dataset(dir_.put("a.xml.bz2", compressed(dump_, "bzip2")), 2) == wanted);
  for (const std::string& name : dir_.list())
    EXPECT_EQ(name.find(kTemplates), std::string::npos) << name;
}

// By what they begin with, whatever Wikimedia or others call them; but enwik8 is text as it stands.
TEST_F(WikiInput, DumpsAreKnownByTheirContent) {
  std::string wanted = dataset(dir_.put("a.xml", dump_), 1);
  for (const char* name : {"w-pages-articles1.xml-p1p412", "A.XML", "dump"})
    EXPECT_TRUE(dataset(dir_.put(name, dump_), 1) == wanted) << name;
  std::string part = dir_.put("w.xml-p1p412.bz2", compressed(dump_, "bzip2"));
  EXPECT_TRUE(dataset(part, 1) == wanted);
  std::string declared = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n" + dump_;
  EXPECT_TRUE(dataset(dir_.put("b.xml", declared), 1) == wanted);
  EXPECT_TRUE(dataset(dir_.put("c.xml", dump_ + "<!-- made by w -->\n"), 1) == wanted);
  EXPECT_FALSE(dataset(dir_.put("enwik8", dump_), 1) == wanted);
}

TEST_F(WikiInput, TitlesAreAKeyToo) {
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += concat("{\"title\": \"Page ", i, "\"}\n");
  EXPECT_TRUE(dataset(dir_.put("a.xml", dump_), 1, "title") ==
              dataset(dir_.put("a.jsonl", lines), 1, "title"));
}

TEST_F(WikiInput, UnknownFieldsAndDumpsWithoutAHeadAreNamed) {
  std::string path = dir_.put("a.xml", dump_);
  EXPECT_THAT(error_of([&] { dataset(path, 1, "body"); }), HasSubstr("articles have no 'body'"));
  std::string cut = dir_.put("b.xml", dump_.substr(0, 100));
  EXPECT_THAT(error_of([&] { dataset(cut, 1); }), HasSubstr("no <siteinfo>"));
}

}  // namespace
}  // namespace neox
