// Dumps of MediaWiki as input: the articles of their pages as documents, with the templates that a
// first pass over all dumps of the input has gathered.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "launch/control.h"
#include "prepare/blocks.h"
#include "wiki/extractor.h"

namespace neox {

// Behind the prefix of the output and before the rank.
inline constexpr const char* kTemplates = ".tmp-templates-";

class WikiArticles {
 public:
  // Collective: each rank looks for templates in its share of the input; they meet in files named
  // <scratch>.tmp-templates-<rank>, which are gone at the end. Null where no file of the input is a
  // dump. Throws Error (64) for dumps of several wikis, (74) for what is damaged.
  static std::shared_ptr<const WikiArticles> gather(const InputFiles& input,
                                                    const BlockRules& rules,
                                                    const std::string& scratch, Control& control);

  // Calls add(article) for each article whose page the text ends, a block of a dump. Thread-safe.
  template <class Add>
  void for_articles(std::string_view text, const Add& add) const {
    std::unique_ptr<wiki::Extractor> extractor = borrow();
    std::string storage;
    for (const wiki::Page& page : wiki::read_pages(wiki::plain_lines(text, storage)))
      if (auto article = extractor->extract(page)) add(*article);
    give_back(std::move(extractor));
  }

 private:
  std::unique_ptr<wiki::Extractor> borrow() const;
  void give_back(std::unique_ptr<wiki::Extractor> extractor) const;

  wiki::Site site_;
  wiki::Templates templates_;
  wiki::Clock clock_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<wiki::Extractor>> idle_;
};

// A field of an article by the name that wikiextractor gives it; null for other names.
const std::string* field_of(const wiki::Article& article, std::string_view name);

}  // namespace neox
