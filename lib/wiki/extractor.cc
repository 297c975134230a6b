#include "wiki/extractor.h"

#include "wiki/links.h"
#include "wiki/prose.h"
#include "wiki/tags.h"
#include "wiki/text.h"

namespace neox::wiki {

namespace {

// References become characters, but not within <syntaxhighlight>, whose tags go.
std::string unescape_but_code(std::string_view text) {
  constexpr std::string_view kOpen = "&lt;syntaxhighlight ", kEnd = "&gt;",
                             kClose = "&lt;/syntaxhighlight&gt;";
  std::string out;
  size_t done = 0;
  for (size_t at; (at = text.find(kOpen, done)) != kNone;) {
    size_t begin = text.find(kEnd, at + kOpen.size());
    size_t end = begin == kNone ? kNone : text.find(kClose, begin + kEnd.size());
    if (end == kNone) break;
    out += unescape(text.substr(done, at - done));
    out += text.substr(begin + kEnd.size(), end - begin - kEnd.size());
    done = end + kClose.size();
  }
  return out + unescape(text.substr(done));
}

}  // namespace

std::string Extractor::clean(std::string_view title, std::string_view wikitext) {
  std::string text = expander_.expand_page(title, wikitext);
  drop_tables(text);
  text = replace_external_links(text);
  text = replace_internal_links(text);
  text = unescape_but_code(without_switches(text));
  replace_quotes(text);
  replace_break_tags(text);
  drop_tags(text);
  drop_elements(text);
  text = unescape(text);
  replace_placeholders(text);
  tidy_punctuation(text);
  text = prose_lines(escape(text));
  join_surrogates(text);
  return text;
}

std::optional<Article> Extractor::extract(const Page& page) {
  if (!is_article(page, site_)) return {};
  std::string title = repair(page.title);
  std::string text = clean(title, text_of(page));
  return Article{.id = repair(page.id),
                 .revid = repair(page.revision),
                 .url = repair(site_.url + "?curid=" + page.id),
                 .title = std::move(title),
                 .text = std::move(text)};
}

}  // namespace neox::wiki
