// Articles of MediaWiki dumps against wikiextractor: tests/golden/wiki.json, written by
// tests/oracle/wiki.py. Parts of the extraction by themselves: wiki_text_test.cc.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "wiki/extractor.h"

namespace neox::wiki {
namespace {

const Clock kClock = {"2024", "02", "03", "04", "04:05:06"};  // of wiki.py

struct Golden {
  std::string dump;
  nlohmann::json articles;
};

const Golden& golden() {
  static const Golden made = [] {
    auto json =
        nlohmann::json::parse(read_file(fs::path(NEOX_SOURCE_DIR) / "tests/golden/wiki.json"));
    Golden g{.articles = json["articles"]};
    for (const auto& line : json["dump"]) g.dump += line.get<std::string>() + "\n";
    return g;
  }();
  return made;
}

// Extracts a dump in blocks of at least so many bytes.
std::vector<Article> extract(std::string_view dump, size_t block = size_t(1) << 30) {
  Site site = read_site(dump);
  Templates templates;
  for (const Page& page : read_pages(dump)) templates.add(page, site);
  Extractor extractor(site, templates, kClock);
  std::vector<Article> articles;
  for (size_t at = 0; at < dump.size();) {
    size_t end = next_page(dump, std::min(at + block, dump.size()));
    for (const Page& page : read_pages(dump.substr(at, end - at))) {
      if (auto article = extractor.extract(page)) articles.push_back(*article);
    }
    at = end;
  }
  return articles;
}

void expect_golden(const std::vector<Article>& articles) {
  const nlohmann::json& expected = golden().articles;
  ASSERT_EQ(articles.size(), expected.size());
  for (size_t i = 0; i < articles.size(); ++i) {
    SCOPED_TRACE(articles[i].title);
    EXPECT_EQ(expected[i]["id"], articles[i].id);
    EXPECT_EQ(expected[i]["revid"], articles[i].revid);
    EXPECT_EQ(expected[i]["url"], articles[i].url);
    EXPECT_EQ(expected[i]["title"], articles[i].title);
    EXPECT_EQ(expected[i]["text"], articles[i].text);
  }
}

// A dump of these pages: title, text.
std::string dump_of(const std::vector<std::pair<std::string, std::string>>& pages) {
  std::string dump =
      "<mediawiki>\n<siteinfo>\n<base>https://w.org/wiki/Main</base>\n"
      "<namespace key=\"10\">Vorlage</namespace>\n</siteinfo>\n";
  for (const auto& [title, text] : pages) {
    std::string ns = title.starts_with("Vorlage:") ? "10" : "0";
    dump += "<page>\n<title>" + title + "</title>\n<ns>" + ns + "</ns>\n<id>7</id>\n<text>" + text +
            "</text>\n</page>\n";
  }
  return dump + "</mediawiki>\n";
}

std::string text_of_article(const std::string& wikitext, const std::string& tmpl = "x") {
  return extract(dump_of({{"Vorlage:T", tmpl}, {"A", wikitext}})).at(0).text;
}

TEST(WikiExtractor, GivesTheArticlesOfWikiextractor) { expect_golden(extract(golden().dump)); }

TEST(WikiExtractor, GivesTheSameFromBlocksOfAnySize) {
  for (size_t block : {1, 700, 5000}) expect_golden(extract(golden().dump, block));
}

TEST(WikiExtractor, ThreadsShareTemplates) {
  const std::string& dump = golden().dump;
  std::vector<std::thread> threads;
  Site site = read_site(dump);
  std::vector<Page> pages = read_pages(dump);
  Templates templates;
  for (const Page& page : pages) templates.add(page, site);
  std::vector<std::vector<Article>> found(4);
  for (auto& articles : found) {
    threads.emplace_back([&] {
      Extractor extractor(site, templates, kClock);
      for (const Page& page : pages) {
        if (auto article = extractor.extract(page)) articles.push_back(*article);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& articles : found) expect_golden(articles);
}

TEST(WikiTemplates, OfLaterPartsCountWhereTheyHaveTheSameTitle) {
  std::string dump = dump_of({{"Vorlage:T", "first"}, {"Vorlage:U", "kept"}});
  std::string later = dump_of({{"Vorlage:T", "second"}});
  Site site = read_site(dump);
  Templates templates, others;
  for (const Page& page : read_pages(dump)) templates.add(page, site);
  for (const Page& page : read_pages(later)) others.add(page, site);
  templates.merge(std::move(others));
  EXPECT_EQ(*templates.find("Vorlage:T"), "second");
  EXPECT_EQ(*templates.find("Vorlage:U"), "kept");
  EXPECT_EQ(templates.size(), 2);
}

TEST(WikiTemplates, KeepWhatIsIncluded) {
  EXPECT_EQ(text_of_article("a {{t|b}} c", "&lt;noinclude&gt;x&lt;/noinclude&gt;[{{{1}}}]"),
            "a [b] c");
  EXPECT_EQ(text_of_article("{{t}}", "#WEITER").find("WEITER"), std::string::npos);
}

TEST(WikiSite, IsRefusedWithoutATemplateNamespace) {
  try {
    read_site("<mediawiki>\n<page>\n");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.exit(), Exit::kIo);
    EXPECT_NE(std::string(e.what()).find("<siteinfo>"), std::string::npos);
  }
}

TEST(WikiPages, AreCutBehindTheirEnds) {
  std::string text = "ab</page>\ncd  </page>\r\nef";
  EXPECT_EQ(next_page(text, 0), 0);
  EXPECT_EQ(next_page(text, 1), 10);
  EXPECT_EQ(next_page(text, 10), 10);
  EXPECT_EQ(next_page(text, 11), 23);
  EXPECT_EQ(next_page(text, 23), 23);
  EXPECT_EQ(next_page(text, 24), text.size());
  EXPECT_EQ(next_page(text, text.size()), text.size());
}

TEST(WikiPages, MayHaveOtherLineEnds) {
  std::string storage;
  EXPECT_EQ(plain_lines("a\r\nb\rc\n", storage), "a\nb\nc\n");
  EXPECT_EQ(plain_lines("a\nb", storage), "a\nb");
}

TEST(WikiPages, ThatAreNotWholeAreLeftOut) {
  std::string dump = dump_of({{"A", "one"}, {"B", "two"}});
  EXPECT_EQ(read_pages(std::string_view(dump).substr(0, dump.rfind("</page>"))).size(), 1);
  EXPECT_EQ(read_pages("").size(), 0);
  EXPECT_EQ(read_pages("<page>\n<title>x").size(), 0);
}

TEST(WikiExtractor, RepairsTextThatIsNotUnicode) {
  EXPECT_EQ(text_of_article("a\xFF\xE2\x82 b &amp;#xD83D;&amp;#xDE00; &amp;#xD800;"),
            "a\xEF\xBF\xBD\xEF\xBF\xBD b \xF0\x9F\x98\x80 ?");
  Article article = extract(dump_of({{"A\xE2", "{{PAGENAME}}"}})).at(0);
  EXPECT_EQ(article.title, "A\xEF\xBF\xBD");
  EXPECT_EQ(article.text, article.title);
}

std::string times(std::string_view text, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += text;
  return out;
}

// Each would take hours where time grows with the square of the length, or all memory.
TEST(WikiExtractor, EndsSoonOnHostilePages) {
  for (std::string_view unit : {"{{",
                                "{{{",
                                "}}",
                                "[[",
                                "[[[ a ",
                                "[http://a ",
                                "&lt;ref&gt;",
                                "&lt;div \"",
                                "&lt;ref /",
                                "&lt;!--",
                                "&lt;math&gt;",
                                "&lt;math ",
                                "&lt;p ",
                                "''a",
                                "'",
                                "=",
                                "{|",
                                "{{a|",
                                "{{{a|",
                                "__",
                                "&amp;a",
                                "&lt;math&gt;&lt;/math&gt;",
                                "&lt;ref&gt;a&lt;/ref&gt;",
                                "{{#if:",
                                "\n"}) {
    std::string page = times(unit, 300'000 / static_cast<int>(unit.size()));
    EXPECT_LE(text_of_article(page).size(), 5 * page.size()) << unit;
  }
  EXPECT_EQ(text_of_article(times("{{t|", 100'000) + times("}}", 100'000), "{{{1}}}"), "");
  std::string classes = "&lt;span class=\"" + times("error ", 2'000'000);
  EXPECT_LE(text_of_article("{{#iferror:" + classes + "|a|b}}").size(), 2 * classes.size());
}

TEST(WikiExtractor, BoundsWhatTemplatesGrowTo) {
  std::vector<std::pair<std::string, std::string>> pages = {{"A", "{{t1}}"}};
  for (int i = 1; i < 29; ++i) {
    std::string next = "{{t" + std::to_string(i + 1);
    pages.emplace_back("Vorlage:T" + std::to_string(i), next + "}}" + next + "|x}}");
  }
  pages.emplace_back("Vorlage:T29", times("text ", 1000));
  EXPECT_LE(extract(dump_of(pages)).at(0).text.size(), static_cast<size_t>(Expander::kBudget));
}

// Parameters that are not given are looked for all the same.
TEST(WikiExtractor, BoundsHowManyParametersAreLookedFor) {
  std::string tmpl = times("{{{x|}}}", 20'000) + "y";
  EXPECT_EQ(text_of_article("{{t}}!", tmpl), "y!");
  EXPECT_EQ(text_of_article(times("{{t}}", 2'000) + "!", tmpl).back(), '!');
  EXPECT_LT(text_of_article(times("{{t}}", 2'000) + "!", tmpl).size(), 1'000u);
}

TEST(WikiExtractor, BoundsWhatFunctionsAndVariablesGive) {
  auto budget = static_cast<size_t>(Expander::kBudget);
  EXPECT_LE(text_of_article(times("{{padleft:x|2000000|abc}}", 100)).size(), budget);
  std::string title(10'000, 'A'), page = times("{{PAGENAME}} ", 10'000);
  EXPECT_LE(extract(dump_of({{title, page}})).at(0).text.size(), budget + page.size());
}

}  // namespace
}  // namespace neox::wiki
