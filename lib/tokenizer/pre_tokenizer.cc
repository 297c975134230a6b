#include "tokenizer/pre_tokenizer.h"

#include <string>
#include <vector>

#include "tokenizer/bpe.h"

namespace neox {
namespace {

using Behavior = PreTokenizer::Behavior;
using Matches = PreTokenizer::Matches;
using Steps = std::span<const PreTokenizer>;
using Piece = std::function<void(std::string_view)>;

struct Cut {
  size_t begin, end;
  bool is_match;
};

// Covers the text.
std::vector<Cut> cuts_of(const PreTokenizer& step, std::string_view text) {
  std::vector<Cut> cuts;
  size_t last = 0;
  auto found = [&](size_t begin, size_t end) {
    if (begin > last) cuts.push_back({last, begin, step.inverted});
    cuts.push_back({begin, end, !step.inverted});
    last = end;
  };
  if (step.matches == Matches::kPattern) {
    step.pattern.find(text, found);
  } else {
    const unicode::Properties& properties = unicode::Properties::get();
    bool numbers = step.matches == Matches::kNumbers;
    for (size_t at = 0, bytes; at < text.size(); at += bytes) {
      auto [code, size] = unicode::read(text, at);
      bytes = size;
      if (numbers ? properties.numeric(code) : properties.punctuation(code)) found(at, at + bytes);
    }
  }
  if (last < text.size()) cuts.push_back({last, text.size(), step.inverted});
  return cuts;
}

// Whether two that follow each other become one.
bool joins(Behavior behavior, const Cut& first, const Cut& second) {
  switch (behavior) {
    case Behavior::kContiguous:
      return first.is_match == second.is_match;
    case Behavior::kMergedWithPrevious:
      return second.is_match && !first.is_match;
    case Behavior::kMergedWithNext:
      return first.is_match && !second.is_match;
    default:
      return false;
  }
}

void cut(const PreTokenizer& step, std::string_view text, const Piece& piece) {
  std::vector<Cut> cuts = cuts_of(step, text);
  for (size_t i = 0; i < cuts.size(); ++i) {
    size_t begin = cuts[i].begin;
    while (i + 1 < cuts.size() && joins(step.behavior, cuts[i], cuts[i + 1])) ++i;
    bool removed = step.behavior == Behavior::kRemoved && cuts[i].is_match;
    if (!removed && cuts[i].end > begin) piece(text.substr(begin, cuts[i].end - begin));
  }
}

void spell_bytes(const PreTokenizer& step, std::string_view text, const Piece& piece) {
  std::string prefixed;
  if (step.prefix_space && !text.starts_with(' ')) text = prefixed.append(" ").append(text);
  if (step.words == Words::kWhole) return piece(to_byte_level(text));
  for (WordSplitter words(text, step.words); !words.done();) piece(to_byte_level(words.next()));
}

void go_on(Steps steps, std::string_view text, bool spelled, const Piece& piece) {
  if (steps.empty()) {
    std::string bytes;
    if (spelled) from_byte_level(text, bytes), text = bytes;
    return piece(text);
  }
  bool spells = steps[0].matches == Matches::kByteLevel;
  auto next = [&](std::string_view part) {
    go_on(steps.subspan(1), part, spelled || spells, piece);
  };
  spells ? spell_bytes(steps[0], text, next) : cut(steps[0], text, next);
}

}  // namespace

void pre_tokenize(Steps steps, std::string_view text, const Piece& piece) {
  go_on(steps, text, false, piece);
}

}  // namespace neox
