// What makes ids of a piece of text behind the pre-tokenizers of a Hugging Face tokenizer.json.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace neox {

class WordModel {
 public:
  virtual ~WordModel() = default;
  // Appends the ids of a piece, which must be valid UTF-8 and not empty.
  virtual void encode(std::string_view piece, std::vector<int32_t>& ids) const = 0;
  // What becomes of text that no token stands for, in words; "" where there is no such text.
  virtual std::string loss() const = 0;

 protected:
  static std::string becomes(std::string_view unknown, int32_t id) {
    return concat("becomes ", unknown, " (", id, ")");
  }
};

}  // namespace neox
