#include "wiki/tags.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <vector>

#include "base/text.h"
#include "wiki/nested.h"
#include "wiki/tag_scan.h"

namespace neox::wiki {

namespace {

// Patterns that drop_tags() looks for; each goes on behind what it found.
constexpr std::string_view kDropped[] = {
    "abbr",   "b",      "bdi", "big",    "blockquote", "cite", "div", "em",      "font",
    "hiero",  "i",      "kbd", "nowiki", "plaintext",  "poem", "s",   "section", "span",
    "strike", "strong", "sub", "sup",    "tt",         "u",    "var", "a"};
constexpr std::string_view kSelfClosing[] = {"nobr",           "ref",    "references", "nowiki",
                                             "templatestyles", "section"};
constexpr size_t kNumDropped = std::size(kDropped), kNumSelfClosing = std::size(kSelfClosing);
// Openings, closings, self-closing tags, comments.
constexpr size_t kNumPatterns = 2 * kNumDropped + kNumSelfClosing + 1;

struct Numbers {
  size_t dropped = kNone, self_closing = kNone;
};

Numbers numbers_of(std::string_view name) {
  static const std::unordered_map<std::string_view, Numbers> table = [] {
    std::unordered_map<std::string_view, Numbers> made;
    for (size_t i = 0; i < kNumDropped; ++i) made[kDropped[i]].dropped = i;
    for (size_t i = 0; i < kNumSelfClosing; ++i) made[kSelfClosing[i]].self_closing = i;
    return made;
  }();
  if (name.empty() || name.size() > 14) return {};
  auto found = table.find(lower_case(name));
  return found == table.end() ? Numbers{} : found->second;
}

// The spans of tags and comments, from left to right.
class DroppedTags {
 public:
  explicit DroppedTags(std::string_view text) : text_(text) {}

  std::vector<Span> find() {
    for (size_t at = 0; (at = text_.find('<', at)) != kNone; ++at) {
      shortest_ = kNone;
      at_ = at;
      look();
      if (shortest_ == kNone || at < done_) continue;
      spans_.push_back({at, shortest_});
      done_ = shortest_;
    }
    return std::move(spans_);
  }

 private:
  void look() {
    if (text_.substr(at_, 4) == "<!--") return look_for_comment();
    TagHead head = read_tag_head(text_, at_);
    Numbers numbers = numbers_of(head.name);
    if (numbers.dropped != kNone && !head.blank) {
      size_t end = head.closing ? end_of_closing(text_, head) : next_end(head.end);
      match(2 * numbers.dropped + (head.closing ? 1 : 0), end);
    }
    if (numbers.self_closing == kNone || head.closing) return;
    bool slash = kSelfClosing[numbers.self_closing] != "nobr";
    match(2 * kNumDropped + numbers.self_closing, end_of_self_closing(head.end, slash));
  }

  void look_for_comment() {
    size_t end = no_comment_ ? kNone : text_.find("-->", at_ + 4);
    no_comment_ = end == kNone;
    match(kNumPatterns - 1, no_comment_ ? kNone : end + 2);
  }

  // `last` is the place of the ">".
  void match(size_t pattern, size_t last) {
    if (last == kNone || at_ < found_until_[pattern]) return;
    found_until_[pattern] = last + 1;
    shortest_ = std::min(shortest_, last + 1);
  }

  size_t next_end(size_t at) {
    if (no_end_) return kNone;
    size_t end = text_.find('>', at);
    no_end_ = end == kNone;
    return end;
  }

  size_t end_of_self_closing(size_t from, bool slash) const {
    size_t end = end_of_opening(text_, from);
    if (end == kNone || !slash) return end;
    std::string_view inside = strip_right(text_.substr(from, end - from));
    return inside.ends_with('/') ? end : kNone;
  }

  std::string_view text_;
  size_t at_ = 0, done_ = 0, shortest_ = kNone;
  bool no_end_ = false, no_comment_ = false;
  std::array<size_t, kNumPatterns> found_until_{};
  std::vector<Span> spans_;
};

// Replaces the tags that end_of(head, at) gives the last place of by the separator, where no white
// space stands on either side.
template <class EndOf>
void separate(std::string& text, char separator, EndOf end_of) {
  std::string_view all = text;
  std::string out;
  size_t done = 0;
  for (size_t at = 0; (at = all.find('<', at)) != kNone;) {
    size_t end = end_of(read_tag_head(all, at));
    if (end == kNone) {
      ++at;
      continue;
    }
    ++end;
    out.append(all.substr(done, at - done));
    bool apart =
        at > 0 && end < all.size() && !is_space(read_before(all, at).code) && !space_at(all, end);
    if (apart) out += separator;
    at = done = end;
  }
  if (done == 0) return;
  out.append(all.substr(done));
  text = std::move(out);
}

bool is_block(std::string_view name) {
  if (name.size() == 2) return ascii_lower(name[0]) == 'h' && name[1] >= '1' && name[1] <= '4';
  return is_name(name, "p") || is_name(name, "center");
}

}  // namespace

void replace_break_tags(std::string& text) {
  separate(text, ' ', [&](const TagHead& head) {
    if (!is_name(head.name, "br") && !is_name(head.name, "hr")) return kNone;
    if (!head.closing) return end_of_opening(text, head.end);
    return head.blank ? kNone : end_of_closing(text, head);
  });
  bool no_end = false;
  separate(text, '\n', [&](const TagHead& head) {
    if (head.blank || !is_block(head.name)) return kNone;
    if (head.closing) return end_of_closing(text, head);
    size_t end = no_end ? kNone : text.find('>', head.end);
    no_end = end == kNone;
    return end;
  });
}

void drop_tags(std::string& text) { drop_spans(text, DroppedTags(text).find()); }

}  // namespace neox::wiki
