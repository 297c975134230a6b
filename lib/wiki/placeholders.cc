// Elements of which a name and a number stay.
#include <optional>
#include <string>
#include <unordered_map>

#include "wiki/nested.h"
#include "wiki/tag_scan.h"

namespace neox::wiki {

namespace {

class Placeholders {
 public:
  Placeholders(std::string_view text, std::string_view tag, std::string_view name)
      : text_(text), tag_(tag), name_(name) {}

  // The text with placeholders, empty where it has no such element.
  std::string replaced() {
    std::string out;
    size_t done = 0;
    for (std::optional<Span> span; (span = next(done));) {
      out.append(text_.substr(done, span->begin - done));
      std::string_view element = text_.substr(span->begin, span->end - span->begin);
      ++number_;
      append(out, element);
      done = span->end;
    }
    return done == 0 ? std::string() : out.append(text_.substr(done));
  }

 private:
  // Of equal elements all have the first one's number. An element may end with an earlier one: then
  // that part is replaced.
  void append(std::string& out, std::string_view element) {
    if (auto known = numbers_.find(element); known != numbers_.end()) {
      return append_name(out, known->second);
    }
    int looked_at = 0;
    for (size_t at = element.rfind('<', element.size() - 2);
         at != 0 && at != kNone && looked_at < 8; at = element.rfind('<', at - 1), ++looked_at) {
      auto known = numbers_.find(element.substr(at));
      if (known == numbers_.end()) continue;
      out.append(element.substr(0, at));
      return append_name(out, known->second);
    }
    numbers_.emplace(element, number_);
    append_name(out, number_);
  }

  void append_name(std::string& out, int number) const {
    out.append(name_).append("_").append(std::to_string(number));
  }

  std::optional<Span> next(size_t from) {
    for (size_t at = from; !no_end_ && (at = text_.find('<', at)) != kNone; ++at) {
      TagHead head = read_tag_head(text_, at);
      if (head.closing || !is_name(head.name, tag_)) continue;
      size_t opened = end_of_head(head.end);
      if (opened == kNone) continue;
      size_t end = close(opened + 1);
      if (end != kNone) return Span{at, end + 1};
      no_end_ = true;
    }
    return {};
  }

  // <math > or <math attributes>
  size_t end_of_head(size_t at) {
    size_t end = skip_space(text_, at);
    if (end < text_.size() && text_[end] == '>') return end;
    if (no_bracket_ || at >= text_.size() || text_[at] != ' ') return kNone;
    end = text_.find('>', at + 2);
    no_bracket_ = end == kNone;
    return end;
  }

  size_t close(size_t from) const {
    for (size_t at = from; (at = text_.find('<', at)) != kNone; ++at) {
      TagHead head = read_tag_head(text_, at);
      if (!head.closing || !is_name(head.name, tag_)) continue;
      size_t end = end_of_closing(text_, head);
      if (end != kNone) return end;
    }
    return kNone;
  }

  std::string_view text_, tag_, name_;
  int number_ = 0;
  bool no_end_ = false, no_bracket_ = false;  // none follows
  std::unordered_map<std::string_view, int> numbers_;
};

}  // namespace

void replace_placeholders(std::string& text) {
  for (auto [tag, name] : {std::pair("math", "formula"), std::pair("code", "codice")}) {
    std::string replaced = Placeholders(text, tag, name).replaced();
    if (!replaced.empty()) text = std::move(replaced);
  }
}

}  // namespace neox::wiki
