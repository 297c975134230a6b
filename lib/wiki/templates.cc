#include "wiki/templates.h"

#include "base/text.h"
#include "wiki/braces.h"
#include "wiki/text.h"

namespace neox::wiki {

namespace {

// The target of a page that begins with #REDIRECT [[target]], in one of the spellings that
// wikiextractor knows.
std::optional<std::string_view> redirect_of(std::string_view first_line) {
  constexpr std::string_view kWords[] = {"redirect", "چوريو", "رجوع_مکرر"};
  if (!first_line.starts_with('#')) return {};
  size_t at = kNone;
  for (std::string_view word : kWords) {
    if (has_word_at(first_line, 1, word)) at = 1 + word.size();
  }
  if (at == kNone || word_at(first_line, at)) return {};
  std::string_view line = first_line.substr(0, first_line.find('\n'));
  while ((at = line.find("[[", at)) != kNone) {
    size_t end = line.find(']', at + 2);
    if (end == kNone) return {};
    if (line.substr(end, 2) == "]]") return line.substr(at + 2, end - at - 2);
    ++at;
  }
  return {};
}

// Removes what stands from each `begin` to the next `end`, and one line end behind it.
std::string without(std::string_view text, std::string_view begin, std::string_view end,
                    bool with_line_end) {
  std::string out;
  size_t done = 0;
  for (size_t at; (at = text.find(begin, done)) != kNone;) {
    size_t close = text.find(end, at + begin.size());
    if (close == kNone) break;
    out.append(text.substr(done, at - done));
    done = close + end.size();
    if (with_line_end && text.substr(done, 1) == "\n") ++done;
  }
  return out.append(text.substr(done));
}

void cut_at_open_noinclude(std::string& text) {
  constexpr std::string_view kTag = "<noinclude";
  for (size_t at = 0; (at = text.find(kTag, at)) != kNone; ++at) {
    size_t end = skip_space(text, at + kTag.size());
    if (end < text.size() && text[end] == '>') return text.resize(at);
  }
}

std::string only_included(std::string_view text) {
  constexpr std::string_view kBegin = "<onlyinclude>", kEnd = "</onlyinclude>";
  std::string out;
  size_t at = 0;
  while ((at = text.find(kBegin, at)) != kNone) {
    size_t begin = at + kBegin.size();
    size_t end = text.find(kEnd, begin);
    if (end == kNone) break;
    at = end + kEnd.size();
    if (begin < end && text[begin] == '\n') ++begin;
    if (begin < end && text[end - 1] == '\n') --end;
    out.append(text.substr(begin, end - begin));
  }
  return out;
}

// What the page gives where it is included.
std::string included_text(std::string_view page) {
  std::string text = without(unescape(page), "<!--", "-->", false);
  text = without(text, "<noinclude>", "</noinclude>", true);
  cut_at_open_noinclude(text);
  text = replace_all(replace_all(text, "<noinclude/>\n", ""), "<noinclude/>", "");
  std::string only = only_included(text);
  if (!only.empty()) return only;
  return replace_all(replace_all(text, "<includeonly>", ""), "</includeonly>", "");
}

ParsedTemplate parse(std::string_view text, int depth);

ParsedParameter parse_parameter(std::string_view text, int depth) {
  std::vector<std::string_view> parts = split_parts(text);
  ParsedParameter parameter{.name = parse(parts[0], depth)};
  if (depth <= kMaxParameterDepth && parts[0].find("{{") == kNone) parameter.plain_name = parts[0];
  if (parts.size() > 1) parameter.otherwise = parse(parts[1], depth);
  return parameter;
}

ParsedTemplate parse(std::string_view text, int depth) {
  ParsedTemplate parsed;
  if (depth > kMaxParameterDepth) return parsed;  // gives nothing
  size_t done = 0;
  auto add_text = [&](size_t end) {
    if (done < end) parsed.pieces.push_back({.text = text.substr(done, end - done)});
  };
  for (Span s : match_braces(text, Braces::kParameters)) {
    // {{{{{{1}}}}}}: a parameter whose name is one.
    while (s.begin >= 3 && text.substr(s.begin - 3, 3) == "{{{" && text.substr(s.end, 3) == "}}}") {
      s.begin -= 3;
      s.end += 3;
    }
    add_text(s.begin);
    size_t size = s.end - s.begin;
    std::string_view inside = size < 6 ? std::string_view() : text.substr(s.begin + 3, size - 6);
    parsed.pieces.push_back(
        {.parameter = std::make_shared<const ParsedParameter>(parse_parameter(inside, depth + 1))});
    done = s.end;
  }
  add_text(text.size());
  return parsed;
}

}  // namespace

void Templates::add(const Page& page, const Site& site) {
  if (!is_template(page, site) || page.lines.empty()) return;
  if (auto target = redirect_of(page.lines[0])) {
    entries_[page.title] = {true, std::string(*target)};
    return;
  }
  std::string text = included_text(text_of(page));
  if (!text.empty()) entries_[page.title] = {false, std::move(text)};
}

void Templates::merge(Templates&& later) {
  later.entries_.merge(entries_);  // what `later` has stays in it
  std::swap(entries_, later.entries_);
}

const std::string* Templates::find(const std::string& title) const {
  auto found = entries_.find(title);
  if (found != entries_.end() && found->second.redirect) found = entries_.find(found->second.text);
  if (found == entries_.end() || found->second.redirect) return nullptr;
  return &found->second.text;
}

ParsedTemplate parse_template(std::string_view text) { return parse(text, 0); }

}  // namespace neox::wiki
