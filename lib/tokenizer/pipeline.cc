#include "tokenizer/pipeline.h"

#include <algorithm>
#include <utility>

namespace neox {
namespace {

using Part = JsonPart;

// Spellings of one meaning stand beside each other.
const std::pair<const char*, Words> kPatterns[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", Words::kGpt2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     Words::kCl100k},
    {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
     Words::kCl100k},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     Words::kQwen2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     Words::kQwen35},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     Words::kO200k},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     Words::kTekken}};

// Some are written with line ends themselves in place of the letters that stand for them.
std::string with_escapes(std::string_view expression) {
  std::string text;
  for (char c : expression) c == '\r' ? text += "\\r" : c == '\n' ? text += "\\n" : text += c;
  return text;
}

const std::pair<const char*, PreTokenizer::Behavior> kBehaviors[] = {
    {"Removed", PreTokenizer::Behavior::kRemoved},
    {"Isolated", PreTokenizer::Behavior::kIsolated},
    {"MergedWithPrevious", PreTokenizer::Behavior::kMergedWithPrevious},
    {"MergedWithNext", PreTokenizer::Behavior::kMergedWithNext},
    {"Contiguous", PreTokenizer::Behavior::kContiguous}};

PreTokenizer::Behavior read_behavior(const Part& part) {
  std::string name = part.at("behavior").text();
  for (const auto& [known, behavior] : kBehaviors)
    if (name == known) return behavior;
  part.refuse("the behavior is ", name,
              "; supported are Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

// The words of a Split by one of the expressions that cover the text; kWhole of any other.
Words words_of(const Part& split) {
  Part pattern = split.at("pattern");
  std::string text = pattern.has("Regex") ? with_escapes(pattern.at("Regex").text()) : "";
  auto known =
      std::ranges::find(kPatterns, text, [](const auto& p) { return std::string(p.first); });
  const char* behavior = split.at("invert").flag() ? "Removed" : "Isolated";
  bool covers = known != std::end(kPatterns) && split.at("behavior").text() == behavior;
  return covers ? known->second : Words::kWhole;
}

// Words of white space, punctuation or a mark for spaces, as of models without bytes.
void read_plain_splitter(const Part& part, std::vector<PreTokenizer>& steps) {
  using Behavior = PreTokenizer::Behavior;
  using Matches = PreTokenizer::Matches;
  std::string type = part.type();
  if (type == "Whitespace") {
    steps.push_back({.matches = Matches::kRuns, .behavior = Behavior::kRemoved, .inverted = true});
  } else if (type == "WhitespaceSplit") {
    steps.push_back({.matches = Matches::kSpaces, .behavior = Behavior::kRemoved});
  } else if (type == "BertPreTokenizer") {
    steps.push_back({.matches = Matches::kSpaces, .behavior = Behavior::kRemoved});
    steps.push_back({.matches = Matches::kPunctuation});
  } else if (type == "CharDelimiterSplit") {
    steps.push_back({.matches = Matches::kPattern,
                     .behavior = Behavior::kRemoved,
                     .pattern = TextPattern::literal(part.at("delimiter").character())});
  } else if (type == "FixedLength") {
    steps.push_back({.matches = Matches::kLength,
                     .length = part.has("length") ? part.at("length").number(1) : 5});
  } else if (type == "UnicodeScripts") {
    steps.push_back(
        {.matches = Matches::kScripts, .behavior = Behavior::kRemoved, .inverted = true});
  } else if (type == "Metaspace") {
    steps.push_back({.matches = Matches::kMetaspace,
                     .prefix = read_prepend_scheme(part),
                     .mark = part.at("replacement").character(),
                     .splits = !part.has("split") || part.at("split").flag()});
  } else {
    part.refuse("the type is ", type,
                "; supported are BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, "
                "FixedLength, Metaspace, Punctuation, Split, UnicodeScripts, Whitespace, "
                "WhitespaceSplit and Sequences of these");
  }
}

void read_pre_tokenizer(const Part& part, std::vector<PreTokenizer>& steps) {
  using Behavior = PreTokenizer::Behavior;
  using Matches = PreTokenizer::Matches;
  std::string type = part.type();
  if (type == "Split") {
    steps.push_back({.matches = Matches::kPattern,
                     .behavior = read_behavior(part),
                     .inverted = part.at("invert").flag(),
                     .pattern = read_pattern(part)});
  } else if (type == "Digits") {
    bool each = part.at("individual_digits").flag();
    steps.push_back({.matches = Matches::kNumbers,
                     .behavior = each ? Behavior::kIsolated : Behavior::kContiguous});
  } else if (type == "Punctuation") {
    steps.push_back({.matches = Matches::kPunctuation,
                     .behavior = part.has("behavior") ? read_behavior(part) : Behavior::kIsolated});
  } else if (type == "ByteLevel") {
    bool whole = part.has("use_regex") && !part.at("use_regex").flag();
    bool space = part.at("add_prefix_space").flag();
    steps.push_back({.matches = Matches::kByteLevel,
                     .prefix = space ? PreTokenizer::Prefix::kAlways : PreTokenizer::Prefix::kNone,
                     .words = whole ? Words::kWhole : Words::kGpt2});
  } else {
    read_plain_splitter(part, steps);
  }
}

// The parts of Sequences in Sequences.
void collect_parts(const Part& splitter, std::vector<Part>& parts) {
  if (splitter.type() != "Sequence") return parts.push_back(splitter);
  for (const Part& part : splitter.at("pretokenizers").items()) collect_parts(part, parts);
}

std::vector<Part> parts_of(const Part& root) {
  std::vector<Part> parts;
  if (root.has("pre_tokenizer")) collect_parts(root.at("pre_tokenizer"), parts);
  return parts;
}

// A ByteLevel at the end, and a Split by a known expression in front of it, are what makes the
// words of byte-level BPE.
void read_words(std::vector<Part>& parts, TokenizerFiles& files) {
  files.words = Words::kWhole;
  if (parts.back().type() != "ByteLevel") return;
  std::vector<PreTokenizer> last;
  read_pre_tokenizer(parts.back(), last);
  parts.pop_back();
  files.words = last[0].words;
  files.prefix_space = last[0].prefix != PreTokenizer::Prefix::kNone;
  if (files.words == Words::kWhole && !parts.empty() && parts.back().type() == "Split")
    files.words = words_of(parts.back());
  if (last[0].words != files.words) parts.pop_back();
}

int32_t known_id(const Part& id, const TokenizerFiles& files) {
  int64_t number = id.value.is_number_integer() ? id.value.get<int64_t>() : -1;
  bool in_model = 0 <= number && number < std::ssize(files.tokens);
  if (!in_model && !std::ranges::count(files.added, number, &AddedToken::id))
    id.refuse(id.value.dump(), " is no token of this tokenizer");
  return static_cast<int32_t>(number);
}

// Of ["<s>", 0].
int32_t id_of_pair(const Part& pair, const TokenizerFiles& files) {
  std::vector<Part> parts = pair.items();
  if (parts.size() != 2) pair.refuse("expected a token and its id, found ", pair.value.dump());
  return known_id(parts[1], files);
}

// What stands around the ids of a single text.
void read_post_processor(const Part& processor, TokenizerFiles& files) {
  std::string type = processor.type();
  if (type == "ByteLevel") return;
  if (type == "Sequence") {
    for (const Part& part : processor.at("processors").items()) read_post_processor(part, files);
    return;
  }
  if (!files.begin.empty() || !files.end.empty())
    processor.refuse("a second template is not supported");
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    files.begin.push_back(id_of_pair(processor.at("cls"), files));
    files.end.push_back(id_of_pair(processor.at("sep"), files));
    return;
  }
  if (type != "TemplateProcessing")
    processor.refuse("the type is ", type,
                     ", which adds tokens to the ids; supported are "
                     "TemplateProcessing, RobertaProcessing and BertProcessing");
  bool text = false;
  for (const Part& piece : processor.at("single").items()) {
    if (piece.has("Sequence")) {
      if (std::exchange(text, true))
        piece.refuse("the text stands twice in the template; not supported");
      continue;
    }
    Part special =
        processor.at("special_tokens").at(piece.at("SpecialToken").at("id").text().c_str());
    for (const Part& id : special.at("ids").items())
      (text ? files.end : files.begin).push_back(known_id(id, files));
  }
  if (!text) processor.refuse("the template has no place for the text");
}

}  // namespace

