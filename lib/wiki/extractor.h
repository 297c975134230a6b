// The plain text of Wikipedia articles, as wikiextractor 3.1.0 (https://github.com/attardi/
// wikiextractor) gives it with --json.
//
// How a dump is read: the head of the first file gives the Site; a first pass over all pages gives
// the Templates; then an Extractor for each thread, over shared Site, Templates and Clock, turns
// articles into documents. docs/wikipedia.md says where the text differs from wikiextractor's.
#pragma once
#include <optional>
#include <string>

#include "wiki/expander.h"
#include "wiki/site.h"
#include "wiki/templates.h"

namespace neox::wiki {

// An article under the names that wikiextractor gives its fields; all are valid UTF-8.
struct Article {
  std::string id, revid, url, title, text;
};

// For one thread. Site, templates and clock must outlive it.
class Extractor {
 public:
  Extractor(const Site& site, const Templates& templates, const Clock& clock)
      : site_(site), expander_(site, templates, clock) {}

  // None where the page is no article. Never throws for what a page holds.
  std::optional<Article> extract(const Page& page);

  // The text for wikitext as it stands in the XML, with < > & as references.
  std::string clean(std::string_view title, std::string_view wikitext);

 private:
  const Site& site_;
  Expander expander_;
};

}  // namespace neox::wiki
