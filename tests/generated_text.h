// Text made on the spot for tests of the tokenizer: the same in tests/oracle/tokenizer_golden.py.
// And texts as what a tokenizer learns from.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tokenizer/bpe_trainer.h"

namespace neox {

// The documents, one after another.
inline NextDocument each(const std::vector<std::string>& documents) {
  return [documents, at = size_t{0}](std::string& text) mutable {
    if (at == documents.size()) return false;
    text = documents[at++];
    return true;
  };
}

class TextGenerator {
 public:
  explicit TextGenerator(uint32_t seed) : state_(seed) {}

  // Syllables, spaces, digits and marks, one after another.
  std::string text(int parts) {
    static const std::vector<std::string> kParts = {"ka",
                                                    "to",
                                                    "mi",
                                                    "ren",
                                                    "shi",
                                                    "the",
                                                    "and",
                                                    "of",
                                                    " ",
                                                    " ",
                                                    " ",
                                                    " ",
                                                    " ",
                                                    " ",
                                                    "\n",
                                                    "  ",
                                                    "7",
                                                    "42",
                                                    "'s",
                                                    "'ll",
                                                    ".",
                                                    ", ",
                                                    "--",
                                                    "\xC3\xA9",
                                                    "e\xCC\x81",
                                                    "\xC3\xB1",
                                                    "\xE4\xB8\xAD",
                                                    "\xE6\x96\x87",
                                                    "\xED\x95\x9C",
                                                    "\xF0\x9F\x99\x82",
                                                    "ing",
                                                    "er"};
    std::string made;
    for (int i = 0; i < parts; ++i) made += kParts[next() % kParts.size()];
    return made;
  }
  std::vector<std::string> documents(int count, int parts) {
    std::vector<std::string> made;
    for (int i = 0; i < count; ++i) made.push_back(text(parts));
    return made;
  }
  uint32_t next() {
    state_ = state_ * 1664525u + 1013904223u;
    return state_ >> 16;
  }

 private:
  uint32_t state_;
};

// FNV-1a, 64 bits.
inline uint64_t fnv(const void* data, size_t bytes) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (size_t i = 0; i < bytes; ++i)
    hash = (hash ^ static_cast<const uint8_t*>(data)[i]) * 0x100000001B3u;
  return hash;
}

}  // namespace neox
