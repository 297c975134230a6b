// Elements that are dropped with what they enclose.
#include <bitset>
#include <unordered_map>

#include "wiki/nested.h"
#include "wiki/tag_scan.h"

namespace neox::wiki {

namespace {

// In the order in which they are dropped.
constexpr std::string_view kElements[] = {
    "gallery",  "timeline", "noinclude",   "pre",         "table", "tr",       "td",
    "th",       "caption",  "div",         "form",        "input", "select",   "option",
    "textarea", "ul",       "li",          "ol",          "dl",    "dt",       "dd",
    "menu",     "dir",      "ref",         "references",  "img",   "imagemap", "source",
    "small",    "inputbox", "includeonly", "categorytree"};
constexpr size_t kNumElements = std::size(kElements);

size_t element_of(std::string_view name) {
  static const std::unordered_map<std::string_view, size_t> numbers = [] {
    std::unordered_map<std::string_view, size_t> made;
    for (size_t i = 0; i < kNumElements; ++i) made.emplace(kElements[i], i);
    return made;
  }();
  if (name.empty() || name.size() > 12) return kNumElements;
  std::string lower(name);
  for (char& c : lower) c = ascii_lower(c);
  auto found = numbers.find(lower);
  return found == numbers.end() ? kNumElements : found->second;
}

using Present = std::bitset<kNumElements>;

Present elements_in(std::string_view text) {
  Present present;
  for (size_t at = 0; (at = text.find('<', at)) != kNone; ++at) {
    size_t element = element_of(read_tag_head(text, at).name);
    if (element < kNumElements) present.set(element);
  }
  return present;
}

// <name ...>, but not <name ... />.
std::optional<Span> next_opening(std::string_view text, std::string_view name, size_t from) {
  for (size_t at = from; (at = text.find('<', at)) != kNone; ++at) {
    TagHead head = read_tag_head(text, at);
    if (head.closing || !is_name(head.name, name)) continue;
    size_t end = end_of_opening(text, head.end);
    if (end != kNone && text[end - 1] != '/') return Span{at, end + 1};
  }
  return {};
}

// </name>
std::optional<Span> next_closing(std::string_view text, std::string_view name, size_t from) {
  for (size_t at = from; (at = text.find('<', at)) != kNone; ++at) {
    TagHead head = read_tag_head(text, at);
    if (!head.closing || !is_name(head.name, name)) continue;
    size_t end = end_of_closing(text, head);
    if (end != kNone) return Span{at, end + 1};
  }
  return {};
}

void drop_all(std::string& text, std::string_view name,
              std::optional<Span> (*next)(std::string_view, std::string_view, size_t)) {
  std::vector<Span> spans;
  for (size_t from = 0;;) {
    std::optional<Span> span = next(text, name, from);
    if (!span) break;
    spans.push_back(*span);
    from = span->end;
  }
  drop_spans(text, spans);
}

void drop_element(std::string& text, std::string_view name) {
  // What is searched stays as it is until all spans are found.
  std::string_view all = text;
  drop_nested(
      text, [&](size_t from) { return next_opening(all, name, from); },
      [&](size_t from) { return next_closing(all, name, from); });
  drop_all(text, name, next_closing);
}

// <noinclude> or <noinclude/>
std::optional<Span> next_noinclude(std::string_view text, std::string_view name, size_t from) {
  for (size_t at = from; (at = text.find('<', at)) != kNone; ++at) {
    TagHead head = read_tag_head(text, at);
    if (head.closing || !is_name(head.name, name)) continue;
    size_t end = skip_space(text, head.end);
    if (end < text.size() && text[end] == '/') end = skip_space(text, end + 1);
    if (end < text.size() && text[end] == '>') return Span{at, end + 1};
  }
  return {};
}

}  // namespace

void drop_elements(std::string& text) {
  Present present = elements_in(text);
  for (size_t i = 0; i < kNumElements; ++i) {
    if (!present[i]) continue;
    size_t bytes = text.size();
    drop_element(text, kElements[i]);
    // What was apart may now stand together and be a tag.
    if (text.size() != bytes) present = elements_in(text);
  }
  drop_all(text, "noinclude", next_noinclude);
  drop_all(text, "noinclude", next_closing);
}

void drop_tables(std::string& text) {
  std::string_view all = text;
  auto finder = [all](std::string_view what) {
    return [all, what](size_t from) -> std::optional<Span> {
      size_t at = all.find(what, from);
      if (at == kNone) return {};
      return Span{at, at + what.size()};
    };
  };
  drop_nested(text, finder("{|"), finder("|}"));
}

}  // namespace neox::wiki
