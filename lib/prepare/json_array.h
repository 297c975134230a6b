// A file that is one JSON array, as JSON lines: each element is a line, and stands at the bytes
// where it stands in the array.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "prepare/byte_source.h"

namespace neox {

class ArrayLines {
 public:
  // byte: of the file, from which on it is converted; its beginning, or behind the comma of an
  // element.
  explicit ArrayLines(int64_t byte) : at_(byte), element_at_(byte), depth_(byte > 0) {}

  // The next bytes, in place. The comma behind an element becomes the line end. Other line ends
  // become '\r', which means the same between values and is as wrong in a string, and the brackets
  // of the array spaces.
  void convert(std::span<char> bytes);

  bool ended() const { return ended_; }
  int64_t element_at() const { return element_at_; }  // the byte where the last one begins
  // The first byte behind the array that is no white space; -1: none so far.
  int64_t more_at() const { return more_at_; }

 private:
  size_t plain_bytes(std::span<const char> bytes) const;
  void take_outside(char& c, int64_t at);

  int64_t at_, element_at_, more_at_ = -1;
  int64_t depth_;  // of brackets
  bool in_string_ = false, escaped_ = false, ended_ = false;
};

// In the text of an array from its beginning: the first place at or behind `at` where an element
// begins behind a comma; the size of the text where there is none.
size_t next_element(std::string_view text, size_t at);
// How many elements end before the end of the text.
int64_t count_elements(std::string_view text);

// The lines of an array whose bytes are those of `from`, which begins at this byte of the file.
// Throws Error (74) where the array does not end, if kEnd says that it must, or goes on behind its
// end.
class ArraySource : public ByteSource {
 public:
  enum class To { kElement, kEnd };
  ArraySource(std::string path, std::unique_ptr<ByteSource> from, int64_t byte, To to)
      : path_(std::move(path)), from_(std::move(from)), lines_(byte), to_(to) {}
  size_t read(std::span<char> to) override;
  int64_t consumed() const override { return from_->consumed(); }

 private:
  std::string path_;
  std::unique_ptr<ByteSource> from_;
  ArrayLines lines_;
  To to_;
  bool begun_ = false;
};

}  // namespace neox
