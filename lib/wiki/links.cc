#include "wiki/links.h"

#include <algorithm>
#include <vector>

#include "wiki/braces.h"
#include "wiki/text.h"

namespace neox::wiki {

namespace {

// Calls use(place, opens) for each two brackets of a kind, from left to right.
template <class Use>
void for_pairs(std::string_view text, Use use) {
  for (size_t at = 0; (at = find_char<'[', ']'>(text, at)) != kNone;) {
    bool pair = at + 1 < text.size() && text[at + 1] == text[at];
    if (pair) use(at, text[at] == '[');
    at += pair ? 2 : 1;
  }
}

// The outermost [[ ]] of a text, in order; what is not closed ends the search.
std::vector<Span> balanced(std::string_view text) {
  std::vector<Span> spans;
  size_t depth = 0, begin = 0, at = text.find("[[");
  while (at != kNone) {
    if (text[at] == '[') {
      if (depth++ == 0) begin = at;
    } else if (--depth == 0) {
      spans.push_back({begin, at + 2});
    }
    at += 2;
    if (depth == 0) {
      at = text.find("[[", at);
      continue;
    }
    while ((at = find_char<'[', ']'>(text, at)) != kNone) {
      if (at + 1 < text.size() && text[at + 1] == text[at]) break;
      ++at;
    }
  }
  return spans;
}

// Links by the place where they open, ascending; close is kNone where nothing closes them.
struct Closing {
  size_t open, close;
};

std::vector<Closing> closings(std::string_view text) {
  std::vector<Closing> found;
  std::vector<size_t> open;
  for_pairs(text, [&](size_t at, bool opens) {
    if (opens) {
      open.push_back(found.size());
      found.push_back({at, kNone});
    } else if (!open.empty()) {
      found[open.back()].close = at;
      open.pop_back();
    }
  });
  return found;
}

// [[[[page]]]], a common mistake: as many brackets too many on both sides, or never closed, or
// closed by the end of the text, become two.
std::string collapse_doubled(std::string_view text) {
  if (text.find("[[[") == kNone) return std::string(text);
  std::vector<Closing> links = closings(text);
  std::string out;
  size_t done = 0;
  for (size_t at; (at = text.find("[[[", done)) != kNone;) {
    size_t inside = std::min(text.find_first_not_of('[', at), text.size());
    size_t excess = inside - at - 2;
    out.append(text.substr(done, at - done));
    // The last pair of the run, which begins at the run's begin or an even number behind it.
    size_t pair = at + (inside - at - 2) / 2 * 2;
    auto link = std::ranges::lower_bound(links, pair, {}, &Closing::open);
    size_t close = link == links.end() ? kNone : link->close;
    done = inside;
    if (close == kNone) {
      out += "[[";
    } else if (text.substr(close + 2, excess) == std::string(excess, ']')) {
      out.append("[[").append(text.substr(inside, close + 2 - inside));
      done = close + 2 + excess;
    } else {
      out += close + 2 == text.size() ? "[[" : text.substr(at, inside - at);
    }
  }
  return out.append(text.substr(done));
}

constexpr std::string_view kUnclosed{"\0\0", 2};  // stands for "[[" that nothing closes

void hide_unclosed(std::string& text) {
  std::vector<size_t> open;
  for_pairs(text, [&](size_t at, bool opens) {
    if (opens) {
      open.push_back(at);
    } else if (!open.empty()) {
      open.pop_back();
    }
  });
  for (size_t at : open) text.replace(at, 2, kUnclosed);
}

bool kept_prefix(std::string_view prefix) {
  return prefix == "w" || prefix == "wiktionary" || prefix == "wikt";
}

bool keeps(std::string_view title) {
  size_t colon = title.find(':');
  if (colon == kNone) return true;
  if (colon > 0) return kept_prefix(title.substr(0, colon));
  size_t second = title.find(':', 1);  // [[:File:...]]
  return second == kNone || second < 2 || kept_prefix(title.substr(1, second - 1));
}

// The text of a link for what is between its brackets.
std::string_view label_of(std::string_view inside) {
  size_t bar = inside.find('|');
  if (bar == kNone) return keeps(inside) ? inside : std::string_view();
  if (!keeps(strip_right(inside.substr(0, bar)))) return {};
  size_t from = bar + 1;
  for (const Span& link : balanced(inside)) {
    // The last bar before a link in the label, behind the one before it.
    if (link.begin > from) {
      size_t last = inside.substr(from, link.begin - from).rfind('|');
      if (last != kNone) bar = from + last;
    }
    from = link.end;
  }
  return strip(inside.substr(bar + 1));
}

constexpr std::string_view kProtocols[] = {
    "bitcoin:", "ftp://",   "ftps://",   "geo:",    "git://",       "gopher://", "http://",
    "https://", "irc://",   "ircs://",   "magnet:", "mailto:",      "mms://",    "news:",
    "nntp://",  "redis://", "sftp://",   "sip:",    "sips:",        "sms:",      "ssh://",
    "svn://",   "tel:",     "telnet://", "urn:",    "worldwind://", "xmpp:",     "//"};

bool url_char(char32_t code) {
  if (code <= 0x20 || code == 0x7F || is_space(code)) return false;
  return code != '[' && code != ']' && code != '<' && code != '>' && code != '"';
}

size_t skip_url(std::string_view text, size_t at) {
  while (at < text.size()) {
    Char c = read_at(text, at);
    if (!url_char(c.code)) break;
    at += c.bytes;
  }
  return at;
}

// The end of an address that begins there; kNone where none does.
size_t end_of_url(std::string_view text, size_t at) {
  constexpr size_t kLongest = 12;  // of the protocols
  std::string_view head = text.substr(at, kLongest);
  if (head.find(':') == kNone && !head.starts_with("//")) return kNone;
  for (std::string_view protocol : kProtocols) {
    if (!has_word_at(text, at, protocol)) continue;
    size_t begin = at + protocol.size(), end = skip_url(text, begin);
    if (end > begin) return end;
  }
  return kNone;
}

bool image_char(char32_t code) {
  if (code >= 0x80) return code <= 0xFF;
  return is_word(code) ||
         std::string_view(".,~%-+&;#*?!=()@").find(static_cast<char>(code)) != kNone;
}

// http://host/name.jpg
bool is_image(std::string_view label) {
  size_t host = has_word_at(label, 0, "http://") ? 7 : has_word_at(label, 0, "https://") ? 8 : 0;
  if (host == 0) return false;
  std::string_view name = label;
  size_t dot = name.rfind('.');
  if (dot == kNone) return false;
  std::string kind = to_lower(name.substr(dot + 1));
  if (kind != "gif" && kind != "png" && kind != "jpg" && kind != "jpeg") return false;
  size_t slash = label.rfind('/');
  if (slash <= host || slash + 1 >= dot || skip_url(label, host) < slash) return false;
  for (size_t at = slash + 1; at < dot;) {
    Char c = read_at(label, at);
    if (!image_char(c.code)) return false;
    at += c.bytes;
  }
  return true;
}

// The first character that cannot be in a label: "]" or a control character.
size_t end_of_label(std::string_view text, size_t at) {
  while (at < text.size()) {
    auto c = static_cast<unsigned char>(text[at]);
    if (c == ']' || (c < 0x20 && c != '\t')) break;
    ++at;
  }
  return at;
}

}  // namespace

std::string replace_external_links(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t done = 0, open_until = 0;  // labels that begin before open_until are not closed
  for (size_t at = 0; (at = text.find('[', at)) != kNone;) {
    size_t url_end = end_of_url(text, ++at);
    if (url_end == kNone) continue;
    size_t label = skip_space(text, url_end);
    if (label < open_until) continue;
    size_t end = end_of_label(text, label);
    if (end == text.size() || text[end] != ']') {
      open_until = end;
      continue;
    }
    out.append(text.substr(done, at - 1 - done));
    std::string_view words = text.substr(label, end - label);
    if (!is_image(words)) out += words;
    at = done = end + 1;
  }
  return out.append(text.substr(done));
}

std::string replace_internal_links(std::string_view text) {
  std::string source = collapse_doubled(text);
  hide_unclosed(source);
  std::string out;
  out.reserve(source.size());
  std::string_view all = source;
  size_t done = 0;
  for (const Span& link : balanced(all)) {
    out.append(all.substr(done, link.begin - done));
    out += label_of(all.substr(link.begin + 2, link.end - link.begin - 4));
    for (done = link.end; word_at(all, done); done += read_at(all, done).bytes) {
      out.append(all.substr(done, read_at(all, done).bytes));  // the rest of the word
    }
  }
  out.append(all.substr(done));
  replace_in(out, kUnclosed, "[[");
  return out;
}

}  // namespace neox::wiki
