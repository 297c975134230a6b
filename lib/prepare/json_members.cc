#include "prepare/json_members.h"

#include <algorithm>
#include <cstdint>

namespace neox {
namespace {

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  // Skips blanks, and then this character.
  bool take(char wanted) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  // A string with its quotes, an object, an array, or what else stands before a mark or a blank;
  // "": none.
  std::string_view value() {
    skip_blanks();
    size_t begin = at_;
    if (at_ == text_.size()) return {};
    if (text_[at_] == '"') {
      skip_string();
    } else if (text_[at_] == '{' || text_[at_] == '[') {
      skip_nested();
    } else {
      at_ = std::min(text_.find_first_of(",}] \t\r\n", at_), text_.size());
    }
    return text_.substr(begin, at_ - begin);
  }

 private:
  void skip_blanks() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }

  void skip_string() {
    for (++at_; at_ < text_.size();) {
      at_ = std::min(text_.find_first_of("\"\\", at_), text_.size());
      if (at_ == text_.size()) return;
      if (text_[at_] == '"') {
        ++at_;
        return;
      }
      at_ = std::min(at_ + 2, text_.size());
    }
  }

  void skip_nested() {
    int64_t depth = 0;
    while (at_ < text_.size()) {
      char c = text_[at_];
      if (c == '"') {
        skip_string();
        continue;
      }
      ++at_;
      if (c == '{' || c == '[') ++depth;
      if ((c == '}' || c == ']') && --depth == 0) return;
    }
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::vector<JsonMember> json_members(std::string_view text) {
  std::vector<JsonMember> members;
  Scanner scanner(text);
  if (!scanner.take('{')) return members;
  do {
    std::string_view key = scanner.value();
    if (key.size() < 2 || key.front() != '"' || !scanner.take(':')) return members;
    std::string_view value = scanner.value();
    if (value.empty()) return members;
    members.push_back({key.substr(1, key.size() - 2), value});
  } while (scanner.take(','));
  return members;
}

}  // namespace neox
