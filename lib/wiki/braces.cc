#include "wiki/braces.h"

#include <algorithm>
#include <cstdint>

#include "wiki/text.h"

namespace neox::wiki {

namespace {

// Several equal braces or brackets in a row.
struct Run {
  char brace = 0;  // 0: there is none
  size_t begin = 0, end = 0;
  int64_t length() const { return static_cast<int64_t>(end - begin); }
};

class Matcher {
 public:
  Matcher(std::string_view text, Braces which) : text_(text), which_(which) {}

  std::vector<Span> spans() {
    size_t from = 0;
    while (true) {
      Run first = next_opening(from);
      if (!first.brace) return std::move(found_);
      size_t begin = first.begin;
      if (first.brace == '{' && first.length() > 3) begin = first.end - 3;
      open_ = {first.brace == '{' ? static_cast<int64_t>(first.end - begin) : -first.length()};
      if (!close(begin, first.begin, first.end, from)) return std::move(found_);
    }
  }

 private:
  bool brackets() const { return which_ == Braces::kAll; }

  // The next two or more of a kind at or behind `at`.
  Run next_run(size_t at) const {
    while ((at = brackets() ? find_char<'{', '}', '[', ']'>(text_, at)
                            : find_char<'{', '}'>(text_, at)) != kNone) {
      size_t end = at + 1;
      while (end < text_.size() && text_[end] == text_[at]) ++end;
      if (end > at + 1) return {text_[at], at, end};
      at = end;
    }
    return {};
  }

  Run next_opening(size_t at) const {
    int64_t least = which_ == Braces::kParameters ? 3 : 2;
    while (true) {
      Run run = next_run(at);
      if (!run.brace) return run;
      if ((run.brace == '{' && run.length() >= least) || run.brace == '[') return run;
      at = run.end;
    }
  }

  // Looks for what closes all that is open, from `at`; false: nothing does. `from` is where to go
  // on then.
  bool close(size_t begin, size_t run_begin, size_t at, size_t& from) {
    while (true) {
      Run run = next_run(at);
      if (!run.brace) return false;
      at = run.end;
      if (run.brace == '{') {
        open_.push_back(run.length());
      } else if (run.brace == '[') {
        open_.push_back(-run.length());
      } else if (run.brace == '}' ? close_braces(begin, run) : close_brackets(run_begin, run)) {
        from = at;
        return true;
      } else if (run.brace == ']') {
        from = at;  // brackets that nothing opened are text
      }
    }
  }

  bool close_braces(size_t begin, const Run& run) {
    int64_t left = run.length();
    while (!open_.empty()) {
      int64_t opened = open_.back();
      open_.pop_back();
      if (opened == 0) continue;
      if (left < opened) {
        open_.push_back(opened - left);
        break;
      }
      left -= opened;
      if (left <= 1) break;
    }
    if (open_.empty()) {
      found_.push_back({begin, static_cast<size_t>(static_cast<int64_t>(run.end) - left)});
      return true;
    }
    if (open_.size() == 1 && open_[0] > 0 && open_[0] < static_cast<int64_t>(which_)) {
      found_.push_back({begin + static_cast<size_t>(open_[0]), run.end});
      return true;
    }
    return false;
  }

  bool close_brackets(size_t begin, const Run& run) {
    int64_t left = run.length();
    while (!open_.empty() && open_.back() < 0) {
      int64_t opened = -open_.back();
      open_.pop_back();
      if (left < opened) {
        open_.push_back(left - opened);
        break;
      }
      left -= opened;
      if (left <= 1) break;
    }
    if (!open_.empty()) return false;
    found_.push_back({begin, static_cast<size_t>(static_cast<int64_t>(run.end) - left)});
    return true;
  }

  std::string_view text_;
  Braces which_;
  std::vector<int64_t> open_;  // lengths of opening runs, those of brackets negative
  std::vector<Span> found_;
};

}  // namespace

std::vector<Span> match_braces(std::string_view text, Braces which) {
  return Matcher(text, which).spans();
}

std::vector<std::string_view> split_parts(std::string_view text) {
  std::vector<std::string_view> parts;
  parts.reserve(8);
  size_t begin = 0, at = 0;
  auto split_until = [&](size_t end) {
    for (size_t bar; (bar = text.find('|', at)) < end; begin = at = bar + 1) {
      parts.push_back(text.substr(begin, bar - begin));
    }
  };
  if (find_char<'{', '['>(text, 0) != kNone) {
    for (const Span& span : match_braces(text, Braces::kAll)) {
      split_until(span.begin);
      at = std::max(at, span.end);
    }
  }
  split_until(text.size());
  parts.push_back(text.substr(begin));
  return parts;
}

}  // namespace neox::wiki
