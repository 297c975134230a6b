#include "wiki/site.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "wiki/text.h"

namespace neox::wiki {

namespace {

// The first tag of a line and what follows it: before <name ...>after<...
struct Line {
  std::string_view before, name, after;
  bool closes = false;  // another tag follows in the line
  bool empty = false;   // <name ... />
};

std::optional<Line> parse_line(std::string_view line) {
  for (size_t at = line.find('<'); at != kNone; at = line.find('<', at + 1)) {
    size_t name = at + 1;
    if (name < line.size() && line[name] == '/') ++name;
    size_t end = name;
    while (word_at(line, end)) end += read_at(line, end).bytes;
    if (end == name) continue;
    size_t close = line.find('>', end);
    if (close == kNone) return {};
    size_t next = std::min(line.find('<', close + 1), line.size());
    return Line{.before = line.substr(0, at),
                .name = line.substr(at + 1, end - at - 1),
                .after = line.substr(close + 1, next - close - 1),
                .closes = line.find('>', next) != kNone,
                .empty = line[close - 1] == '/'};
  }
  return {};
}

// Calls use(line) for each line with its line end.
template <class Use>
void for_lines(std::string_view text, Use use) {
  for (size_t at = 0; at < text.size();) {
    size_t end = text.find('\n', at);
    end = end == kNone ? text.size() : end + 1;
    if (!use(text.substr(at, end - at))) return;
    at = end;
  }
}

class PageReader {
 public:
  bool line(std::string_view line) {
    std::optional<Line> parsed;
    if (line.find('<') == kNone) {
      if (in_text_) page_.lines.push_back(line);
    } else if ((parsed = parse_line(line))) {
      tag(*parsed, line);
    }
    return true;
  }

  std::vector<Page> pages() { return std::move(pages_); }

 private:
  void tag(const Line& line, std::string_view whole) {
    if (line.name == "page") {
      page_.lines.clear();
      page_.ns.clear();
      page_.redirect = false;
    } else if (line.name == "id") {
      // The contributor has an id too, behind the revision's: wikiextractor takes the last.
      (page_.id.empty() ? page_.id : page_.revision) = line.after;
    } else if (line.name == "title") {
      page_.title = line.after;
    } else if (line.name == "ns") {
      page_.ns = line.after;
    } else if (line.name == "redirect") {
      page_.redirect = true;
    } else if (line.name == "text") {
      if (line.empty) return;
      page_.lines.push_back(line.after);
      in_text_ = !line.closes;
    } else if (line.name == "/text") {
      if (!line.before.empty()) page_.lines.push_back(line.before);
      in_text_ = false;
    } else if (in_text_) {
      page_.lines.push_back(whole);
    } else if (line.name == "/page") {
      finish();
    }
  }

  void finish() {
    std::string title = page_.title;
    pages_.push_back(std::move(page_));
    page_ = {};
    page_.title = std::move(title);
    in_text_ = false;
  }

  Page page_;
  bool in_text_ = false;
  std::vector<Page> pages_;
};

}  // namespace

Site read_site(std::string_view head) {
  Site site{.namespaces = {"Template"}};
  for_lines(head, [&](std::string_view text) {
    std::optional<Line> line = parse_line(text);
    if (!line) return true;
    if (line->name == "base") {
      site.url = line->after.substr(0, line->after.rfind('/'));
    } else if (line->name == "namespace") {
      site.namespaces.emplace(line->after);
      if (text.find("key=\"10\"") != kNone) site.template_namespace = line->after;
    }
    return line->name != "/siteinfo" && line->name != "page";
  });
  check_io(
      !site.template_namespace.empty(),
      "the dump has no <siteinfo> with a <namespace key=\"10\"> before its first <page>; is it "
      "a MediaWiki XML export, and its first part?");
  return site;
}

std::string text_of(const Page& page) {
  std::string text;
  size_t bytes = 0;
  for (std::string_view line : page.lines) bytes += line.size();
  text.reserve(bytes);
  for (std::string_view line : page.lines) text += line;
  return repair(std::move(text));
}

std::vector<Page> read_pages(std::string_view block) {
  PageReader reader;
  for_lines(block, [&](std::string_view line) { return reader.line(line); });
  return reader.pages();
}

bool is_article(const Page& page, const Site& site) {
  return page.ns == "0" && !page.redirect && !page.title.starts_with(site.template_namespace);
}

bool is_template(const Page& page, const Site& site) {
  return page.title.starts_with(site.template_prefix());
}

size_t next_page(std::string_view text, size_t at) {
  constexpr std::string_view kEnd = "</page>";
  if (at == 0) return 0;
  size_t line = at < 2 ? kNone : text.rfind('\n', at - 2);
  size_t from = line == kNone ? 0 : line + 1;
  while (true) {
    size_t end = text.find(kEnd, from);
    if (end == kNone) return text.size();
    size_t next = text.find('\n', end);
    next = next == kNone ? text.size() : next + 1;
    if (next >= at) return next;
    from = next;
  }
}

std::string_view plain_lines(std::string_view text, std::string& storage) {
  if (text.find('\r') == kNone) return text;
  storage = replace_all(replace_all(text, "\r\n", "\n"), "\r", "\n");
  return storage;
}

}  // namespace neox::wiki
