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

// Calls found(cut) for each match and what lies between; they cover the text.
template <class Found>
void each_cut(const PreTokenizer& step, std::string_view text, const Found& found) {
  size_t last = 0;
  auto match = [&](size_t begin, size_t end) {
    if (begin > last) found(Cut{last, begin, step.inverted});
    found(Cut{begin, end, !step.inverted});
    last = end;
  };
  if (step.matches == Matches::kPattern) {
    step.pattern.find(text, match);
  } else {
    const unicode::Properties& properties = unicode::Properties::get();
    auto each = [&](const auto& is_match) {
      for (size_t at = 0; at < text.size();) {
        auto [code, bytes] = unicode::read(text, at);
        if (is_match(code)) match(at, at + bytes);
        at += bytes;
      }
    };
    if (step.matches == Matches::kPunctuation)
      each([&](char32_t code) { return properties.punctuation(code); });
    else
      each([&](char32_t code) { return properties.numeric(code); });
  }
  if (last < text.size()) found(Cut{last, text.size(), step.inverted});
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
  bool removes = step.behavior == Behavior::kRemoved;
  auto give = [&](size_t begin, size_t end) {
    if (end > begin) piece(text.substr(begin, end - begin));
  };
  if (removes || step.behavior == Behavior::kIsolated)
    return each_cut(step, text, [&](const Cut& one) {
      if (!removes || !one.is_match) give(one.begin, one.end);
    });
  std::vector<Cut> cuts;
  each_cut(step, text, [&](const Cut& one) { cuts.push_back(one); });
  for (size_t i = 0; i < cuts.size(); ++i) {
    size_t begin = cuts[i].begin;
    while (i + 1 < cuts.size() && joins(step.behavior, cuts[i], cuts[i + 1])) ++i;
    give(begin, cuts[i].end);
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
  if (steps.size() == 1 && !spells && !spelled) return cut(steps[0], text, piece);
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
