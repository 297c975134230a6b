// Elements that may enclose each other, dropped with what they enclose.
#pragma once
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "wiki/braces.h"

namespace neox::wiki {

// Drops the spans, which are sorted; one that begins within another is left out.
inline void drop_spans(std::string& text, const std::vector<Span>& spans) {
  if (spans.empty()) return;
  char* to = text.data() + spans[0].begin;
  size_t done = spans[0].begin;
  auto keep_until = [&](size_t end) {
    std::memmove(to, text.data() + done, end - done);
    to += end - done;
  };
  for (const Span& span : spans) {
    if (span.begin < done) continue;
    keep_until(span.begin);
    done = span.end;
  }
  keep_until(text.size());
  text.resize(static_cast<size_t>(to - text.data()));
}

// The spans from openings to closings, paired as dropNested() of wikiextractor 3.1.0 pairs them: an
// opening directly behind a closing counts as enclosed; where closings are missing, all from the
// first span's begin to the last closing. open(from) and close(from) give the next
// std::optional<Span> at or behind a place.
template <class Open, class Close>
class NestedSpans {
 public:
  NestedSpans(Open open, Close close) : open_(open), close_(close) {}

  std::vector<Span> find() {
    start_ = open_(0);
    if (!start_) return {};
    end_ = close_(start_->end);
    std::optional<Span> next = start_;
    while (end_) {
      next = open_(next->end);
      if (!next) {
        close_pending();
        break;
      }
      close_before(*next);
      if (next->begin != start_->begin) ++depth_;
    }
    return std::move(spans_);
  }

 private:
  void close_pending() {
    for (; depth_ > 0; --depth_) {
      std::optional<Span> further = close_(end_->end);
      if (!further) break;
      end_ = further;
    }
    spans_.push_back({start_->begin, end_->end});
  }

  void close_before(const Span& next) {
    while (end_->end < next.begin) {
      if (depth_ == 0) {
        spans_.push_back({start_->begin, end_->end});
        start_ = next;
        end_ = close_(next.end);
        return;
      }
      --depth_;
      size_t last = end_->end;
      end_ = close_(last);
      if (!end_) {
        spans_ = {{spans_.empty() ? start_->begin : spans_[0].begin, last}};
        return;
      }
    }
  }

  Open open_;
  Close close_;
  std::optional<Span> start_, end_;
  size_t depth_ = 0;
  std::vector<Span> spans_;
};

template <class Open, class Close>
void drop_nested(std::string& text, Open open, Close close) {
  drop_spans(text, NestedSpans(open, close).find());
}

}  // namespace neox::wiki