const char* expression_of(Words words) {
  auto known = std::ranges::find(kPatterns, words, [](const auto& p) { return p.second; });
  return known == std::end(kPatterns) ? "" : known->first;
}

// prepend_scheme is "always" where it is missing, as in old files, whose add_prefix_space may be
// false.
PreTokenizer::Prefix read_prepend_scheme(const Part& metaspace) {
  using Prefix = PreTokenizer::Prefix;
  bool never = metaspace.has("add_prefix_space") && !metaspace.at("add_prefix_space").flag();
  std::string scheme = metaspace.has("prepend_scheme") ? metaspace.at("prepend_scheme").text()
                       : never                         ? "never"
                                                       : "always";
  if (never && scheme != "never")
    metaspace.refuse("add_prefix_space is false, but prepend_scheme ", scheme);
  if (scheme == "always") return Prefix::kAlways;
  if (scheme == "first") return Prefix::kFirst;
  if (scheme != "never")
    metaspace.refuse("prepend_scheme ", scheme, " is none of always, first, never");
  return Prefix::kNone;
}

bool spells_bytes(const Part& root) {
  static constexpr const char* kTypes[] = {"ByteLevel", "Split", "Digits", "Punctuation"};
  std::vector<Part> parts = parts_of(root);
  auto known = [](const Part& part) {
    return std::ranges::find(kTypes, part.type()) != std::end(kTypes);
  };
  return std::ranges::count(parts, "ByteLevel", &Part::type) == 1 &&
         std::ranges::all_of(parts, known);
}

void read_pipeline(const Part& root, TokenizerFiles& files) {
  if (root.has("normalizer")) read_normalizer(root.at("normalizer"), files);
  std::vector<Part> parts = parts_of(root);
  if (!files.model) read_words(parts, files);
  for (const Part& part : parts) read_pre_tokenizer(part, files.pre_tokenizers);
  read_decoder(root, files);
  if (root.has("post_processor")) read_post_processor(root.at("post_processor"), files);
}

}  // namespace neox
