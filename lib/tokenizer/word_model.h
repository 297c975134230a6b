// What makes ids of a piece of text behind the pre-tokenizers of a Hugging Face tokenizer.json.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace neox {

class WordModel {
 public:
  virtual ~WordModel() = default;
  // Appends the ids of a piece, which must be valid UTF-8 and not empty.
  virtual void encode(std::string_view piece, std::vector<int32_t>& ids) const = 0;
  // What becomes of text that no token stands for, in words; "" where there is no such text.
  virtual std::string loss() const = 0;
};

}  // namespace neox
