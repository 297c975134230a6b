#include "wiki/prose.h"

#include <algorithm>
#include <map>
#include <optional>

#include "wiki/text.h"

namespace neox::wiki {

namespace {

constexpr std::string_view kSwitches[] = {"__NOTOC__",
                                          "__FORCETOC__",
                                          "__TOC__",
                                          "__NEWSECTIONLINK__",
                                          "__NONEWSECTIONLINK__",
                                          "__NOGALLERY__",
                                          "__HIDDENCAT__",
                                          "__NOCONTENTCONVERT__",
                                          "__NOCC__",
                                          "__NOTITLECONVERT__",
                                          "__NOTC__",
                                          "__START__",
                                          "__END__",
                                          "__INDEX__",
                                          "__NOINDEX__",
                                          "__STATICREDIRECT__",
                                          "__DISAMBIG__",
                                          "__NOEDITSECTION__"};

// Replaces quote...quote within a line by `by`...`by`.
void replace_in_lines(std::string& text, std::string_view quote, std::string_view by) {
  if (text.find(quote) == kNone) return;
  std::string_view all = text;
  std::string out;
  out.reserve(text.size());
  size_t done = 0, line_end = 0;
  for (size_t at = 0; (at = all.find(quote, at)) != kNone;) {
    size_t begin = at + quote.size();
    size_t end = all.find(quote, begin);
    if (end == kNone) break;
    if (line_end < begin) line_end = all.find('\n', begin);
    if (line_end < end) {
      at = line_end;
      continue;
    }
    out.append(all.substr(done, at - done)).append(by);
    out.append(all.substr(begin, end - begin)).append(by);
    at = done = end + quote.size();
  }
  out.append(all.substr(done));
  text = std::move(out);
}

// Replaces open...close by "...": what is between has no double quotes, which both have.
void replace_quoted(std::string& text, std::string_view open, std::string_view close) {
  if (text.find(open) == kNone) return;
  std::string_view all = text;
  std::string out;
  out.reserve(text.size());
  size_t done = 0;
  for (size_t at = 0; (at = all.find(open, at)) != kNone;) {
    size_t begin = at + open.size();
    size_t end = all.find('"', begin);
    if (end == kNone) break;
    if (all.substr(end, close.size()) != close) {
      ++at;
      continue;
    }
    out.append(all.substr(done, at - done)).append("\"");
    out.append(all.substr(begin, end - begin)).append("\"");
    at = done = end + close.size();
  }
  out.append(all.substr(done));
  text = std::move(out);
}

constexpr std::string_view kLeft = "«", kRight = "»";

// Whether a space stays between two texts: not before , : . ) ] » nor behind ( [ «.
bool keeps_space(std::string_view before, std::string_view behind) {
  char next = behind.empty() ? '\0' : behind[0];
  if (next == ',' || next == ':' || next == '.' || next == ')' || next == ']') return false;
  if (behind.starts_with(kRight)) return false;
  return !before.ends_with('[') && !before.ends_with('(') && !before.ends_with(kLeft);
}

// Spaces and tabs become one space or none, four or more dots three.
void shorten_runs(std::string& text) {
  const char *at = text.data(), *last = at + text.size();
  char *begin = text.data(), *to = begin;
  while (at < last) {
    char c = *at++;
    if (c != ' ' && c != '.' && c != '\t') {
      *to++ = c;
      continue;
    }
    const char* run = at - 1;
    bool dots = c == '.';
    while (at < last && (dots ? *at == '.' : *at == ' ' || *at == '\t')) ++at;
    if (dots) {
      for (ptrdiff_t i = std::min<ptrdiff_t>(at - run, 3); i > 0; --i) *to++ = '.';
    } else if (keeps_space({begin, to}, {at, last})) {
      *to++ = ' ';
    }
  }
  text.resize(static_cast<size_t>(to - begin));
}

// Where a line of no words that begins behind the line end at `at` ends; kNone where it has words.
// Two line ends alone are no such line.
size_t end_of_wordless(std::string_view text, size_t at) {
  for (size_t i = at + 1; i < text.size();) {
    Char c = read_at(text, i);
    if (c.code == '\n' && i > at + 1) return i;
    if (is_word(c.code)) return kNone;
    i += c.bytes;
  }
  return kNone;
}

void drop_wordless_lines(std::string& text) {
  std::string_view all = text;
  std::string out;
  out.reserve(text.size());
  size_t done = 0;
  for (size_t at = 0; (at = all.find('\n', at)) != kNone;) {
    size_t end = end_of_wordless(all, at);
    if (end == kNone) {
      ++at;
      continue;
    }
    out.append(all.substr(done, at - done)).append("\n");
    at = done = end + 1;
  }
  out.append(all.substr(done));
  text = std::move(out);
}

struct Heading {
  size_t level;
  std::string_view title;
};

// The first of so many "=" in a row; kNone where there are none.
size_t find_run(std::string_view line, size_t length, size_t from) {
  size_t begin = from;
  for (size_t at = from; at < line.size(); ++at) {
    if (line[at] != '=') begin = at + 1;
    if (at + 1 - begin == length) return begin;
  }
  return kNone;
}

// == Title ==: as many "=" on both sides as there are, at least two.
std::optional<Heading> heading_of(std::string_view line) {
  size_t run = std::min(line.find_first_not_of('='), line.size());
  if (run < 2) return {};
  size_t longest = run / 2, length = 0;  // of the runs that may close it
  for (char c : line.substr(run)) {
    length = c == '=' ? length + 1 : 0;
    longest = std::max(longest, length);
  }
  size_t level = std::min(run, longest);
  if (level < 2) return {};
  size_t begin = skip_space(line, level);
  size_t end = find_run(line, level, begin);
  if (end == kNone) return {};
  return Heading{level, strip_right(line.substr(begin, end - begin))};
}

bool is_prose(std::string_view line) {
  char first = line.front(), last = line.back();
  if (first == '{' || first == '|' || last == '}') return false;
  if (first == '(' && last == ')') return false;
  return line.find_first_not_of(".-") != kNone;
}

std::string with_stop(std::string_view title) {
  std::string text(title);
  if (!text.empty() && text.back() != '!' && text.back() != '?') text += '.';
  return text;
}

class Prose {
 public:
  void line(std::string_view line) {
    if (strip(line).empty()) return;
    if (std::optional<Heading> heading = heading_of(line)) {
      titles_[heading->level] = with_stop(heading->title);
      titles_.erase(titles_.upper_bound(heading->level), titles_.end());
    } else if (line.starts_with("++")) {
      std::string_view title = line.size() > 4 ? line.substr(2, line.size() - 4) : "";
      if (!title.empty()) add(with_stop(title));
    } else if (line[0] == ':') {
      add(line.substr(std::min(line.find_first_not_of(':'), line.size())));
    } else if (line[0] == '*' || line[0] == '#' || line[0] == ';' || !is_prose(line)) {
      return;
    } else {
      for (const auto& [level, title] : titles_) add(title);
      titles_.clear();
      add(line);
    }
  }

