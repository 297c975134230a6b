#include "prepare/json_array.h"

#include <algorithm>

#include "base/error.h"

namespace neox {
namespace {

constexpr size_t kConvertedAtOnce = 1 << 16;  // that is converted at once, and stays in the cache

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// Calls take(place) for the places behind the commas of elements until it returns false.
template <class Take>
void for_elements(std::string_view text, const Take& take) {
  ArrayLines lines(0);
  std::string piece;
  for (size_t begin = 0; begin < text.size(); begin += piece.size()) {
    piece = text.substr(begin, kConvertedAtOnce);
    lines.convert(piece);
    for (size_t at = piece.find('\n'); at != piece.npos; at = piece.find('\n', at + 1))
      if (!take(begin + at + 1)) return;
  }
}

}  // namespace

void ArrayLines::convert(std::span<char> bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (in_string_) i += plain_bytes(bytes.subspan(i));
    if (i == bytes.size()) break;
    char& c = bytes[i];
    if (c == '\n') c = '\r';
    if (!in_string_)
      take_outside(c, at_ + static_cast<int64_t>(i));
    else if (escaped_)
      escaped_ = false;
    else if (c == '\\')
      escaped_ = true;
    else
      in_string_ = c != '"';
  }
  at_ += std::ssize(bytes);
}

// Before the next one that counts in a string, where most bytes are.
size_t ArrayLines::plain_bytes(std::span<const char> bytes) const {
  if (escaped_) return 0;
  auto counts = [](char c) { return c == '"' || c == '\\' || c == '\n'; };
  return static_cast<size_t>(std::ranges::find_if(bytes, counts) - bytes.begin());
}

// A byte that is in no string, and its place.
void ArrayLines::take_outside(char& c, int64_t at) {
  if (depth_ == 0) {
    if (c == '[' && !ended_) {
      c = ' ';
      depth_ = 1;
      element_at_ = at + 1;
    } else if (ended_ && more_at_ < 0 && !is_blank(c)) {
      more_at_ = at;
    }
    return;
  }
  if (c == '"') {
    in_string_ = true;
  } else if (c == '[' || c == '{') {
    ++depth_;
  } else if (c == ']' || c == '}') {
    ended_ = --depth_ == 0;
    if (ended_) c = ' ';
  } else if (c == ',' && depth_ == 1) {
    c = '\n';
    element_at_ = at + 1;
  }
}

size_t next_element(std::string_view text, size_t at) {
  size_t found = text.size();
  for_elements(text, [&](size_t place) {
    if (place < at) return true;
    found = place;
    return false;
  });
  return found;
}

int64_t count_elements(std::string_view text) {
  int64_t count = 0;
  for_elements(text, [&](size_t) { return ++count, true; });
  return count;
}

size_t ArraySource::read(std::span<char> to) {
  size_t n = from_->read(to);
  lines_.convert(to.first(n));
  begun_ = begun_ || n > 0;
  check_io(lines_.more_at() < 0, path_, ": the JSON array that it is ends before byte ",
           lines_.more_at(), ", and more follows: a closing bracket too many, or several arrays: ",
           "jq -c '.[]' makes a line of each element, jq -c '{text: .}' one of each array");
  // Where nothing is read, what stands before was, to the end.
  check_io(
      n > 0 || to.empty() || !begun_ || to_ == To::kElement || lines_.ended(), path_,
      " ends in the middle of the JSON array that it is: it is cut off, or a bracket or a quote ",
      "is missing in what begins at byte ", lines_.element_at());
  return n;
}

}  // namespace neox
