#include "tokenizer/bpe_pipeline.h"

#include <algorithm>
#include <utility>

#include "tokenizer/marked_words.h"

namespace neox {
namespace {

using Part = JsonPart;

void read_normalizer(const Part& normalizer, TokenizerFiles& files) {
  std::string type = normalizer.type();
  if (type == "NFC") {
    files.normalizer = TokenizerFiles::Normalizer::kNfc;
  } else if (type == "Sequence") {
    for (const Part& part : normalizer.at("normalizers").items()) read_normalizer(part, files);
  } else {
    normalizer.refuse("the type is ", type, "; only NFC is supported");
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

// The words of a Split by a regular expression.
Words read_split(const Part& split) {
  Part pattern = split.at("pattern");
  std::string text = pattern.has("Regex") ? pattern.at("Regex").text() : "";
  auto known =
      std::ranges::find(kPatterns, text, [](const auto& p) { return std::string(p.first); });
  if (known == std::end(kPatterns))
    pattern.refuse(
        pattern.value.dump(),
        " is not supported; supported are the regular expressions of "
        "GPT-2, of cl100k_base (LLaMA 3, OLMo 2), of Qwen 2 and 3.5, of o200k_base (gpt-oss, "
        "LLaMA 4) and of Mistral's Tekken");
  std::string behavior = split.at("behavior").text();
  bool invert =
      split.at("invert").flag();  // they cover the text: no difference but in the words for it
  if (behavior != (invert ? "Removed" : "Isolated"))
    split.refuse("behavior ", behavior, invert ? " with" : " without",
                 " invert is not supported; "
                 "supported are Isolated, and Removed with invert");
  return known->second;
}

void read_byte_level(const Part& splitter, TokenizerFiles& files) {
  std::string type = splitter.type();
  if (type != "ByteLevel") splitter.refuse("the type is ", type, "; only ByteLevel is supported");
  if (splitter.at("add_prefix_space").flag()) files.prefix = TokenizerFiles::Prefix::kSpace;
  if (splitter.has("use_regex") && !splitter.at("use_regex").flag()) files.words = Words::kWhole;
}

// ByteLevel, alone or behind one that makes words, or cuts digits out.
void read_pre_tokenizer(const Part& splitter, TokenizerFiles& files) {
  if (splitter.type() != "Sequence") return read_byte_level(splitter, files);
  std::vector<Part> parts = splitter.at("pretokenizers").items();
  if (parts.empty() || parts.size() > 2)
    splitter.refuse("a Sequence of ", parts.size(),
                    "; supported is ByteLevel, alone or behind a Split or Digits");
  read_byte_level(parts.back(), files);
  if (parts.size() == 1) return;
  const Part& first = parts[0];
  bool whole = files.words == Words::kWhole;
  if (files.prefix != TokenizerFiles::Prefix::kNone)
    parts[1].refuse("add_prefix_space is not supported behind ", first.type());
  if (first.type() == "Split" && whole) {
    files.words = read_split(first);
  } else if (first.type() == "Digits" && !whole) {
    if (!first.at("individual_digits").flag())
      first.refuse("individual_digits: false is not supported");
    files.digits_alone = true;
  } else {
    first.refuse("a ", first.type(), " in front of a ByteLevel ", whole ? "without" : "with",
                 " use_regex is not supported; supported are Split without it and Digits with it");
  }
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

// What stands around the ids of a single text.
void read_post_processor(const Part& processor, TokenizerFiles& files) {
  std::string type = processor.type();
  if (type == "ByteLevel") return;
  if (type == "Sequence") {
    for (const Part& part : processor.at("processors").items()) read_post_processor(part, files);
    return;
  }
  if (type != "TemplateProcessing")
    processor.refuse("the type is ", type, ", which adds tokens to the ids; not supported");
  if (!files.begin.empty() || !files.end.empty())
    processor.refuse("a second template is not supported");
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

// Replace of " " by U+2581, with or without a Prepend of one.
void read_marks(const Part& normalizer, TokenizerFiles& files) {
  std::string type = normalizer.type();
  if (type == "Sequence") {
    for (const Part& part : normalizer.at("normalizers").items()) read_marks(part, files);
  } else if (type == "Prepend" && normalizer.at("prepend").text() == kSpmSpace) {
    files.marks = TokenizerFiles::Marks::kPrepended;
  } else if (type == "Replace" && plain_pattern(normalizer) == " " &&
             normalizer.at("content").text() == kSpmSpace) {
    files.marks = std::max(files.marks, TokenizerFiles::Marks::kReplaced);
  } else {
    normalizer.refuse("this ", type,
                      " is not supported; supported with byte_fallback are Replace of a space by ",
                      kSpmSpace, ", and Prepend of that");
  }
}

// Metaspace does the same one step later; a Split at spaces finds none then.
void read_metaspace(const Part& splitter, TokenizerFiles& files) {
  using Prefix = TokenizerFiles::Prefix;
  std::string type = splitter.type();
  bool marked = files.marks != TokenizerFiles::Marks::kNone;
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
  files.marks = TokenizerFiles::Marks::kLast;
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

void read_byte_level_pipeline(const Part& root, TokenizerFiles& files) {
  if (root.has("normalizer")) read_normalizer(root.at("normalizer"), files);
  read_pre_tokenizer(root.at("pre_tokenizer"), files);
  check_decoder(root.at("decoder"));
  if (root.has("post_processor")) read_post_processor(root.at("post_processor"), files);
}

void read_marked_pipeline(const Part& root, TokenizerFiles& files) {
  if (root.has("normalizer")) read_marks(root.at("normalizer"), files);
  if (root.has("pre_tokenizer")) read_metaspace(root.at("pre_tokenizer"), files);
  if (files.marks == TokenizerFiles::Marks::kNone)
    root.refuse("neither the normalizer nor the pre_tokenizer writes spaces as ", kSpmSpace);
  read_marked_decoder(root.at("decoder"), files);
  if (root.has("post_processor")) read_post_processor(root.at("post_processor"), files);
}

}  // namespace neox