  std::string text() { return std::move(text_); }

 private:
  void add(std::string_view line) {
    if (!first_) text_ += '\n';
    first_ = false;
    text_ += line;
  }

  std::map<size_t, std::string> titles_;  // of sections that have no line yet
  std::string text_;
  bool first_ = true;
};

}  // namespace

std::string without_switches(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t done = 0;
  for (size_t at = 0; (at = text.find("__", at)) != kNone;) {
    auto found = std::ranges::find_if(
        kSwitches, [&](std::string_view word) { return text.substr(at, word.size()) == word; });
    if (found == std::end(kSwitches)) {
      ++at;
      continue;
    }
    out.append(text.substr(done, at - done));
    at = done = at + found->size();
  }
  return out.append(text.substr(done));
}

void replace_quotes(std::string& text) {
  replace_in_lines(text, "'''''", "");
  replace_in_lines(text, "'''", "");
  replace_quoted(text, "''\"", "\"''");
  replace_in_lines(text, "''", "\"");
  replace_quoted(text, "\"\"", "\"\"");
  replace_in(text, "'''", "");
  replace_in(text, "''", "\"");
}

void tidy_punctuation(std::string& text) {
  replace_in(text, "<<", "«");
  replace_in(text, ">>", "»");
  shorten_runs(text);
  drop_wordless_lines(text);
  replace_in(text, ",,", ",");
  replace_in(text, ",.", ".");
}

std::string prose_lines(std::string_view text) {
  Prose prose;
  for (size_t at = 0; at <= text.size();) {
    size_t end = std::min(text.find('\n', at), text.size());
    prose.line(text.substr(at, end - at));
    at = end + 1;
  }
  return prose.text();
}

}  // namespace neox::wiki
