#include "tokenizer/bpe_pipeline.h"

#include <algorithm>
#include <utility>

#include "tokenizer/marked_words.h"

namespace neox {
namespace {

using Part = JsonPart;

// Of a text or of a regular expression.
TextPattern read_pattern(const Part& part) {
  Part pattern = part.at("pattern");
  if (pattern.has("String")) {
    std::string text = pattern.at("String").text();
    if (text.empty()) pattern.refuse("the text to look for is empty");
    return TextPattern::literal(text);
  }
  std::string expression = pattern.at("Regex").text();
  try {
    return TextPattern::expression(expression);
  } catch (const Error& e) { pattern.refuse(e.what()); }
}

const std::pair<const char*, unicode::Form> kForms[] = {{"NFC", unicode::Form::kNfc},
                                                        {"NFD", unicode::Form::kNfd},
                                                        {"NFKC", unicode::Form::kNfkc},
                                                        {"NFKD", unicode::Form::kNfkd}};

void read_normalizer(const Part& normalizer, TokenizerFiles& files) {
  using Kind = Normalizer::Kind;
  std::string type = normalizer.type();
  auto form = std::ranges::find(kForms, type, [](const auto& f) { return std::string(f.first); });
  if (form != std::end(kForms)) {
    files.normalizers.push_back({.kind = Kind::kForm, .form = form->second});
  } else if (type == "Sequence") {
    for (const Part& part : normalizer.at("normalizers").items()) read_normalizer(part, files);
  } else if (type == "Replace") {
    files.normalizers.push_back({.kind = Kind::kReplace,
                                 .pattern = read_pattern(normalizer),
                                 .content = normalizer.at("content").text()});
  } else if (type == "Prepend") {
    files.normalizers.push_back(
        {.kind = Kind::kPrepend, .content = normalizer.at("prepend").text()});
  } else {
    normalizer.refuse("the type is ", type,
                      "; supported are NFC, NFD, NFKC, NFKD, Replace, Prepend, and Sequences of "
                      "these");
  }
}

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

PreTokenizer read_pre_tokenizer(const Part& part) {
  using Behavior = PreTokenizer::Behavior;
  using Matches = PreTokenizer::Matches;
  std::string type = part.type();
  if (type == "Split")
    return {.matches = Matches::kPattern,
            .behavior = read_behavior(part),
            .inverted = part.at("invert").flag(),
            .pattern = read_pattern(part)};
  if (type == "Digits")
    return {.matches = Matches::kNumbers,
            .behavior =
                part.at("individual_digits").flag() ? Behavior::kIsolated : Behavior::kContiguous};
  if (type == "Punctuation")
    return {.matches = Matches::kPunctuation,
            .behavior = part.has("behavior") ? read_behavior(part) : Behavior::kIsolated};
  return {.matches = Matches::kByteLevel,
          .prefix_space = part.at("add_prefix_space").flag(),
          .words =
              part.has("use_regex") && !part.at("use_regex").flag() ? Words::kWhole : Words::kGpt2};
}

// The parts of Sequences in Sequences.
void collect_parts(const Part& splitter, std::vector<Part>& parts) {
  static constexpr const char* kTypes[] = {"ByteLevel", "Split", "Digits", "Punctuation"};
  std::string type = splitter.type();
  if (std::ranges::find(kTypes, type) != std::end(kTypes)) return parts.push_back(splitter);
  if (type != "Sequence")
    splitter.refuse("the type is ", type,
                    "; supported are ByteLevel, and with it Split, Digits and Punctuation");
  for (const Part& part : splitter.at("pretokenizers").items()) collect_parts(part, parts);
}

// A ByteLevel at the end, and a Split by a known expression in front of it, are what makes the
// words.
void read_pre_tokenizers(const Part& splitter, TokenizerFiles& files) {
  std::vector<Part> parts;
  collect_parts(splitter, parts);
  auto spelling = std::ranges::count(parts, "ByteLevel", &Part::type);
  if (spelling != 1)
    splitter.refuse(spelling, " of its parts are a ByteLevel; supported is one in a tokenizer");
  files.words = Words::kWhole;
  if (parts.back().type() == "ByteLevel") {
    PreTokenizer last = read_pre_tokenizer(parts.back());
    parts.pop_back();
    files.words = last.words;
    if (last.prefix_space) files.prefix = TokenizerFiles::Prefix::kSpace;
    if (files.words == Words::kWhole && !parts.empty() && parts.back().type() == "Split")
      files.words = words_of(parts.back());
    if (last.words != files.words) parts.pop_back();
  }
  for (const Part& part : parts) files.pre_tokenizers.push_back(read_pre_tokenizer(part));
}

void check_decoder(const Part& decoder) {
  std::string type = decoder.type();
  if (type == "Sequence") {
    std::vector<Part> parts = decoder.at("decoders").items();
    if (parts.size() == 1) return check_decoder(parts[0]);
    decoder.refuse("a Sequence of ", parts.size(), "; only ByteLevel alone is supported");
  }
  if (type != "ByteLevel") decoder.refuse("the type is ", type, "; only ByteLevel is supported");
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

// Of a pattern that is a text, not a regular expression; else "".
std::string plain_pattern(const Part& part) {
  Part pattern = part.at("pattern");
  return pattern.has("String") ? pattern.at("String").text() : "";
}

// Whether some step writes spaces as U+2581.
bool writes_marks(const Part& normalizer) {
  if (normalizer.type() == "Sequence")
    return std::ranges::any_of(normalizer.at("normalizers").items(), writes_marks);
  return normalizer.type() == "Replace" && plain_pattern(normalizer) == " " &&
         normalizer.at("content").text() == kSpmSpace;
}

// Metaspace does the same one step later; a Split at spaces finds none then.
void read_metaspace(const Part& splitter, bool marked, TokenizerFiles& files) {
  using Prefix = TokenizerFiles::Prefix;
  std::string type = splitter.type();
  if (type == "Split" && marked && plain_pattern(splitter) == " ") return;
  if (type != "Metaspace" || marked)
    splitter.refuse("the type is ", type, "; supported with byte_fallback is Metaspace, alone");
  if (splitter.at("replacement").text() != kSpmSpace)
    splitter.refuse("the replacement is not ", kSpmSpace);
  if (!splitter.has("split") || splitter.at("split").flag())
    splitter.refuse("words that are split are not supported; supported is \"split\": false");
  std::string scheme = splitter.at("prepend_scheme").text();
  if (scheme != "always" && scheme != "first" && scheme != "never")
    splitter.refuse("prepend_scheme ", scheme, " is none of always, first, never");
  files.metaspace = true;
  files.prefix = scheme == "always"  ? Prefix::kSpace
                 : scheme == "first" ? Prefix::kFirstSpace
                                     : Prefix::kNone;
}

// Replace of U+2581 by " ", ByteFallback, Fuse, and mostly Strip of one space at the begin.
void read_marked_decoder(const Part& decoder, TokenizerFiles& files) {
  if (decoder.type() != "Sequence")
    decoder.refuse("the type is ", decoder.type(), ", not Sequence");
  std::vector<Part> parts = decoder.at("decoders").items();
  std::vector<std::string> types;
  for (const Part& part : parts) types.push_back(part.type());
  std::vector<std::string> known = {"Replace", "ByteFallback", "Fuse", "Strip"};
  files.strips_space = types == known;
  if (!files.strips_space) known.pop_back();
  if (types != known)
    decoder.refuse("a Sequence of ", join(types, ", "),
                   "; supported with byte_fallback are Replace, ByteFallback, Fuse, and Strip");
  if (plain_pattern(parts[0]) != kSpmSpace || parts[0].at("content").text() != " ")
    parts[0].refuse("supported is the Replace of ", kSpmSpace, " by a space");
  if (!files.strips_space) return;
  const Part& strip = parts[3];
  if (strip.at("content").text() != " " || strip.at("start").value != 1 ||
      strip.at("stop").value != 0)
    strip.refuse("supported is the Strip of one space at the start");
}

}  // namespace

const char* expression_of(Words words) {
  auto known = std::ranges::find(kPatterns, words, [](const auto& p) { return p.second; });
  return known == std::end(kPatterns) ? "" : known->first;
}

bool spells_bytes(const Part& splitter) {
  std::string type = splitter.type();
  if (type != "Sequence") return type == "ByteLevel";
  return std::ranges::any_of(splitter.at("pretokenizers").items(), spells_bytes);
}

void read_byte_level_pipeline(const Part& root, TokenizerFiles& files) {
  if (root.has("normalizer")) read_normalizer(root.at("normalizer"), files);
  read_pre_tokenizers(root.at("pre_tokenizer"), files);
  check_decoder(root.at("decoder"));
  if (root.has("post_processor")) read_post_processor(root.at("post_processor"), files);
}

void read_marked_pipeline(const Part& root, TokenizerFiles& files) {
  if (root.has("normalizer")) read_normalizer(root.at("normalizer"), files);
  bool marked = root.has("normalizer") && writes_marks(root.at("normalizer"));
  if (root.has("pre_tokenizer")) read_metaspace(root.at("pre_tokenizer"), marked, files);
  if (!marked && !files.metaspace)
    root.refuse("neither the normalizer nor the pre_tokenizer writes spaces as ", kSpmSpace);
  read_marked_decoder(root.at("decoder"), files);
  if (root.has("post_processor")) read_post_processor(root.at("post_processor"), files);
}

}  // namespace neox
