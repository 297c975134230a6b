#include "tokenizer/pre_tokenizer.h"

#include <string>
#include <utility>
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

// Calls match(begin, end) for each character that is one.
template <class Match, class Is>
void match_each(std::string_view text, const Match& match, const Is& is_match) {
  for (size_t at = 0; at < text.size();) {
    auto [code, bytes] = unicode::read(text, at);
    if (is_match(code)) match(at, at + bytes);
    at += bytes;
  }
}

// And for each run of characters of one kind, which kind_of(code) numbers: below 0 they join none.
template <class Match, class Kind>
void match_runs(std::string_view text, const Match& match, const Kind& kind_of) {
  size_t begin = 0;
  int kind = -1;
  for (size_t at = 0; at < text.size();) {
    auto [code, bytes] = unicode::read(text, at);
    if (int next = kind_of(code); next != kind) {
      if (kind >= 0) match(begin, at);
      kind = next, begin = at;
    }
    at += bytes;
  }
  if (kind >= 0 && begin < text.size()) match(begin, text.size());
}

template <class Match>
void match_lengths(std::string_view text, size_t length, const Match& match) {
  for (size_t begin = 0, at = 0; begin < text.size(); begin = at) {
    for (size_t i = 0; i < length && at < text.size(); ++i) at += unicode::read(text, at).bytes;
    match(begin, at);
  }
}

// Hiragana and Katakana count as Han; what goes with all scripts goes on with the one before, and
// is lost in front of the first, as in `tokenizers`.
template <class Match>
void match_scripts(std::string_view text, const Match& match) {
  constexpr char32_t kHan = 0x4E00, kHiragana = 0x3042, kKatakana = 0x30A2, kLongVowel = 0x30FC;
  using unicode::script_of;
  int last = -1;
  match_runs(text, match, [&](char32_t code) {
    int script = code == kLongVowel ? script_of(kHan) : script_of(code);
    if (script == script_of(kHiragana) || script == script_of(kKatakana)) script = script_of(kHan);
    return last = script < 0 ? last : script;
  });
}

// Calls match(begin, end) for each, from left to right.
template <class Match>
void each_match(const PreTokenizer& step, std::string_view text, const Match& match) {
  const unicode::Properties& properties = unicode::Properties::get();
  switch (step.matches) {
    case Matches::kPattern:
      return step.pattern.find(text, match);
    case Matches::kNumbers:
      return match_each(text, match, [&](char32_t code) { return properties.numeric(code); });
    case Matches::kPunctuation:
      return match_each(text, match, [&](char32_t code) { return properties.punctuation(code); });
    case Matches::kSpaces:
      return match_each(text, match, unicode::is_space);
    case Matches::kRuns:
      return match_runs(text, match, [&](char32_t code) {
        return properties.word_character(code) ? 1 : unicode::is_space(code) ? -1 : 0;
      });
    case Matches::kLength:
      return match_lengths(text, step.length, match);
    case Matches::kScripts:
      return match_scripts(text, match);
    default:
      return;
  }
}

// Calls found(cut) for each match and what lies between; they cover the text.
template <class Found>
void each_cut(const PreTokenizer& step, std::string_view text, const Found& found) {
  size_t last = 0;
  each_match(step, text, [&](size_t begin, size_t end) {
    if (begin > last) found(Cut{last, begin, step.inverted});
    found(Cut{begin, end, !step.inverted});
    last = end;
  });
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

// The text with marks for spaces.
std::string with_marks(const PreTokenizer& step, std::string_view text, bool first) {
  std::string marked;
  bool has_mark = text.starts_with(' ') || text.starts_with(step.mark);
  if (first && !has_mark) marked = step.mark;
  for (size_t space; (space = text.find(' ')) != text.npos; text.remove_prefix(space + 1))
    marked.append(text.substr(0, space)).append(step.mark);
  return marked.append(text);
}

bool prefixes(const PreTokenizer& step, PiecePlace place) {
  using Prefix = PreTokenizer::Prefix;
  return place == PiecePlace::kFirst
             ? step.prefix != Prefix::kNone
             : step.prefix == Prefix::kAlways && place != PiecePlace::kInside;
}

void mark_spaces(const PreTokenizer& step, std::string_view text, PiecePlace place,
                 const Piece& piece) {
  std::string marked = with_marks(step, text, prefixes(step, place));
  std::string_view rest = marked;
  for (size_t at; step.splits && (at = rest.find(step.mark, 1)) != rest.npos;) {
    piece(rest.substr(0, at));
    rest.remove_prefix(at);
  }
  piece(rest);
}

void spell_bytes(const PreTokenizer& step, std::string_view text, PiecePlace place,
                 const Piece& piece) {
  std::string prefixed;
  if (prefixes(step, place) && !text.starts_with(' ')) text = prefixed.append(" ").append(text);
  if (step.words == Words::kWhole) return piece(to_byte_level(text));
  for (WordSplitter words(text, step.words); !words.done();) piece(to_byte_level(words.next()));
}

struct Walk {
  Spelling spelling;
  const Piece& piece;

  void go_on(Steps steps, std::string_view text, PiecePlace place, bool spelled) const {
    if (steps.empty()) {
      std::string bytes;
      if (spelled) from_byte_level(text, bytes), text = bytes;
      return piece(text);
    }
    const PreTokenizer& step = steps[0];
    bool writes_bytes = step.matches == Matches::kByteLevel;
    bool writes_marks = step.matches == Matches::kMetaspace, cuts = !writes_bytes && !writes_marks;
    if (steps.size() == 1 && cuts && !spelled) return cut(step, text, piece);
    bool first = true;
    auto next = [&](std::string_view part) {
      bool begins = std::exchange(first, false) && (!cuts || part.data() == text.data());
      go_on(steps.subspan(1), part, begins ? place : PiecePlace::kLater,
            spelled || (writes_bytes && spelling == Spelling::kBytes));
    };
    writes_bytes   ? spell_bytes(step, text, place, next)
    : writes_marks ? mark_spaces(step, text, place, next)
                   : cut(step, text, next);
  }
};

}  // namespace

void pre_tokenize(Steps steps, std::string_view text, PiecePlace place, Spelling spelling,
                  const Piece& piece) {
  if (!text.empty()) Walk{spelling, piece}.go_on(steps, text, place, false);
}

}  // namespace neox
