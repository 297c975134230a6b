// Extracts the articles of a MediaWiki XML dump as wikiextractor --json does, for the scripts in
// tests/oracle.
//   wiki_tool DUMP            one line of JSON for each article
//   wiki_tool bench DUMP      processor seconds for the templates, and for the articles
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/program.h"
#include "wiki/extractor.h"

namespace {

using namespace neox::wiki;

Clock now() {
  std::time_t seconds = std::time(nullptr);
  std::tm local = *std::localtime(&seconds);
  auto form = [&](const char* format) {
    char text[16];
    return std::string(text, std::strftime(text, sizeof text, format, &local));
  };
  return {form("%Y"), form("%m"), form("%d"), form("%H"), form("%H:%M:%S")};
}

std::string json_of(const Article& article) {
  nlohmann::ordered_json json = {{"id", article.id},
                                 {"revid", article.revid},
                                 {"url", article.url},
                                 {"title", article.title},
                                 {"text", article.text}};
  return json.dump();
}

// Of the processor: other programs may be running.
double seconds_since(std::clock_t start) {
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

// Calls use(page) for each page, in blocks as a reader of large files takes them.
template <class Use>
void for_pages(std::string_view dump, Use use) {
  for (size_t at = 0; at < dump.size();) {
    size_t end = next_page(dump, std::min(at + (1 << 18), dump.size()));
    std::string storage;
    for (const Page& page : read_pages(plain_lines(dump.substr(at, end - at), storage))) use(page);
    at = end;
  }
}

int run(const std::vector<std::string>& args) {
  std::ios::sync_with_stdio(false);
  bool bench = args.size() == 2 && args[0] == "bench";
  neox::check_usage(args.size() == 1 || bench, "usage: wiki_tool [bench] DUMP");
  neox::MappedFile file(args.back());
  Site site = read_site(file.text());
  std::clock_t start = std::clock();
  Templates templates;
  for_pages(file.text(), [&](const Page& page) { templates.add(page, site); });
  double first_pass = seconds_since(start);
  start = std::clock();
  Clock clock = now();
  Extractor extractor(site, templates, clock);
  for_pages(file.text(), [&](const Page& page) {
    std::optional<Article> article = extractor.extract(page);
    if (article && !bench) std::cout << json_of(*article) << '\n';
  });
  if (bench) std::cout << first_pass << ' ' << seconds_since(start) << '\n';
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return neox::run_program("wiki_tool", [&] { return run({argv + 1, argv + argc}); });
}
