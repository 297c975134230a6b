#include <algorithm>
#include <utility>

#include "tokenizer/pipeline.h"

namespace neox {
namespace {

using Part = JsonPart;
using NormalizerKind = Normalizer::Kind;

const std::pair<const char*, unicode::Form> kForms[] = {{"NFC", unicode::Form::kNfc},
                                                        {"NFD", unicode::Form::kNfd},
                                                        {"NFKC", unicode::Form::kNfkc},
                                                        {"NFKD", unicode::Form::kNfkd}};

// Of types without parameters.
const std::pair<const char*, NormalizerKind> kPlain[] = {
    {"Lowercase", NormalizerKind::kLowercase},
    {"StripAccents", NormalizerKind::kStripAccents},
    {"Nmt", NormalizerKind::kNmt},
    {"ByteLevel", NormalizerKind::kSpellBytes}};

template <class Table>
auto find_name(const Table& table, const std::string& name) {
  return std::ranges::find(table, name, [](const auto& one) { return std::string(one.first); });
}

void read_bert(const Part& part, std::vector<Normalizer>& steps) {
  bool lowercase = part.at("lowercase").flag();
  bool accents = part.has("strip_accents") ? part.at("strip_accents").flag() : lowercase;
  if (part.at("clean_text").flag()) steps.push_back({.kind = NormalizerKind::kCleanControls});
  if (part.at("handle_chinese_chars").flag())
    steps.push_back({.kind = NormalizerKind::kSpaceIdeograms});
  if (accents) {
    steps.push_back({.kind = NormalizerKind::kForm, .form = unicode::Form::kNfd});
    steps.push_back({.kind = NormalizerKind::kDropNonspacing});
  }
  if (lowercase) steps.push_back({.kind = NormalizerKind::kLowercase});
}

// The bytes of base64 (RFC 4648).
std::string read_base64(const Part& part) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text = part.text(), bytes;
  uint32_t bits = 0;
  int held = 0;
  while (text.ends_with('=')) text.pop_back();
  for (char c : text) {
    size_t digit = kDigits.find(c);
    if (digit == kDigits.npos) part.refuse("it is not base64");
    bits = bits << 6 | static_cast<uint32_t>(digit);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes.push_back(static_cast<char>(bits >> held & 0xFF));
  }
  return bytes;
}

}  // namespace

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

void read_normalizer(const Part& normalizer, TokenizerFiles& files) {
  std::vector<Normalizer>& steps = files.normalizers;
  std::string type = normalizer.type();
  if (auto form = find_name(kForms, type); form != std::end(kForms)) {
    steps.push_back({.kind = NormalizerKind::kForm, .form = form->second});
  } else if (auto plain = find_name(kPlain, type); plain != std::end(kPlain)) {
    steps.push_back({.kind = plain->second});
  } else if (type == "Sequence") {
    for (const Part& part : normalizer.at("normalizers").items()) read_normalizer(part, files);
  } else if (type == "Replace") {
    steps.push_back({.kind = NormalizerKind::kReplace,
                     .pattern = read_pattern(normalizer),
                     .content = normalizer.at("content").text()});
  } else if (type == "Prepend") {
    steps.push_back({.kind = NormalizerKind::kPrepend, .content = normalizer.at("prepend").text()});
  } else if (type == "Strip") {
    if (normalizer.at("strip_left").flag()) steps.push_back({.kind = NormalizerKind::kStripLeft});
    if (normalizer.at("strip_right").flag()) steps.push_back({.kind = NormalizerKind::kStripRight});
  } else if (type == "BertNormalizer") {
    read_bert(normalizer, steps);
  } else if (type == "Precompiled") {
    Part map = normalizer.at("precompiled_charsmap");
    steps.push_back({.kind = NormalizerKind::kPrecompiled,
                     .charsmap = std::make_shared<const Charsmap>(read_base64(map), map.where)});
  } else {
    normalizer.refuse("the type is ", type,
                      "; supported are BertNormalizer, ByteLevel, Lowercase, NFC, NFD, NFKC, NFKD, "
                      "Nmt, Precompiled, Prepend, Replace, Strip, StripAccents and Sequences of "
                      "these");
  }
}

}  // namespace neox
