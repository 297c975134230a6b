// Elements that are dropped with what they enclose.
#include <array>
#include <optional>
#include <vector>

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

constexpr size_t kNoinclude = 2;

size_t element_of(std::string_view name) {
  // By first letters, in lower case.
  static const std::array<std::vector<size_t>, 128> numbers = [] {
    std::array<std::vector<size_t>, 128> made;
    for (size_t i = 0; i < kNumElements; ++i) {
      made[static_cast<size_t>(kElements[i][0])].push_back(i);
    }
    return made;
  }();
  if (name.empty()) return kNumElements;
  for (size_t element : numbers[static_cast<size_t>(ascii_lower(name[0]))]) {
    if (is_name(name, kElements[element])) return element;
  }
  return kNumElements;
}

// A < with the name of an element.
struct Head {
  size_t at;
  TagHead tag;
  size_t element;
};

std::vector<Head> heads_in(std::string_view text) {
  std::vector<Head> heads;
  for (size_t at = 0; (at = text.find('<', at)) != kNone; ++at) {
    TagHead tag = read_tag_head(text, at);
    size_t element = element_of(tag.name);
    if (element < kNumElements) heads.push_back({at, tag, element});
  }
  return heads;
}

// <name ...>, but not <name ... />.
size_t end_of_element_opening(std::string_view text, const TagHead& tag) {
  size_t end = tag.closing ? kNone : end_of_opening(text, tag.end);
  return end != kNone && text[end - 1] != '/' ? end : kNone;
}

// </name>
size_t end_of_element_closing(std::string_view text, const TagHead& tag) {
  return tag.closing ? end_of_closing(text, tag) : kNone;
}

// <noinclude> or <noinclude/>
size_t end_of_noinclude(std::string_view text, const TagHead& tag) {
  if (tag.closing) return kNone;
  size_t end = skip_space(text, tag.end);
  if (end < text.size() && text[end] == '/') end = skip_space(text, end + 1);
  return end < text.size() && text[end] == '>' ? end : kNone;
}

using EndOf = size_t (*)(std::string_view, const TagHead&);

// The tags of an element, one after another, by places that ascend.
class TagFinder {
 public:
  TagFinder(std::string_view text, const std::vector<Head>& heads, size_t element, EndOf end_of)
      : text_(text), heads_(&heads), element_(element), end_of_(end_of) {}

  std::optional<Span> operator()(size_t from) {
    for (; next_ < heads_->size(); ++next_) {
      const Head& head = (*heads_)[next_];
      if (head.element != element_ || head.at < from) continue;
      size_t end = end_of_(text_, head.tag);
      if (end != kNone) return Span{head.at, end + 1};
    }
    return {};
  }

 private:
  std::string_view text_;
  const std::vector<Head>* heads_;
  size_t element_, next_ = 0;
  EndOf end_of_;
};

class ElementDropper {
 public:
  explicit ElementDropper(std::string& text) : text_(text), heads_(heads_in(text)) {}

  void run() {
    for (size_t element = 0; element < kNumElements && !heads_.empty(); ++element) {
      drop(NestedSpans(finder(element, end_of_element_opening),
                       finder(element, end_of_element_closing))
               .find());
      drop_each(element, end_of_element_closing);
    }
    drop_each(kNoinclude, end_of_noinclude);
    drop_each(kNoinclude, end_of_element_closing);
  }

 private:
  TagFinder finder(size_t element, EndOf end_of) const { return {text_, heads_, element, end_of}; }

  void drop_each(size_t element, EndOf end_of) {
    TagFinder next = finder(element, end_of);
    std::vector<Span> spans;
    while (std::optional<Span> span = next(spans.empty() ? 0 : spans.back().end)) {
      spans.push_back(*span);
    }
    drop(spans);
  }

  void drop(const std::vector<Span>& spans) {
    if (spans.empty()) return;
    drop_spans(text_, spans);
    heads_ = heads_in(text_);  // what was apart may now stand together and be a tag
  }

  std::string& text_;
  std::vector<Head> heads_;
};

}  // namespace

void drop_elements(std::string& text) { ElementDropper(text).run(); }

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
