// Pages of a MediaWiki XML export, as written by dumpBackup.php and Special:Export: one element to
// a line, the text of a page over several. Read as wikiextractor 3.1.0 reads it.
//
// A dump may be read in blocks by several threads or ranks: cut it with next_page(), give each
// block to read_pages(). The head of the first file, up to </siteinfo>, is for read_site(). Pure
// functions.
#pragma once
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace neox::wiki {

struct Site {
  std::string url;                 // of the pages, without "?curid="
  std::string template_namespace;  // its name in the wiki's language
  std::set<std::string> namespaces;

  std::string template_prefix() const { return template_namespace + ":"; }
};

// Throws Error (74) where the text has no <siteinfo> with a namespace for templates (key 10).
Site read_site(std::string_view head);

// Fields hold what the XML has between its tags: references such as &amp; are not resolved.
struct Page {
  std::string id, revision, title, ns;
  bool redirect = false;
  std::vector<std::string_view> lines;  // of the text, in the block
};

// The text of a page: its lines joined, valid UTF-8.
std::string text_of(const Page& page);

// The pages whose end the block has. They refer to the block. Lines end with "\n" (see
// plain_lines()).
std::vector<Page> read_pages(std::string_view block);

// Pages in the main namespace that are no redirects, and whose title does not begin with the
// template namespace's name.
bool is_article(const Page& page, const Site& site);
bool is_template(const Page& page, const Site& site);

// The first place at or behind `at` where a block may begin: the begin of the text, or behind the
// line of a </page>; the size of the text where there is none.
size_t next_page(std::string_view text, size_t at);

// "\r\n" and "\r" become "\n"; nothing is copied where there is none.
std::string_view plain_lines(std::string_view text, std::string& storage);

}  // namespace neox::wiki
