#include "tokenizer/text_decoder.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "base/utf8.h"
#include "tokenizer/bpe.h"
#include "tokenizer/byte_tokens.h"
#include "tokenizer/unicode.h"

namespace neox {
namespace {

using DecoderKind = DecoderStep::Kind;
using Tokens = std::vector<std::string>;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
    text.replace(at, from.size(), to);
}

// clean_up_tokenization of WordPiece and CTC.
void clean_up(std::string& text) {
  static constexpr std::pair<const char*, const char*> kRules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (auto [from, to] : kRules) replace_all(text, from, to);
}

void strip(const DecoderStep& step, std::string& text) {
  std::string_view rest = text, content = step.content;
  for (size_t i = 0; i < step.start && rest.starts_with(content); ++i)
    rest.remove_prefix(content.size());
  for (size_t i = 0; i < step.stop && rest.ends_with(content); ++i)
    rest.remove_suffix(content.size());
  text = std::string(rest);
}

// Of steps that see tokens one by one; first and last: of the text.
void decode_one(const DecoderStep& step, bool first, bool last, std::string& token) {
  switch (step.kind) {
    case DecoderKind::kReplace:
      if (std::string made; is_utf8(token))
        token = std::string(step.pattern.replaced(token, step.content, made));
      return;
    case DecoderKind::kStrip:
      return strip(step, token);
    case DecoderKind::kWordPiece:
      if (!first && token.starts_with(step.content))
        token.erase(0, step.content.size());
      else if (!first)
        token.insert(0, " ");
      if (step.cleanup) clean_up(token);
      return;
    case DecoderKind::kMetaspace:
      return replace_all(token, step.content, first && step.strips_first ? "" : " ");
    case DecoderKind::kSuffix:
      return replace_all(token, step.content, last ? "" : " ");
    case DecoderKind::kCtc:
      replace_all(token, step.content, "");
      if (step.cleanup) clean_up(token), replace_all(token, step.delimiter, " ");
      return;
    case DecoderKind::kSpaces:
      if (!first) token.insert(0, " ");
      return;
    default:
      return;
  }
}

std::string bytes_of_spelling(const std::string& token) {
  std::string bytes;
  return from_byte_level(token, bytes) ? bytes : token;
}

Tokens join_bytes(const Tokens& tokens) {
  Tokens made;
  std::string row, storage;
  auto end_row = [&] {
    bool valid = is_utf8(row);
    for (size_t i = 0; !valid && i < row.size(); ++i) made.emplace_back("\xEF\xBF\xBD");
    if (valid && !row.empty()) made.push_back(row);
    row.clear();
  };
  for (const std::string& token : tokens) {
    int byte = byte_of_token(token);
    if (byte >= 0) {
      row += static_cast<char>(byte);
      continue;
    }
    end_row();
    made.push_back(token);
  }
  end_row();
  return made;
}

Tokens fuse(const Tokens& tokens) { return {join(tokens, "")}; }

Tokens fuse_spelled(Tokens tokens) {
  for (std::string& token : tokens) token = bytes_of_spelling(token);
  std::string text = join(tokens, ""), storage;
  return {std::string(unicode::repair(text, storage))};
}

Tokens without_repeats(Tokens tokens) {
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

}  // namespace

std::string decode_tokens(std::span<const DecoderStep> steps, Tokens tokens) {
  for (const DecoderStep& step : steps) {
    if (step.kind == DecoderKind::kByteFallback) tokens = join_bytes(tokens);
    if (step.kind == DecoderKind::kByteLevel) tokens = fuse_spelled(std::move(tokens));
    if (step.kind == DecoderKind::kFuse) tokens = fuse(tokens);
    if (step.kind == DecoderKind::kCtc) tokens = without_repeats(std::move(tokens));
    for (size_t i = 0; i < tokens.size(); ++i)
      decode_one(step, i == 0, i + 1 == tokens.size(), tokens[i]);
    if (step.kind == DecoderKind::kCtc) std::erase(tokens, "");
  }
  return join(tokens, "");
}

// Behind a Fuse a token inside is no text of its own, so nothing is done at its ends.
std::string decode_token(std::span<const DecoderStep> steps, std::string token, TokenPlace place) {
  bool first = place == TokenPlace::kFirst, fused = false;
  for (const DecoderStep& step : steps) {
    fused = fused || step.kind == DecoderKind::kFuse || step.kind == DecoderKind::kByteLevel;
    if (step.kind == DecoderKind::kByteLevel) token = bytes_of_spelling(token);
    int byte = step.kind == DecoderKind::kByteFallback ? byte_of_token(token) : -1;
    if (byte >= 0) token.assign(1, static_cast<char>(byte));
    bool at_end = step.kind == DecoderKind::kStrip || step.kind == DecoderKind::kWordPiece;
    if (!(fused && at_end && !first)) decode_one(step, first, false, token);
    if (step.kind == DecoderKind::kCtc && token.empty()) break;
  }
  return token;
}

}  // namespace neox
