// Coverage-guided: any bytes as the wikitext of an article, and behind zero bytes as that of the
// templates A, B, C ..., and as a part of a dump. Built and run by fuzz.sh with libFuzzer.
// Words: "{{" "}}" "{{{" "}}}" "[[" "]]" "{|" "|}" "[http://" "<nowiki>" "</nowiki>" "<math>"
// Words: "</math>" "<ref>" "</ref>" "<noinclude>" "<onlyinclude>" "<includeonly>" "<!--" "-->"
// Words: "#if:" "#ifeq:" "#switch:" "#expr:" "#ifexpr:" "#iferror:" "#replace:" "#explode:"
// Words: "#sub:" "#pos:" "padleft:" "formatnum:" "urldecode:" "#invoke:convert|convert" "subst:"
// Words: "&lt;" "&amp;" "&#x" "'''" "==" "<page>" "</page>" "<title>Template:A</title>"
// Words: "<ns>0</ns>" "<text>" "</text>" " round " " mod " "trunc("
#include "base/text.h"
#include "wiki/extractor.h"

namespace {

using namespace neox;

const wiki::Site& site() {
  static const wiki::Site made = wiki::read_site(
      "<siteinfo>\n<base>https://en.wikipedia.org/wiki/Main_Page</base>\n"
      "<namespace key=\"10\">Template</namespace>\n</siteinfo>\n");
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view dump(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> parts = split(dump, '\0');
  wiki::Templates templates;
  for (size_t i = 1; i < parts.size() && i <= 26; ++i) {
    wiki::Page page{.title = "Template:"};
    page.title += static_cast<char>('A' + i - 1);
    page.lines = {parts[i]};
    templates.add(page, site());
  }
  static const wiki::Clock kClock;
  wiki::Extractor extractor(site(), templates, kClock);
  extractor.clean("Title", parts[0]);
  std::string storage;
  std::string_view lines = wiki::plain_lines(dump, storage);
  for (size_t at = 0, end = 0; at < lines.size(); at = end) {
    end = wiki::next_page(lines, at + 1);
    for (const wiki::Page& page : wiki::read_pages(lines.substr(at, end - at)))
      extractor.extract(page);
  }
  return 0;
}
